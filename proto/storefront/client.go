package storefront

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxKey is how long a key may be, in bytes.
const maxKey = 255

// maxWait is the most that the service waits for the end of an order.
const maxWait = 20 * time.Second

// Pauses of WaitFinal where the service does not wait: an order usually ends within a second, and one that does not has a reason to take long.
const (
	firstPoll  = 50 * time.Millisecond
	maxPoll    = 2 * time.Second
	pollFactor = 1.5
)

// Client calls the service for one API key. Use New.
type Client struct {
	base    string
	apiKey  string
	http    *http.Client
	attempt time.Duration
	pause   func(context.Context, time.Duration) error
}

// Option changes a Client.
type Option func(*Client)

// WithTransport sends requests through t instead of a transport of its own.
func WithTransport(t http.RoundTripper) Option { return func(c *Client) { c.http.Transport = t } }

// WithAttemptTimeout bounds each attempt; the default is 15 s, which is more than the service itself takes to give up. The
// whole of a call is bounded by its context.
func WithAttemptTimeout(d time.Duration) Option { return func(c *Client) { c.attempt = d } }

// New makes a Client of the service at baseURL, such as "https://orders.example.com".
func New(baseURL, apiKey string, opts ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: the address must be http:// or https:// and a host", ErrConfig)
	}
	if !printable(apiKey) || strings.Contains(apiKey, " ") {
		return nil, fmt.Errorf("%w: the API key must be printable ASCII without blanks", ErrConfig)
	}
	c := &Client{base: strings.TrimRight(u.String(), "/"), apiKey: apiKey, attempt: 15 * time.Second, pause: pause}
	c.http = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// As net/http's own, but with more than 2 idle connections, since all requests go to one host.
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64,
			IdleConnTimeout: 60 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		},
	}
	for _, opt := range opts {
		opt(c)
	}
	return c, nil
}

// NewKey mints a key: 130 random bits. Store it with what it is for before it is used.
func NewKey() string { return rand.Text() }

// PlaceOrder places an order under a key, repeating the call with the same key until the answer is definite; see the package
// comment. Errors: *Error for a definite refusal; ErrUnresolved, with the context's error and the last failure, when
// ctx ended first; ErrKey.
func (c *Client) PlaceOrder(ctx context.Context, key string, o NewOrder) (Answered, error) {
	if o.Lines == nil {
		o.Lines = []Line{} // the service reads strictly, and null is no list
	}
	placed, err := c.callWithKey(ctx, "/v1/orders", key, o)
	if err != nil {
		return Answered{}, fmt.Errorf("placing order: %w", err)
	}
	return placed, nil
}

// CancelOrder asks for an order to be undone, and answers with the order as it is then: usually still on its way to
// Cancelled, see WaitFinal. The key is the cancel's own, not the order's. The reason may be empty. Errors are those of
// PlaceOrder; one with ReasonCancelTooLate says that the order will be confirmed.
func (c *Client) CancelOrder(ctx context.Context, key, orderID, reason string) (Answered, error) {
	path := "/v1/orders/" + url.PathEscape(orderID) + "/cancel"
	body := struct {
		Reason string `json:"reason"`
	}{reason}
	cancelled, err := c.callWithKey(ctx, path, key, body)
	if err != nil {
		return Answered{}, fmt.Errorf("cancelling order: %w", err)
	}
	return cancelled, nil
}

// GetOrder answers with the order as it is now. It tries again as PlaceOrder does.
func (c *Client) GetOrder(ctx context.Context, orderID string) (Order, error) {
	o, _, err := c.getOrder(ctx, orderID, 0)
	return o, err
}

// GetOrderWithin answers with the order as it is at its end, or as it is after the wait, which is rounded up to seconds and at most 20 s. The
// service may also answer sooner, when it is busy or stops; WaitFinal asks again.
func (c *Client) GetOrderWithin(ctx context.Context, orderID string, wait time.Duration) (Order, error) {
	o, _, err := c.getOrder(ctx, orderID, wait)
	return o, err
}

