package provider

import (
	"bytes"
	"encoding/json"

	"github.com/stripe/stripe-go/v82"
)

// lean reads of an intent only what this package uses. The SDK's own reading goes over an answer three times and fills some
// hundred fields, and was the largest single part of what the services spend on an order.
type lean struct{ stripe.Backend }

// Call implements stripe.Backend.
func (b lean) Call(method, path, key string, params stripe.ParamsContainer, v stripe.LastResponseSetter) error {
	pi, ok := v.(*stripe.PaymentIntent)
	if !ok {
		return b.Backend.Call(method, path, key, params, v)
	}
	var a answer
	if err := b.Backend.Call(method, path, key, params, &a); err != nil {
		return err
	}
	a.fill(pi)
	return nil
}

// answer is an intent as the provider sends it, as far as this package looks at it. What it lacks must not be asked of the
// intent that it fills.
type answer struct {
	stripe.APIResource `json:"-"`

	ID                 string                                 `json:"id"`
	Status             stripe.PaymentIntentStatus             `json:"status"`
	Amount             int64                                  `json:"amount"`
	AmountCapturable   int64                                  `json:"amount_capturable"`
	AmountReceived     int64                                  `json:"amount_received"`
	Currency           stripe.Currency                        `json:"currency"`
	Metadata           map[string]string                      `json:"metadata"`
	Created            int64                                  `json:"created"` // for what is listed only
	CancellationReason stripe.PaymentIntentCancellationReason `json:"cancellation_reason"`
	NextAction         *stripe.PaymentIntentNextAction        `json:"next_action"`
	LastPaymentError   *struct {
		Code        stripe.ErrorCode   `json:"code"`
		DeclineCode stripe.DeclineCode `json:"decline_code"`
	} `json:"last_payment_error"`
	LatestCharge *refunded `json:"latest_charge"`
}

// refunded is a charge, as far as this package looks at it. One that is not expanded is its id.
type refunded struct {
	Amount int64 `json:"amount_refunded"`
}

// UnmarshalJSON reads a charge.
func (r *refunded) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte{'"'}) {
		return nil
	}
	type plain refunded
	return json.Unmarshal(data, (*plain)(r))
}

func (a *answer) fill(pi *stripe.PaymentIntent) {
	pi.APIResource = a.APIResource
	pi.ID, pi.Status, pi.Amount, pi.Currency, pi.Metadata = a.ID, a.Status, a.Amount, a.Currency, a.Metadata
	pi.AmountCapturable, pi.AmountReceived = a.AmountCapturable, a.AmountReceived
	pi.CancellationReason, pi.NextAction = a.CancellationReason, a.NextAction
	if e := a.LastPaymentError; e != nil {
		pi.LastPaymentError = &stripe.Error{Code: e.Code, DeclineCode: e.DeclineCode}
	}
	if a.LatestCharge != nil {
		pi.LatestCharge = &stripe.Charge{AmountRefunded: a.LatestCharge.Amount}
	}
}
