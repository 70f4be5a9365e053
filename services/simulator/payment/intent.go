package payment

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Statuses of an intent.
const (
	requiresPaymentMethod = "requires_payment_method"
	requiresConfirmation  = "requires_confirmation"
	requiresAction        = "requires_action"
	requiresCapture       = "requires_capture"
	succeeded             = "succeeded"
	canceled              = "canceled"
)

// intent is a payment intent with its latest charge. It is changed by its
// methods only, under the store's lock; Metadata is never changed.
type intent struct {
	ID           string            `json:"id"`
	ClientSecret string            `json:"client_secret"`
	OrderID      string            `json:"order_id,omitempty"` // metadata[order_id]
	Metadata     map[string]string `json:"metadata,omitempty"`
	Description  string            `json:"description,omitempty"`
	CreatedAt    time.Time         `json:"created_at"`

	Status             string    `json:"status"`
	Currency           string    `json:"currency"`
	Amount             int64     `json:"amount"`
	Capturable         int64     `json:"capturable,omitempty"`
	Captured           int64     `json:"captured,omitempty"`
	Refunded           int64     `json:"refunded,omitempty"` // of Captured
	CaptureMethod      string    `json:"capture_method"`
	ConfirmationMethod string    `json:"confirmation_method"`
	PaymentMethod      string    `json:"payment_method,omitempty"`
	MethodTypes        []string  `json:"method_types,omitempty"`
	CanceledAt         time.Time `json:"canceled_at,omitzero"`
	CancellationReason string    `json:"cancellation_reason,omitempty"`

	Charge    *charge   `json:"charge,omitempty"`
	LastError *apiError `json:"last_error,omitempty"`

	ReturnURL       string `json:"return_url,omitempty"`
	AuthenticateURL string `json:"authenticate_url,omitempty"` // while requires_action
}

// charge is one attempt to charge.
type charge struct {
	ID            string    `json:"id"`
	CreatedAt     time.Time `json:"created_at"`
	PaymentMethod string    `json:"payment_method"`
	FailureCode   string    `json:"failure_code,omitempty"`
	FailureText   string    `json:"failure_text,omitempty"`
	Released      bool      `json:"released,omitempty"` // voided before capture
}

