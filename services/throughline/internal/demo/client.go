package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/throughline/throughline/services/throughline/verify"
)

// shop is one client of the gateway.
type shop struct {
	id, key string
	url     string
}

// answer is what the gateway said.
type answer struct {
	status   int
	replayed bool
	body     []byte
	order    struct {
		verify.Order
		FailureReason string `json:"failure_reason"`
	}
	problem struct {
		Type   string `json:"type"`
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	}
}

func (a *answer) String() string {
	switch {
	case a.status >= http.StatusBadRequest:
		return fmt.Sprintf("%d %s", a.status, a.problem.Reason)
	case a.replayed:
		return fmt.Sprintf("%d %s, Idempotency-Replayed: true", a.status, a.order.Status)
	default:
		return fmt.Sprintf("%d %s", a.status, a.order.Status)
	}
}

// basket is an order of this many books, paid and shipped in a given way.
func basket(quantity int, paymentMethod, postalCode string) string {
	return fmt.Sprintf(`{"currency":"EUR","lines":[{"sku":"BOOK-1","quantity":%d,"unit_price":1250}],`+
		`"ship_to":{"name":"A. Buyer","line1":"1 High St","city":"Berlin","postal_code":%q,"country":"DE"},`+
		`"payment_method":%q,"note":"","metadata":{}}`, quantity, postalCode, paymentMethod)
}

func (c *shop) place(ctx context.Context, key, body string) (*answer, error) {
	return c.call(ctx, http.DefaultClient, http.MethodPost, "/v1/orders", key, body)
}

func (c *shop) get(ctx context.Context, id string) (*answer, error) {
	return c.call(ctx, http.DefaultClient, http.MethodGet, "/v1/orders/"+id, "", "")
}

func (c *shop) cancel(ctx context.Context, id, key string) (*answer, error) {
	return c.call(ctx, http.DefaultClient, http.MethodPost, "/v1/orders/"+id+"/cancel", key, `{"reason":"changed my mind"}`)
}

// placeAndLose sends an order over a connection that is cut as soon as the first byte of the answer is there.
func (c *shop) placeAndLose(ctx context.Context, key, body string) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return deaf{conn}, nil
		},
	}}
	_, err := c.call(ctx, client, http.MethodPost, "/v1/orders", key, body)
	if err == nil {
		return errors.New("the answer came, though its connection was to be cut")
	}
	if !errors.Is(err, errCut) {
		return err
	}
	return nil
}

var errCut = errors.New("the connection was cut before the answer came")

// deaf is a connection that breaks when the answer arrives.
type deaf struct{ net.Conn }

func (d deaf) Read(b []byte) (int, error) {
	if _, err := d.Conn.Read(b); err != nil {
		return 0, err
	}
	_ = d.Conn.Close()
	return 0, errCut
}

func (c *shop) call(ctx context.Context, client *http.Client, method, path, key, body string) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // a repeat is this program's decision, never the transport's
	req.Header.Set("Authorization", "Bearer "+c.key)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, replayed: resp.Header.Get("Idempotency-Replayed") == "true"}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	into := any(&a.order)
	if a.status >= http.StatusBadRequest {
		into = &a.problem
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return nil, fmt.Errorf("reading the answer %d %q: %w", a.status, a.body, err)
	}
	return a, nil
}

// settled waits until an order has come to rest.
func (c *shop) settled(ctx context.Context, id string) (*answer, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := c.get(ctx, id)
		if err != nil {
			return nil, err
		}
		if a.status != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %s", id, a)
		}
		if a.order.Status != verify.Pending && a.order.Status != verify.Compensating {
			return a, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("order %s is still %s: %w", id, a.order.Status, ctx.Err())
		case <-tick.C:
		}
	}
}

// all lists the client's orders.
func (c *shop) all(ctx context.Context) ([]verify.Order, error) {
	var orders []verify.Order
	token := ""
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/v1/orders?page_size=100&page_token="+token, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+c.key)
		var page struct {
			Orders        []verify.Order `json:"orders"`
			NextPageToken string         `json:"next_page_token"`
		}
		if err := readJSON(req, &page); err != nil {
			return nil, fmt.Errorf("listing the orders of %s: %w", c.id, err)
		}
		orders = append(orders, page.Orders...)
		if token = page.NextPageToken; token == "" {
			return orders, nil
		}
	}
}

func readJSON(req *http.Request, into any) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %d", resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
