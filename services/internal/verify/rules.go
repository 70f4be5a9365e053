package verify

import (
	"fmt"
	"strings"
	"time"
)

// Rule names what must hold. Names are stable: alerts and scripts use them.
type Rule string

// The rules; the package's page says what each means.
const (
	OneCharge                 Rule = "one-charge"
	OneParcel                 Rule = "one-parcel"
	CapturedWithinAuthorized  Rule = "captured-within-authorized"
	RefundedWithinCaptured    Rule = "refunded-within-captured"
	ConfirmedIsPaidAndShipped Rule = "confirmed-is-paid-and-shipped"
	ClosedIsUndone            Rule = "closed-is-undone"
	OwnRecordAgrees           Rule = "own-record-agrees"
	UnknownOrder              Rule = "unknown-order"
	MoneyAddsUp               Rule = "money-adds-up"
	PastDeadline              Rule = "past-deadline"
	NoTimer                   Rule = "no-timer"
	OutboxLost                Rule = "outbox-lost"
	StreamLost                Rule = "stream-lost"
	InboxMissing              Rule = "inbox-missing"
)

// Rules lists all of them.
func Rules() []Rule {
	return []Rule{
		OneCharge, OneParcel, CapturedWithinAuthorized, RefundedWithinCaptured, ConfirmedIsPaidAndShipped, ClosedIsUndone, OwnRecordAgrees,
		UnknownOrder, MoneyAddsUp, PastDeadline, NoTimer, OutboxLost, StreamLost, InboxMissing,
	}
}

// OverdueGrace is how long after its time an order that is on its way may be looked after. Deadlines are worked off at a bounded rate, so
// that after an outage many wait for some minutes.
const OverdueGrace = 5 * time.Minute

// The statuses of an order.
const (
	Pending        = "PENDING"
	Compensating   = "COMPENSATING"
	Confirmed      = "CONFIRMED"
	Failed         = "FAILED"
	Cancelled      = "CANCELLED"
	NeedsAttention = "NEEDS_ATTENTION"
)

// OnItsWay tells whether an order of that status goes on by itself.
func OnItsWay(status string) bool { return status == Pending || status == Compensating }

// Account is what the outside holds for one order, added up over all that was made for it.
type Account struct {
	// Charges counts payments that hold or took money.
	Charges int
	// Held, Captured and Refunded are in minor units of the order's currency.
	Held, Captured, Refunded int64
	// Live counts parcels that are, or may be, on their way; Lost those that the carrier has lost.
	Live, Lost int
	// Overcaptured says that a payment took more than it was about, Overrefunded that one gave back more than it took, Foreign that one
	// moved money of another currency than the order's.
	Overcaptured, Overrefunded, Foreign bool
}

// Payment is one payment at the provider, in minor units.
type Payment struct {
	Currency                         string
	Amount, Held, Captured, Refunded int64
}

// moved tells whether the payment holds or took money.
func (p *Payment) moved() bool { return p.Held != 0 || p.Captured != 0 }

// AddPayment adds a payment to the account of an order in a currency.
func (a *Account) AddPayment(currency string, p Payment) {
	a.Held += p.Held
	a.Captured += p.Captured
	a.Refunded += p.Refunded
	if p.moved() {
		a.Charges++
		a.Foreign = a.Foreign || !strings.EqualFold(currency, p.Currency)
	}
	a.Overcaptured = a.Overcaptured || p.Captured > p.Amount
	a.Overrefunded = a.Overrefunded || p.Refunded > p.Captured
}

// AddParcel adds a parcel, by the carrier's word for how far it is. One with a status that nobody planned for may be live.
func (a *Account) AddParcel(status string) {
	switch status {
	case "cancelled":
	case "lost":
		a.Lost++
	default:
		a.Live++
	}
}

// Net is what was taken and not given back.
func (a Account) Net() int64 { return a.Captured - a.Refunded }

// Empty tells whether nothing is held, kept or live.
func (a Account) Empty() bool { return a.Held == 0 && a.Net() == 0 && a.Live == 0 }

func (a Account) String() string {
	text := fmt.Sprintf("%d charges, held %d, captured %d, refunded %d, %d live shipments", a.Charges, a.Held, a.Captured, a.Refunded, a.Live)
	if a.Lost > 0 {
		text += fmt.Sprintf(", %d lost", a.Lost)
	}
	return text
}

// Finding is a broken rule.
type Finding struct {
	Rule   Rule
	Detail string
}

// Judge compares an order with what the outside holds for it. What it finds about an order that is on its way may pass; of one that needs a
// person only what no status allows is told.
func Judge(status, currency string, total int64, a Account) []Finding {
	var found []Finding
	add := func(rule Rule, detail string) { found = append(found, Finding{rule, detail + ": " + a.String()}) }
	if a.Charges > 1 {
		add(OneCharge, "charged more than once")
	}
	if a.Live > 1 {
		add(OneParcel, "shipped more than once")
	}
	if a.Overcaptured {
		add(CapturedWithinAuthorized, "a payment took more than was authorized")
	}
	if a.Overrefunded {
		add(RefundedWithinCaptured, "a payment gave back more than was captured")
	}
	switch status {
	case Confirmed:
		// A parcel that the carrier has lost was sent; that is between people.
		sent := a.Live == 1 || a.Live == 0 && a.Lost > 0
		if a.Net() != total || a.Held != 0 || a.Foreign || !sent {
			add(ConfirmedIsPaidAndShipped, fmt.Sprintf("CONFIRMED for %d %s", total, currency))
		}
	case Failed, Cancelled:
		if !a.Empty() {
			add(ClosedIsUndone, status+", but not everything is undone")
		}
	}
	return found
}
