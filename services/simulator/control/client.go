package control

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
)

// A Client talks to one simulator's control interface. Its methods return
// *Error for an answer of 400 and above. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
}

// New returns a client for the simulator at baseURL, such as
// http://127.0.0.1:8090.
func New(baseURL string) *Client {
	return &Client{
		base: strings.TrimSuffix(baseURL, "/") + "/_control",
		http: &http.Client{Timeout: 30 * time.Second},
	}
}

// Error is the control interface's refusal.
type Error struct {
	Status  int
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("simulator control: %d: %s", e.Status, e.Message) }

// PaymentLedger reads the payment simulator's ledger, of one order or, with
// "", of all.
func (c *Client) PaymentLedger(ctx context.Context, orderID string) (PaymentLedger, error) {
	var l PaymentLedger
	return l, c.ledger(ctx, orderID, &l)
}

// CarrierLedger reads the carrier simulator's ledger, of one order or, with
// "", of all.
func (c *Client) CarrierLedger(ctx context.Context, orderID string) (CarrierLedger, error) {
	var l CarrierLedger
	return l, c.ledger(ctx, orderID, &l)
}

func (c *Client) ledger(ctx context.Context, orderID string, into any) error {
	path := "/ledger"
	if orderID != "" {
		path += "?order_id=" + url.QueryEscape(orderID)
	}
	return c.call(ctx, http.MethodGet, path, nil, into)
}

// AddFault adds a rule and returns its id.
func (c *Client) AddFault(ctx context.Context, f Fault) (string, error) {
	var got struct {
		ID string `json:"id"`
	}
	err := c.call(ctx, http.MethodPost, "/faults", f, &got)
	return got.ID, err
}

// Faults lists the rules, oldest first.
func (c *Client) Faults(ctx context.Context) ([]FaultState, error) {
	var got struct {
		Faults []FaultState `json:"faults"`
	}
	err := c.call(ctx, http.MethodGet, "/faults", nil, &got)
	return got.Faults, err
}

// RemoveFault removes one rule and releases the calls it holds.
func (c *Client) RemoveFault(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/faults/"+url.PathEscape(id), nil, nil)
}

// ClearFaults removes all rules and releases all held calls.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.call(ctx, http.MethodDelete, "/faults", nil, nil)
}

// Release lets the calls that a hold rule holds go on and ends the rule; with
// "" all hold rules. It returns how many calls were waiting.
func (c *Client) Release(ctx context.Context, id string) (int, error) {
	var got struct {
		Released int `json:"released"`
	}
	err := c.call(ctx, http.MethodPost, "/release", map[string]string{"id": id}, &got)
	return got.Released, err
}

// Reset forgets the ledger, the keys, the calls and the rules.
func (c *Client) Reset(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/reset", nil, nil)
}

// Act does what a person does at the other side's own site, and returns the
// ids of the objects that it changed.
func (c *Client) Act(ctx context.Context, orderID, do string) ([]string, error) {
	var got struct {
		Acted []string `json:"acted"`
	}
	err := c.call(ctx, http.MethodPost, "/act", ActRequest{OrderID: orderID, Do: do}, &got)
	return got.Acted, err
}

// Webhook sends, repeats, delays or forges a webhook and returns the event's
// id. It does not wait for the delivery.
func (c *Client) Webhook(ctx context.Context, r WebhookRequest) (string, error) {
	var got struct {
		ID string `json:"id"`
	}
	err := c.call(ctx, http.MethodPost, "/webhooks", r, &got)
	return got.ID, err
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) (err error) {
	body := io.Reader(http.NoBody)
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding control request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("building control request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("calling simulator control: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode >= http.StatusBadRequest {
		var e struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if json.NewDecoder(resp.Body).Decode(&e) != nil {
			e.Error.Message = http.StatusText(resp.StatusCode)
		}
		return &Error{Status: resp.StatusCode, Message: e.Error.Message}
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading control answer: %w", err)
	}
	return nil
}