// getOrder also says whether the service has waited.
func (c *Client) getOrder(ctx context.Context, orderID string, wait time.Duration) (o Order, waited bool, err error) {
	wait = min(maxWait, (max(0, wait) + time.Second - 1).Truncate(time.Second))
	got, err := c.call(ctx, request{method: http.MethodGet, path: "/v1/orders/" + url.PathEscape(orderID), wait: wait}, &o)
	if err != nil {
		return Order{}, false, fmt.Errorf("getting order: %w", err)
	}
	return o, got.header.Get("Preference-Applied") != "", nil
}

// LookUpKey tells what is known of the key of an order: whether it has an order, and which. Keys of cancellations are not looked for. That a key is
// unknown does not mean that an order under it can be given up: PlaceOrder with the same key is what settles it.
func (c *Client) LookUpKey(ctx context.Context, key string) (Key, error) {
	if !printable(key) || len(key) > maxKey {
		return Key{}, ErrKey
	}
	var k Key
	if err := c.get(ctx, "/v1/idempotency-keys/"+url.PathEscape(quoted(key)), &k); err != nil {
		return Key{}, fmt.Errorf("looking up a key: %w", err)
	}
	return k, nil
}

// ListOrders answers with one page of orders, newest first. pageSize is 1 to 100, 0 means the service's choice; the token is
// that of the page before, empty for the first.
func (c *Client) ListOrders(ctx context.Context, pageSize int, pageToken string) (Page, error) {
	q := url.Values{}
	if pageSize != 0 {
		q.Set("page_size", strconv.Itoa(pageSize))
	}
	if pageToken != "" {
		q.Set("page_token", pageToken)
	}
	path := "/v1/orders"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var p Page
	if err := c.get(ctx, path, &p); err != nil {
		return Page{}, fmt.Errorf("listing orders: %w", err)
	}
	return p, nil
}

// Orders goes through all orders, newest first, page by page. It ends after the first error.
func (c *Client) Orders(ctx context.Context) iter.Seq2[Order, error] {
	return func(yield func(Order, error) bool) {
		for token := ""; ; {
			p, err := c.ListOrders(ctx, 0, token)
			if err != nil {
				yield(Order{}, err)
				return
			}
			for _, o := range p.Orders {
				if !yield(o, nil) {
					return
				}
			}
			if token = p.NextToken; token == "" {
				return
			}
		}
	}
}

// WaitFinal waits until the status of an order is final: the service waits for it, or else this client asks with growing pauses of up to 2 s.
// It answers the order as last seen also with an error: ErrNeedsAttention when a person must decide, ErrUnresolved when ctx ended first.
func (c *Client) WaitFinal(ctx context.Context, orderID string) (Order, error) {
	var last Order
	for wait := firstPoll; ; wait = min(maxPoll, time.Duration(float64(wait)*pollFactor)) {
		o, waited, err := c.getOrder(ctx, orderID, maxWait)
		if err != nil {
			return last, err
		}
		last = o
		switch {
		case o.Status.Final():
			return o, nil
		case o.Status == NeedsAttention:
			return o, ErrNeedsAttention
		case waited:
			wait = firstPoll
		}
		if err := c.pause(ctx, wait); err != nil {
			return o, fmt.Errorf("waiting for order: %w: %w", ErrUnresolved, err)
		}
	}
}

func (c *Client) callWithKey(ctx context.Context, path, key string, body any) (Answered, error) {
	if !printable(key) || len(key) > maxKey {
		return Answered{}, ErrKey
	}
	data, err := json.Marshal(body)
	if err != nil {
		return Answered{}, fmt.Errorf("writing the request: %w", err)
	}
	var a Answered
	got, err := c.call(ctx, request{method: http.MethodPost, path: path, key: key, body: data}, &a.Order)
	if err != nil {
		return Answered{}, err
	}
	a.KeyExpired = got.header.Get("Idempotency-Key-Expired") == "true"
	a.Replayed = a.KeyExpired || got.header.Get("Idempotency-Replayed") == "true"
	return a, nil
}

func (c *Client) get(ctx context.Context, path string, into answer) error {
	_, err := c.call(ctx, request{method: http.MethodGet, path: path}, into)
	return err
}

// printable says whether s has printable ASCII only, and at least one.
func printable(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0
}

// quoted is a key as a structured-field string (RFC 9651), the form in which every printable key can be sent.
func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}

// asError answers the *Error in err, or nil.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
