package carrier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

// The operations, as errors name them.
const (
	opCreate   = "create shipment"
	opGet      = "get shipment"
	opFind     = "find shipments"
	opCancel   = "cancel shipment"
	opDispatch = "dispatch shipment"
)

// DefaultTimeout bounds one request. Two of them, a write and the question that follows when it is not answered, fit into the
// time of one attempt at a step.
const DefaultTimeout = 5 * time.Second

const (
	// maxShipment bounds what one shipment is in an answer, however many items it has.
	maxShipment = 64 << 10
	// maxAnswer bounds an answer about one order, which may have several shipments; maxList one about a page of them.
	maxAnswer = 16 * maxShipment
	maxList   = MaxPage * maxShipment
	// maxIdle is how many connections wait for their next call: as many as calls run at one time.
	maxIdle = 64
	// idleTimeout ends before that of common load balancers, 60 s, so that a call rarely meets a connection that is being closed.
	idleTimeout = 30 * time.Second
)

// Config makes a [Client].
type Config struct {
	// URL is the carrier's: scheme, host and port.
	URL string
	// Key is our API key; empty sends none.
	Key string
	// Timeout bounds one request, answer included; 0 means DefaultTimeout.
	Timeout time.Duration
	// Transport takes the place of the network; nil is the network.
	Transport http.RoundTripper
	// Wrap puts something around the transport, such as spans; nil puts nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Client calls the carrier. It is safe for concurrent use.
type Client struct {
	base, key string
	http      *http.Client
	transport *http.Transport
}

// New makes a client. It connects to nothing yet.
func New(cfg Config) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = maxIdle, maxIdle, idleTimeout
	var around http.RoundTripper = t
	if cfg.Transport != nil {
		around = cfg.Transport
	}
	if cfg.Wrap != nil {
		around = cfg.Wrap(around)
	}
	return &Client{
		base: strings.TrimSuffix(cfg.URL, "/") + "/v1/shipments", key: cfg.Key, transport: t,
		http: &http.Client{
			Timeout: cfg.Timeout, Transport: around,
			// A redirected POST would be a second request, or a GET that creates nothing.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close closes the connections that wait.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Order is the carrier's side of one order.
type Order struct {
	client    *Client
	orderID   uuid.UUID
	reference uuid.UUID
}

// Order gives the carrier's side of an order, under the reference that its shipment is created with.
func (c *Client) Order(orderID, reference uuid.UUID) *Order { return &Order{c, orderID, reference} }

// parcel is the body of a creation.
type parcel struct {
	Reference  string `json:"reference"`
	OrderID    string `json:"order_id"`
	Name       string `json:"name"`
	Line1      string `json:"line1"`
	Line2      string `json:"line2,omitempty"`
	City       string `json:"city"`
	Region     string `json:"region,omitempty"`
	PostalCode string `json:"postal_code"`
	Country    string `json:"country"`
	Items      []item `json:"items"`
}

type item struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// shipment is what we read of the carrier's.
type shipment struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Reference string `json:"reference"`
	OrderID   string `json:"order_id"`
}

// Create books a shipment. Each call that is carried out books another one.
func (o *Order) Create(ctx context.Context, to shipping.Address, items []shipping.Item) (shipping.Shipment, error) {
	p := parcel{
		Reference: o.reference.String(), OrderID: o.orderID.String(), Name: to.Name, Line1: to.Line1, Line2: to.Line2, City: to.City,
		Region: to.Region, PostalCode: to.PostalCode, Country: to.Country, Items: make([]item, len(items)),
	}
	for i, it := range items {
		p.Items[i] = item{it.SKU, it.Quantity}
	}
	body, err := json.Marshal(p)
	if err != nil {
		return shipping.Shipment{}, o.client.fail(opCreate, 0, err)
	}
	return o.one(ctx, o.exchange(opCreate, ""), http.MethodPost, "", body, http.StatusCreated)
}

// Get asks for a shipment as it is now.
func (o *Order) Get(ctx context.Context, id string) (shipping.Shipment, error) {
	return o.one(ctx, o.exchange(opGet, id), http.MethodGet, "/"+url.PathEscape(id), nil, http.StatusOK)
}

// Cancel cancels a shipment. It may be repeated.
func (o *Order) Cancel(ctx context.Context, id string) (shipping.Shipment, error) {
	return o.one(ctx, o.exchange(opCancel, id), http.MethodPost, "/"+url.PathEscape(id)+"/cancel", nil, http.StatusOK)
}

// Dispatch sends a shipment on its way. It may be repeated.
func (o *Order) Dispatch(ctx context.Context, id string) (shipping.Shipment, error) {
	return o.one(ctx, o.exchange(opDispatch, id), http.MethodPost, "/"+url.PathEscape(id)+"/dispatch", nil, http.StatusOK)
}

// Find lists all shipments of the order's reference, oldest first. What a creation that was answered has made is in it.
func (o *Order) Find(ctx context.Context) ([]shipping.Shipment, error) {
	x := o.exchange(opFind, "")
	ctx, call := begin(ctx, &x)
	defer func() { note(ctx, call, x) }()
	answer, err := o.client.call(ctx, &x, http.MethodGet, "?reference="+url.QueryEscape(o.reference.String()), nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	var list struct {
		Shipments *[]shipment `json:"shipments"`
	}
	if err := json.Unmarshal(answer, &list); err != nil || list.Shipments == nil {
		err = o.client.fail(opFind, http.StatusOK, errors.Join(ErrUnreadable, err))
		x.Error = err.Error()
		return nil, err
	}
	found := make([]shipping.Shipment, 0, len(*list.Shipments))
	for _, s := range *list.Shipments {
		ours, err := o.ours(s)
		if err != nil {
			err = o.client.fail(opFind, http.StatusOK, err)
			x.Error = err.Error()
			return nil, err
		}
		found = append(found, ours)
	}
	return found, nil
}

// one makes a call whose answer is one shipment.
func (o *Order) one(ctx context.Context, x participant.Exchange, method, path string, body []byte, want int) (shipping.Shipment, error) {
	ctx, call := begin(ctx, &x)
	defer func() { note(ctx, call, x) }()
	answer, err := o.client.call(ctx, &x, method, path, body, want)
	if err != nil {
		return shipping.Shipment{}, err
	}
	var s shipment
	if err := json.Unmarshal(answer, &s); err != nil {
		err = o.client.fail(x.Operation, want, errors.Join(ErrUnreadable, err))
		x.Error = err.Error()
		return shipping.Shipment{}, err
	}
	ours, err := o.ours(s)
	if err != nil {
		err = o.client.fail(x.Operation, want, err)
		x.Error = err.Error()
		return shipping.Shipment{}, err
	}
	x.Reference, x.Answer = ours.ID, string(ours.Status)
	return ours, nil
}

// exchange is a request of an order, about a shipment if its id is known, as it goes on record.
func (o *Order) exchange(operation, id string) participant.Exchange {
	return participant.Exchange{Operation: operation, Key: o.reference.String(), Reference: id}
}

func begin(ctx context.Context, x *participant.Exchange) (context.Context, *telemetry.Call) {
	call := &telemetry.Call{Operation: x.Operation, Key: x.Key, Reference: x.Reference}
	return call.Begin(ctx), call
}

// note puts a request on record with the attempt that made it, and ends its span.
func note(ctx context.Context, call *telemetry.Call, x participant.Exchange) {
	x.Began, x.Took = call.Done(x.Answer, x.Reference, x.Error)
	participant.Note(ctx, x)
}

// ours refuses a shipment that is not the order's.
func (o *Order) ours(s shipment) (shipping.Shipment, error) {
	switch {
	case !plausible(s.ID):
		return shipping.Shipment{}, fmt.Errorf("%w: it has no id", ErrUnreadable)
	case s.Reference != o.reference.String() || s.OrderID != o.orderID.String():
		return shipping.Shipment{}, fmt.Errorf("%w: %s names order %q", ErrNotOurs, s.ID, safe(s.OrderID))
	}
	return shipping.Shipment{ID: s.ID, Status: shipping.Status(safe(s.Status))}, nil
}

// plausible tells whether an id can be stored and put into a path.
func plausible(id string) bool {
	for _, r := range id {
		if (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-' {
			return false
		}
	}
	return id != "" && len(id) <= 255
}

// call makes one request and gives the answer's body if its status is the one wanted. x is what goes on record of it.
func (c *Client) call(ctx context.Context, x *participant.Exchange, method, path string, body []byte, want int) (answer []byte, err error) {
	operation := x.Operation
	defer func() {
		if e, ok := errors.AsType[*Error](err); ok {
			x.Status, x.Error = e.Status, e.text
			if e.Code != "" {
				x.Error = e.Code + ": " + e.text
			}
		} else {
			x.Status = want
		}
	}()
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, c.fail(operation, 0, err)
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.fail(operation, 0, err)
	}
	defer func() { _ = resp.Body.Close() }() // it has been read to its end, or failed before
	most := maxAnswer
	if operation == opList {
		most = maxList
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	switch {
	case err != nil:
		return nil, c.fail(operation, resp.StatusCode, err)
	case len(answer) > most:
		return nil, c.fail(operation, resp.StatusCode, fmt.Errorf("%w: it is longer than %d bytes", ErrUnreadable, most))
	case resp.StatusCode == want:
		return answer, nil
	}
	return nil, c.refused(operation, resp.StatusCode, answer)
}

// refused makes the error of an answer with another status than was wanted.
func (c *Client) refused(operation string, status int, answer []byte) error {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	e := &Error{Operation: operation, Status: status}
	if json.Unmarshal(answer, &body) == nil && body.Error.Code != "" {
		e.Code, e.text = safe(body.Error.Code), safe(body.Error.Message)
	} else {
		e.text, e.cause = safe(string(answer)), ErrUnreadable
	}
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		e.cause = ErrConfiguration
	}
	return e
}

func (c *Client) fail(operation string, status int, err error) error {
	return &Error{Operation: operation, Status: status, text: safe(err.Error()), cause: err}
}
