package payment

// State is how far the payment of an order is, as the service's own row tells it.
type State string

// The states of a payment.
const (
	Pending    State = "pending"
	Authorized State = "authorized"
	Captured   State = "captured"
	Voided     State = "voided"
	Declined   State = "declined"
)

// Update is what becomes of a payment's row. Empty and nil members leave what is there; all others are set, whatever
// was there: what comes from outside is never added up.
type Update struct {
	State    State
	IntentID string
	Currency string
	// Amounts are in minor units of Currency.
	Amount, Captured, Refunded *int64
	// Reason is why a step was refused.
	Reason string
}

// Merge puts a later update over u.
func (u *Update) Merge(later Update) {
	set(&u.State, later.State)
	set(&u.IntentID, later.IntentID)
	set(&u.Currency, later.Currency)
	set(&u.Amount, later.Amount)
	set(&u.Captured, later.Captured)
	set(&u.Refunded, later.Refunded)
	set(&u.Reason, later.Reason)
}

func set[T comparable](field *T, value T) {
	var zero T
	if value != zero {
		*field = value
	}
}
