// Package verify checks that orders, money and parcels agree, by the books of the simulators: the rules that hold in every case, whatever
// failed on the way. They are those of services/internal/verify, in three groups.
package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/throughline/throughline/services/internal/verify"
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
	Pending        = verify.Pending
	Compensating   = verify.Compensating
	Confirmed      = verify.Confirmed
	Failed         = verify.Failed
	Cancelled      = verify.Cancelled
	NeedsAttention = verify.NeedsAttention
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
type Account = verify.Account

// Accounts adds both ledgers up, by order id. Amounts are in the provider's minor units.
func Accounts(payments control.PaymentLedger, shipments control.CarrierLedger) map[string]Account {
	return accounts(nil, payments, shipments)
}

// accounts adds up what belongs to orders in some currencies; in which an order is that is not among them is not known.
func accounts(currencies map[string]string, payments control.PaymentLedger, shipments control.CarrierLedger) map[string]Account {
	accounts := make(map[string]Account)
	for _, in := range payments.Intents {
		a := accounts[in.OrderID]
		a.AddPayment(cmp.Or(currencies[in.OrderID], in.Currency), verify.Payment{
			Currency: in.Currency, Amount: in.Amount, Held: in.AmountCapturable, Captured: in.AmountCaptured, Refunded: in.AmountRefunded,
		})
		accounts[in.OrderID] = a
	}
	for _, s := range shipments.Shipments {
		a := accounts[s.OrderID]
		a.AddParcel(s.Status)
		accounts[s.OrderID] = a
	}
	return accounts
}

// Settled checks orders that have come to rest:
//
//   - G1: at most one charge and one live shipment per order, and no charge or refund of more than there was.
//   - G2: CONFIRMED if and only if the total is captured and one shipment is live; closed otherwise means that nothing is
//     held, captured or live.
//   - G3: no order is still on its way.
//
// Money and parcels of orders that nobody lists are violations, too.
func Settled(orders []Order, payments control.PaymentLedger, shipments control.CarrierLedger) []Violation {
	currencies := make(map[string]string, len(orders))
	for _, o := range orders {
		currencies[o.ID] = o.Currency
	}
	accounts := accounts(currencies, payments, shipments)
	var found []Violation
	for _, o := range orders {
		found = append(found, check(o, accounts[o.ID])...)
	}
	for id, a := range accounts {
		if _, listed := currencies[id]; !listed && !a.Empty() {
			found = append(found, Violation{id, "G2", fmt.Sprintf("no such order, yet %s", a)})
		}
	}
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.OrderID, b.OrderID), cmp.Compare(a.Rule, b.Rule))
	})
	return found
}

func check(o Order, a Account) []Violation {
	var found []Violation
	for _, f := range verify.Judge(o.Status, o.Currency, o.Total, a) {
		group := "G1"
		if f.Rule == verify.ConfirmedIsPaidAndShipped || f.Rule == verify.ClosedIsUndone {
			group = "G2"
		}
		found = append(found, Violation{o.ID, group, f.Detail})
	}
	switch o.Status {
	case Confirmed, Failed, Cancelled, NeedsAttention:
	case Pending, Compensating:
		found = append(found, Violation{o.ID, "G3", fmt.Sprintf("still %s: %s", o.Status, a)})
	default:
		found = append(found, Violation{o.ID, "G3", fmt.Sprintf("has the unknown status %s: %s", o.Status, a)})
	}
	return found
}
