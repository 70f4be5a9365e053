package payment

import (
	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/money"
)

// Charge is the money that an order is to pay, and how.
type Charge struct {
	OrderID uuid.UUID
	// StepKey is that of authorize_payment, which makes the intent.
	StepKey uuid.UUID
	Amount  money.Money
	// Method is the provider's name for how the client pays.
	Method string
}

// Status is how far an intent is, in the provider's words.
type Status string

// The statuses that the steps know. Anything else is never read as a yes or a no.
const (
	RequiresPaymentMethod Status = "requires_payment_method"
	RequiresConfirmation  Status = "requires_confirmation"
	RequiresAction        Status = "requires_action"
	Processing            Status = "processing"
	RequiresCapture       Status = "requires_capture"
	Succeeded             Status = "succeeded"
	Canceled              Status = "canceled"
)

// Cancellation is why an intent was cancelled.
type Cancellation string

// The reasons that the steps tell apart.
const (
	// Abandoned is ours: the customer did not authenticate in time.
	Abandoned Cancellation = "abandoned"
	// RequestedByCustomer is ours: the order is being undone. A person at the provider's site may give it too.
	RequestedByCustomer Cancellation = "requested_by_customer"
	// Automatic and Expired are the provider's: a hold ends after some days.
	Automatic Cancellation = "automatic"
	Expired   Cancellation = "expired"
)

// Intent is a payment as the provider has it. Amounts are in minor units of the charge's currency.
type Intent struct {
	ID     string
	Status Status
	// Amount is what the intent is about; Held, Captured and Refunded what has become of it.
	Amount, Held, Captured, Refunded int64
	// Decline says why the last confirmation failed, as a stable word; empty if none has.
	Decline      string
	Cancellation Cancellation
	// Action is what the customer has to do, while Status is RequiresAction.
	Action Action
	// Replayed says that the provider repeated an answer from earlier: the intent may have moved since.
	Replayed bool
}

// Action is something that only the customer can do.
type Action struct {
	// Type is the provider's word for it, such as "redirect_to_url".
	Type string
	// URL is where to send the customer; empty if Type is nothing that a link does.
	URL string
}

// moved tells whether a confirmation of the intent has had an effect.
func (in *Intent) moved() bool {
	switch in.Status {
	case RequiresConfirmation, Canceled:
		return false
	case RequiresPaymentMethod:
		return in.Decline != ""
	default:
		return true
	}
}

// Moved picks, of several intents of one order, the one that has been confirmed. Where there is none, no intent is better
// than another, and ok is false.
func Moved(found []Intent) (in Intent, ok bool) {
	for _, candidate := range found {
		if !candidate.moved() {
			continue
		}
		if !ok || candidate.Held+candidate.Captured > in.Held+in.Captured {
			in, ok = candidate, true
		}
	}
	return in, ok
}

// RefundStatus is how far a refund is, in the provider's words.
type RefundStatus string

// The statuses of a refund. Only a succeeded one has given money back.
const (
	RefundPending        RefundStatus = "pending"
	RefundRequiresAction RefundStatus = "requires_action"
	RefundSucceeded      RefundStatus = "succeeded"
	RefundFailed         RefundStatus = "failed"
	RefundCanceled       RefundStatus = "canceled"
)

// Refund is money on its way back.
type Refund struct {
	ID     string
	Status RefundStatus
	// Amount is in minor units of the charge's currency.
	Amount int64
	// Replayed is as in [Intent].
	Replayed bool
}

// Returned sums up refunds: what has been given back, and what is on its way. A refund with a status that nobody planned for
// counts as on its way, so that it is neither done nor repeated.
func Returned(refunds []Refund) (done, pending int64) {
	for _, r := range refunds {
		switch r.Status {
		case RefundSucceeded:
			done += r.Amount
		case RefundFailed, RefundCanceled:
		default:
			pending += r.Amount
		}
	}
	return done, pending
}
