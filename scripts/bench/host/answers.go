package host

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// The answers of a provider and a carrier with whom nothing goes wrong, given where the network would begin. What they answer
// has the form of the simulators' answers, so that reading it costs the services the same.

// intent is what the provider has to remember of a payment.
type intent struct {
	orderID, stepKey, currency string
	amount                     string
}

// provider answers as the payment provider does.
type provider struct {
	last    atomic.Int64
	intents sync.Map // from id to intent
}

// RoundTrip implements http.RoundTripper.
func (p *provider) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := drain(req)
	if err != nil {
		return nil, err
	}
	const prefix = "/v1/payment_intents"
	rest, ok := strings.CutPrefix(req.URL.Path, prefix)
	if !ok || req.Method != http.MethodPost {
		return unplanned(req), nil
	}
	if rest == "" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		in := intent{form.Get("metadata[order_id]"), form.Get("metadata[step_key]"), form.Get("currency"), form.Get("amount")}
		id := fmt.Sprintf("pi_%024d", p.last.Add(1))
		p.intents.Store(id, in)
		return ok200(req, in.render(id, "requires_confirmation")), nil
	}
	id, action, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	known, there := p.intents.Load(id)
	if !there {
		return unplanned(req), nil
	}
	in, _ := known.(intent)
	switch action {
	case "confirm":
		return ok200(req, in.render(id, "requires_capture")), nil
	case "capture":
		p.intents.Delete(id)
		return ok200(req, in.render(id, "succeeded")), nil
	default:
		return unplanned(req), nil
	}
}

// render writes an intent in a status.
func (in *intent) render(id, status string) []byte {
	held, captured, charge := "0", "0", "null"
	switch status {
	case "requires_capture":
		held = in.amount
	case "succeeded":
		captured = in.amount
	}
	if status != "requires_confirmation" {
		charge = fmt.Sprintf(`{"id":"ch_%s","object":"charge","amount":%s,"amount_captured":%s,"amount_refunded":0,"captured":%t,`+
			`"created":1700000000,"currency":%q,"failure_code":null,"failure_message":null,"livemode":false,`+
			`"metadata":{"order_id":%q,"step_key":%q},"paid":true,"payment_intent":%q,"payment_method":"pm_card_visa","refunded":false,`+
			`"status":"succeeded"}`, id[3:], in.amount, captured, status == "succeeded", in.currency, in.orderID, in.stepKey, id)
	}
	return fmt.Appendf(nil, `{"id":%q,"object":"payment_intent","amount":%s,"amount_capturable":%s,"amount_received":%s,"canceled_at":null,`+
		`"cancellation_reason":null,"capture_method":"manual","client_secret":"%s_secret","confirmation_method":"automatic",`+
		`"created":1700000000,"currency":%q,"customer":null,"description":null,"last_payment_error":null,"latest_charge":%s,`+
		`"livemode":false,"metadata":{"order_id":%q,"step_key":%q},"next_action":null,"payment_method":"pm_card_visa",`+
		`"payment_method_types":["card"],"processing":null,"status":%q}`,
		id, in.amount, held, captured, id, in.currency, charge, in.orderID, in.stepKey, status)
}

// carrier answers as the carrier does.
type carrier struct {
	last      atomic.Int64
	shipments sync.Map // from id to the request, as JSON members
}

// RoundTrip implements http.RoundTripper.
func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := drain(req)
	if err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(req.URL.Path, "/v1/shipments")
	if !ok || req.Method != http.MethodPost {
		return unplanned(req), nil
	}
	if rest == "" {
		if !json.Valid(body) {
			return unplanned(req), nil
		}
		members := bytes.TrimPrefix(bytes.TrimSpace(body), []byte("{"))
		id := fmt.Sprintf("shp_%024d", c.last.Add(1))
		c.shipments.Store(id, members)
		return respond(req, http.StatusCreated, shipment(id, "created", members)), nil
	}
	id, dispatch := strings.CutSuffix(strings.TrimPrefix(rest, "/"), "/dispatch")
	known, there := c.shipments.LoadAndDelete(id)
	if !there || !dispatch {
		return unplanned(req), nil
	}
	members, _ := known.([]byte)
	return ok200(req, shipment(id, "dispatched", members)), nil
}

func shipment(id, status string, members []byte) []byte {
	b := fmt.Appendf(nil, `{"id":%q,"status":%q,"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z",`, id, status)
	return append(b, members...)
}

// drain reads a request's body, as a round tripper must.
func drain(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	return body, req.Body.Close()
}

func ok200(req *http.Request, body []byte) *http.Response { return respond(req, http.StatusOK, body) }

// unplanned answers what no good day has. The order then fails, and with it the measurement.
func unplanned(req *http.Request) *http.Response {
	return respond(req, http.StatusNotImplemented, []byte(`{"error":{"type":"api_error","code":"internal","message":"not planned"}}`))
}

func respond(req *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_bench"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}
}
