package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Actions of a Fault.
const (
	Delay      = "delay"
	Hold       = "hold"
	DropAfter  = "drop_after"
	FailBefore = "fail_before"
	FailAfter  = "fail_after"
	AnswerWith = "answer"
	NoDedup    = "no_dedup"
)

// Values of Fault.Effect: when the effect of a delayed or held call happens,
// relative to the wait's end.
const (
	EffectBefore = "before"
	EffectAfter  = "after" // the default
)

// AnyOperation matches every operation.
const AnyOperation = "*"

// A Fault is one rule. Only Operation and Action must be set.
type Fault struct {
	ID          string `json:"id,omitempty"` // given by the simulator
	Operation   string `json:"operation"`
	OrderID     string `json:"order_id,omitempty"`
	Nth         int    `json:"nth,omitempty"`
	Times       int    `json:"times,omitempty"`
	Action      string `json:"action"`
	DelayMS     int    `json:"delay_ms,omitempty"`
	Status      int    `json:"status,omitempty"`
	Body        Body   `json:"body,omitempty"`
	ContentType string `json:"content_type,omitempty"` // default application/json
	Effect      string `json:"effect,omitempty"`
	// Stored says whether a given answer is kept under the call's idempotency
	// key; see the package's page for the default.
	Stored *bool `json:"stored,omitempty"`
}

// Body is an answer's body. On the wire it may be a string, or any other JSON
// value, which stands for its own text.
type Body string

// UnmarshalJSON implements json.Unmarshaler.
func (b *Body) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return fmt.Errorf("reading body: %w", err)
		}
		*b = Body(s)
		return nil
	}
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	*b = Body(data)
	return nil
}

// FaultState is a rule and how often it was met.
type FaultState struct {
	Fault
	Matched int `json:"matched"` // calls that fit operation and order
	Fired   int `json:"fired"`   // calls that it was applied to
	Held    int `json:"held"`    // calls that wait in it now
}

// Call is one request as the simulator saw it.
type Call struct {
	At             time.Time `json:"at"`
	Operation      string    `json:"operation"`
	IdempotencyKey string    `json:"idempotency_key"`
	OrderID        string    `json:"order_id"`
	Status         int       `json:"status"`
	Replayed       bool      `json:"replayed"`
	Effect         bool      `json:"effect"`
	Dropped        bool      `json:"dropped,omitempty"`
	Fault          string    `json:"fault,omitempty"` // the action that was applied
	// Baggage tells that a header of that name came with it. It is nobody else's business, so there should be none.
	Baggage bool `json:"baggage,omitempty"`
}

// Intent is a payment intent as the ledger shows it. Amounts are in the
// provider's minor units, currencies in lower case, both as they were sent.
type Intent struct {
	ID               string    `json:"id"`
	OrderID          string    `json:"order_id"`
	Status           string    `json:"status"`
	Currency         string    `json:"currency"`
	Amount           int64     `json:"amount"`
	AmountCapturable int64     `json:"amount_capturable"` // held, not captured
	AmountCaptured   int64     `json:"amount_captured"`
	AmountRefunded   int64     `json:"amount_refunded"` // of what was captured
	PaymentMethod    string    `json:"payment_method"`
	CreatedAt        time.Time `json:"created_at"`
}

// Refund is a refund as the ledger shows it.
type Refund struct {
	ID        string    `json:"id"`
	IntentID  string    `json:"payment_intent"`
	OrderID   string    `json:"order_id"`
	Status    string    `json:"status"`
	Currency  string    `json:"currency"`
	Amount    int64     `json:"amount"`
	CreatedAt time.Time `json:"created_at"`
}

// PaymentLedger is the payment simulator's ledger, oldest first.
type PaymentLedger struct {
	Intents      []Intent `json:"intents"`
	Refunds      []Refund `json:"refunds"`
	Calls        []Call   `json:"calls"`
	CallsDropped int      `json:"calls_dropped"`
}

// Shipment is a shipment as the ledger shows it.
type Shipment struct {
	ID        string    `json:"id"`
	Reference string    `json:"reference"`
	OrderID   string    `json:"order_id"`
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"created_at"`
}

// CarrierLedger is the carrier simulator's ledger, oldest first.
type CarrierLedger struct {
	Shipments    []Shipment `json:"shipments"`
	Calls        []Call     `json:"calls"`
	CallsDropped int        `json:"calls_dropped"`
}

// ActRequest is what a person does at the provider's or carrier's own site, to
// whatever the order has there. Payment: void (release what is held), refund
// (all that is captured), expire (the authorization ran out), confirm (the
// customer completes the authentication), refuse (the customer fails it),
// cancel (any intent that can be). Carrier: cancel, lose.
type ActRequest struct {
	OrderID string `json:"order_id"`
	Do      string `json:"do"`
}

// WebhookRequest asks for a webhook about an order's newest object. An event
// that was sent before is repeated, with its id and bytes; otherwise one is made from the
// object as it is now.
type WebhookRequest struct {
	Event        string `json:"event"`
	OrderID      string `json:"order_id"`
	Times        int    `json:"times,omitempty"`    // copies; default 1
	DelayMS      int    `json:"delay_ms,omitempty"` // before the first copy
	BadSignature bool   `json:"bad_signature,omitempty"`
}
