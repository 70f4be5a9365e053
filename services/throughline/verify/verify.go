// Package verify checks that orders, money and parcels agree: the rules that hold in every case, whatever failed on the way.
package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/throughline/throughline/services/simulator/control"
)

// Order is an order as its client sees it.
type Order struct {
	ID       string `json:"order_id"`
	Status   string `json:"status"`
	Currency string `json:"currency"`
	Total    int64  `json:"total"`
}

// The statuses of an order.
const (
	Pending        = "PENDING"
	Compensating   = "COMPENSATING"
	Confirmed      = "CONFIRMED"
	Failed         = "FAILED"
	Cancelled      = "CANCELLED"
	NeedsAttention = "NEEDS_ATTENTION"
)

// Violation is a broken rule.
type Violation struct {
	OrderID string
	// Rule is G1, G2 or G3.
	Rule   string
	Detail string
}

func (v Violation) String() string { return fmt.Sprintf("%s %s: %s", v.Rule, v.OrderID, v.Detail) }

// Account is what the outside world holds for one order.
type Account struct {
	// Charges counts payments that hold or took money.
	Charges int
	// Held, Captured and Refunded are in the provider's minor units.
	Held, Captured, Refunded int64
	// Live counts shipments that are not cancelled.
	Live int
}

// Net is what was taken and not given back.
func (a Account) Net() int64 { return a.Captured - a.Refunded }

// Accounts adds both ledgers up, by order id.
func Accounts(payments control.PaymentLedger, shipments control.CarrierLedger) map[string]Account {
	accounts := make(map[string]Account)
	for _, in := range payments.Intents {
		a := accounts[in.OrderID]
		a.Held += in.AmountCapturable
		a.Captured += in.AmountCaptured
		a.Refunded += in.AmountRefunded
		if in.AmountCapturable > 0 || in.AmountCaptured > 0 {
			a.Charges++
		}
		accounts[in.OrderID] = a
	}
	for _, s := range shipments.Shipments {
		a := accounts[s.OrderID]
		if s.Status == "created" || s.Status == "dispatched" {
			a.Live++
		}
		accounts[s.OrderID] = a
	}
	return accounts
}

// Settled checks orders that have come to rest:
//
//   - G1: at most one charge and one live shipment per order.
//   - G2: CONFIRMED if and only if the total is captured and one shipment is live; closed otherwise means that nothing is
//     held, captured or live.
//   - G3: no order is still on its way.
//
// Money and parcels of orders that nobody lists are violations, too.
func Settled(orders []Order, payments control.PaymentLedger, shipments control.CarrierLedger) []Violation {
	accounts := Accounts(payments, shipments)
	var found []Violation
	listed := make(map[string]bool, len(orders))
	for _, o := range orders {
		listed[o.ID] = true
		found = append(found, check(o, accounts[o.ID])...)
	}
	for id, a := range accounts {
		if !listed[id] && (a.Held != 0 || a.Net() != 0 || a.Live != 0) {
			found = append(found, Violation{id, "G2", fmt.Sprintf("no such order, yet %s", a)})
		}
	}
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.OrderID, b.OrderID), cmp.Compare(a.Rule, b.Rule))
	})
	return found
}

func (a Account) String() string {
	return fmt.Sprintf("%d charges, held %d, captured %d, refunded %d, %d live shipments", a.Charges, a.Held, a.Captured, a.Refunded, a.Live)
}

func check(o Order, a Account) []Violation {
	var found []Violation
	add := func(rule, detail string) { found = append(found, Violation{o.ID, rule, detail + ": " + a.String()}) }
	if a.Charges > 1 {
		add("G1", "charged more than once")
	}
	if a.Live > 1 {
		add("G1", "shipped more than once")
	}
	switch o.Status {
	case Confirmed:
		if a.Net() != o.Total || a.Held != 0 || a.Live != 1 {
			add("G2", fmt.Sprintf("CONFIRMED for %d %s", o.Total, o.Currency))
		}
	case Failed, Cancelled:
		if a.Net() != 0 || a.Held != 0 || a.Live != 0 {
			add("G2", o.Status+", but not everything is undone")
		}
	case NeedsAttention:
	case Pending, Compensating:
		add("G3", "still "+o.Status)
	default:
		add("G3", "has the unknown status "+o.Status)
	}
	return found
}