// refund is a refund; Ends is the status it is still to get, if any.
type refund struct {
	ID        string            `json:"id"`
	IntentID  string            `json:"intent_id"`
	ChargeID  string            `json:"charge_id"`
	OrderID   string            `json:"order_id,omitempty"`
	CreatedAt time.Time         `json:"created_at"`
	Status    string            `json:"status"`
	Ends      string            `json:"ends,omitempty"`
	Currency  string            `json:"currency"`
	Amount    int64             `json:"amount"`
	Reason    string            `json:"reason,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// newID returns an id as the provider's look: a prefix and 24 random characters.
func newID(prefix string) string { return prefix + rand.Text()[:24] }

// confirmation is what a confirm may bring along.
type confirmation struct {
	paymentMethod string
	returnURL     string
	baseURL       string
	noAction      bool // off_session or error_on_requires_action
}

// confirm authorizes or charges. An error of status 402 has changed the intent.
func (in *intent) confirm(c confirmation, now time.Time) *apiError {
	switch in.Status {
	case requiresPaymentMethod, requiresConfirmation, requiresAction:
	case succeeded:
		return unexpectedState(in, "You cannot confirm this PaymentIntent because it has already succeeded after being previously confirmed.")
	default:
		return unexpectedState(in, stateMessage("You cannot confirm this PaymentIntent because it has", in, "confirmed",
			requiresConfirmation, requiresAction))
	}
	pm := c.paymentMethod
	if pm == "" {
		pm = in.PaymentMethod
	}
	if pm == "" {
		return unexpectedState(in, "You cannot confirm this PaymentIntent because it's missing a payment method. "+
			"You can either update the PaymentIntent with a payment method and then confirm it again, or confirm it again directly with a payment method.")
	}
	m, ok := lookupMethod(pm)
	if !ok {
		return noSuch(400, "PaymentMethod", pm, "payment_method")
	}
	in.PaymentMethod, in.LastError, in.AuthenticateURL = pm, nil, ""
	if c.returnURL != "" {
		in.ReturnURL = c.returnURL
	}
	switch {
	case m.authenticate && c.noAction:
		return in.decline(authenticationNeeded, now)
	case m.authenticate:
		in.Status = requiresAction
		in.AuthenticateURL = c.baseURL + "/authenticate/" + in.ID + "?client_secret=" + in.ClientSecret
		return nil
	}
	return in.charge(m, now)
}

// charge asks the issuer.
func (in *intent) charge(m method, now time.Time) *apiError {
	in.AuthenticateURL = ""
	if m.decline != nil {
		return in.decline(m.decline, now)
	}
	in.Charge = &charge{ID: newID("ch_"), CreatedAt: now, PaymentMethod: in.PaymentMethod}
	if in.CaptureMethod == "manual" {
		in.Status, in.Capturable = requiresCapture, in.Amount
		return nil
	}
	in.Status, in.Captured = succeeded, in.Amount
	return nil
}

// decline records the issuer's no and returns it.
func (in *intent) decline(d *decline, now time.Time) *apiError {
	pm := in.PaymentMethod
	in.Charge = &charge{ID: newID("ch_"), CreatedAt: now, PaymentMethod: pm, FailureCode: d.code, FailureText: d.message}
	in.Status, in.PaymentMethod, in.AuthenticateURL = requiresPaymentMethod, "", ""
	in.LastError = declined(in, d, pm)
	e := declined(in, d, pm)
	e.PaymentIntent = in.render(false)
	return e
}

// authenticate ends requires_action, one way or the other.
func (in *intent) authenticate(passed bool, now time.Time) {
	if !passed {
		in.decline(authenticationFailed, now)
		return
	}
	m, _ := lookupMethod(in.PaymentMethod) // it was known when it was set
	in.charge(m, now)
}

// capture takes amount of what is held and releases the rest; 0 means all.
func (in *intent) capture(amount int64) *apiError {
	if in.Status != requiresCapture {
		return unexpectedState(in, stateMessage("This PaymentIntent could not be captured because it has", in, "captured", requiresCapture))
	}
	if amount == 0 {
		amount = in.Capturable
	}
	if amount > in.Capturable {
		return invalidParam("amount_to_capture", "amount_too_large",
			fmt.Sprintf("The requested capture amount is greater than the amount you can capture (%d) for this charge.", in.Capturable))
	}
	if m, _ := lookupMethod(in.PaymentMethod); m.captureDecline != nil {
		e := declined(in, m.captureDecline, in.PaymentMethod)
		e.PaymentIntent = in.render(false)
		return e
	}
	in.Status, in.Captured, in.Capturable = succeeded, amount, 0
	return nil
}

// cancelable statuses, in the provider's order.
var cancelable = []string{requiresPaymentMethod, requiresCapture, requiresConfirmation, requiresAction}

// cancel ends the intent and releases what is held.
func (in *intent) cancel(reason string, now time.Time) *apiError {
	if !slices.Contains(cancelable, in.Status) {
		return unexpectedState(in, stateMessage("You cannot cancel this PaymentIntent because it has", in, "canceled", cancelable...))
	}
	if in.Charge != nil && in.Capturable > 0 {
		released := *in.Charge
		released.Released = true
		in.Charge = &released
	}
	in.Status, in.CancellationReason, in.CanceledAt = canceled, reason, now
	in.Capturable, in.AuthenticateURL = 0, ""
	return nil
}

// stateMessage is the provider's wording of a refusal because of the status.
func stateMessage(start string, in *intent, verb string, allowed ...string) string {
	return fmt.Sprintf("%s a status of %s. Only a PaymentIntent with one of the following statuses may be %s: %s.",
		start, in.Status, verb, strings.Join(allowed, ", "))
}

// refund gives back amount of what was captured; 0 means all that is left.
func (in *intent) refund(amount int64, reason string, metadata map[string]string, now time.Time) (*refund, *apiError) {
	if in.Captured == 0 {
		return nil, invalidParam("", "", fmt.Sprintf("This PaymentIntent (%s) does not have a successful charge to refund.", in.ID))
	}
	left := in.Captured - in.Refunded
	if left == 0 {
		return nil, invalidParam("", "charge_already_refunded", fmt.Sprintf("Charge %s has already been refunded.", in.Charge.ID))
	}
	if amount == 0 {
		amount = left
	}
	if amount > left {
		return nil, invalidParam("amount", "",
			fmt.Sprintf("Refund amount (%d) is greater than unrefunded amount on charge (%d)", amount, left))
	}
	m, _ := lookupMethod(in.Charge.PaymentMethod)
	begins := m.refundBegins
	if begins == "" {
		begins = succeeded
	}
	in.Refunded += amount
	return &refund{
		ID: newID("re_"), IntentID: in.ID, ChargeID: in.Charge.ID, OrderID: in.OrderID, CreatedAt: now,
		Status: begins, Ends: m.refundEnds, Currency: in.Currency, Amount: amount, Reason: reason, Metadata: metadata,
	}, nil
}
