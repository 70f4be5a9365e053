package system

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/services/throughline/verify"
)

// Client is a storefront.
type Client struct {
	ID  string
	Key string
	// URLs are the gateways; calls are spread over them.
	URLs []string
	HTTP *http.Client
}

// Storefront is the first development client, which uses every gateway.
func (s *System) Storefront() *Client { return s.client("storefront") }

// Marketplace is the second development client.
func (s *System) Marketplace() *Client { return s.client("marketplace") }

func (s *System) client(id string) *Client {
	c := &Client{ID: id, Key: "tl_dev_" + id, HTTP: &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 256},
	}}
	for i := range s.options.Instances {
		c.URLs = append(c.URLs, fmt.Sprintf("http://127.0.0.1:%d", s.options.Ports["http"]+i))
	}
	s.tb.Cleanup(c.HTTP.CloseIdleConnections)
	return c
}

// Answer is what a gateway said.
type Answer struct {
	Status   int
	Header   http.Header
	Body     []byte
	Replayed bool
	Order    struct {
		verify.Order
		FailureReason string `json:"failure_reason"`
	}
	Problem struct {
		Type   string `json:"type"`
		Reason string `json:"reason"`
	}
}

// Order is R0: an order that succeeds, unless a part of it says otherwise.
type Order struct {
	Quantity      int
	PaymentMethod string
	PostalCode    string
}

// JSON renders the order.
func (o Order) JSON() string {
	if o.Quantity == 0 {
		o.Quantity = 2
	}
	if o.PaymentMethod == "" {
		o.PaymentMethod = "pm_card_visa"
	}
	if o.PostalCode == "" {
		o.PostalCode = "10115"
	}
	return fmt.Sprintf(`{"currency":"EUR","lines":[{"sku":"BOOK-1","quantity":%d,"unit_price":1250}],`+
		`"ship_to":{"name":"A. Buyer","line1":"1 High St","city":"Berlin","postal_code":%q,"country":"DE"},`+
		`"payment_method":%q,"note":"","metadata":{}}`, o.Quantity, o.PostalCode, o.PaymentMethod)
}

// Post posts a body with a key, once, to gateway i.
func (c *Client) Post(ctx context.Context, i int, path, key, body string) (*Answer, error) {
	return c.do(ctx, i, http.MethodPost, path, key, body)
}

// Place places an order like a storefront should: it repeats the request with the same key until there is an answer that a
// repeat cannot change.
func (c *Client) Place(ctx context.Context, key string, o Order) (*Answer, error) {
	return c.retry(ctx, "/v1/orders", key, o.JSON())
}

// Cancel cancels an order, in the same way.
func (c *Client) Cancel(ctx context.Context, id, key string) (*Answer, error) {
	return c.retry(ctx, "/v1/orders/"+id+"/cancel", key, `{}`)
}

func (c *Client) retry(ctx context.Context, path, key, body string) (*Answer, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		a, err := c.Post(ctx, i, path, key, body)
		if err == nil && a.Status < 500 && a.Status != http.StatusTooManyRequests && a.Problem.Reason != "KEY_IN_PROGRESS" {
			return a, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("placing with key %s: %w (last: %v, %v)", key, ctx.Err(), a, err) //nolint:errorlint // the last error only explains
		case <-tick.C:
		}
	}
}

// Get reads an order.
func (c *Client) Get(ctx context.Context, id string) (*Answer, error) {
	return c.do(ctx, 0, http.MethodGet, "/v1/orders/"+id, "", "")
}

// Orders lists all orders of the client.
func (c *Client) Orders(ctx context.Context) ([]verify.Order, error) {
	var orders []verify.Order
	token := ""
	for {
		a, err := c.do(ctx, 0, http.MethodGet, "/v1/orders?page_size=100&page_token="+token, "", "")
		if err != nil {
			return nil, err
		}
		var page struct {
			Orders        []verify.Order `json:"orders"`
			NextPageToken string         `json:"next_page_token"`
		}
		if a.Status != http.StatusOK {
			return nil, fmt.Errorf("listing orders: %d %s", a.Status, a.Body)
		}
		if err := json.Unmarshal(a.Body, &page); err != nil {
			return nil, err
		}
		orders = append(orders, page.Orders...)
		if token = page.NextPageToken; token == "" {
			return orders, nil
		}
	}
}

func (c *Client) do(ctx context.Context, i int, method, path, key, body string) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URLs[i%len(c.URLs)]+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // no repeat that the test does not know of
	req.Header.Set("Authorization", "Bearer "+c.Key)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &Answer{Status: resp.StatusCode, Header: resp.Header, Replayed: resp.Header.Get("Idempotency-Replayed") == "true"}
	if a.Body, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	if a.Status >= http.StatusBadRequest {
		err = json.Unmarshal(a.Body, &a.Problem)
	} else {
		err = json.Unmarshal(a.Body, &a.Order)
	}
	if err != nil {
		return a, fmt.Errorf("reading the answer %d %q: %w", a.Status, a.Body, err)
	}
	return a, nil
}

// Settle waits until no order of both clients is on its way, and gives all orders.
func (s *System) Settle(ctx context.Context) []verify.Order {
	s.tb.Helper()
	var orders []verify.Order
	Eventually(ctx, s.tb, "all orders to come to rest", func() bool {
		orders = orders[:0]
		for _, c := range []*Client{s.Storefront(), s.Marketplace()} {
			list, err := c.Orders(ctx)
			if err != nil {
				return false
			}
			orders = append(orders, list...)
		}
		for _, o := range orders {
			if o.Status == verify.Pending || o.Status == verify.Compensating {
				return false
			}
		}
		return true
	})
	return orders
}

// Check settles, and fails the test for every broken rule. It gives the orders by status.
func (s *System) Check(ctx context.Context) map[string][]verify.Order {
	s.tb.Helper()
	orders := s.Settle(ctx)
	payments, err := s.Provider.PaymentLedger(ctx, "")
	if err != nil {
		s.tb.Fatal(err)
	}
	shipments, err := s.Carrier.CarrierLedger(ctx, "")
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, v := range verify.Settled(orders, payments, shipments) {
		s.tb.Errorf("broken rule: %s", v)
	}
	s.Verify(ctx)
	byStatus := make(map[string][]verify.Order)
	for _, o := range orders {
		byStatus[o.Status] = append(byStatus[o.Status], o)
	}
	return byStatus
}

// Verify has the system prove by itself that its effects agree, and fails the test if it does not.
func (s *System) Verify(ctx context.Context) {
	s.tb.Helper()
	args := []string{"verify", "--all", "--data", s.Data()}
	for _, service := range []string{"order", "payment", "shipping"} {
		args = append(args, "--"+service, fmt.Sprintf("127.0.0.1:%d", s.Ports()[service+"-grpc"]))
	}
	if out, err := exec.CommandContext(ctx, Binary(s.tb), args...).CombinedOutput(); err != nil {
		s.tb.Errorf("verify --all: %v\n%s", err, out)
	}
}

// busy is how much longer things may take than where a test has the machine almost for itself.
const busy = 3

// Context is a context for one test: bounded, so that a test that hangs says where. It ends after several times d, which is ample where the
// machine has little else to do.
func Context(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), busy*d)
	tb.Cleanup(cancel)
	return ctx
}
