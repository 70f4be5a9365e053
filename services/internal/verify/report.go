package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is what a run has found.
type Report struct {
	Began time.Time
	Took  time.Duration
	// Since is from when on the run has looked; the zero time is all that there is.
	Since time.Time
	// Orders, Messages, Payments and Parcels are how many were looked at.
	Orders, Messages, Payments, Parcels int64
	// Open is how many of the orders need a person.
	Open int64
	// InFlight is how many of the orders are on their way, or look wrong and change still; OldestInFlight is the age of the oldest of those on
	// their way. PendingMessages are still to be published or to be consumed.
	InFlight        int64
	OldestInFlight  time.Duration
	PendingMessages int64
	// Violations are the broken rules, by order.
	Violations []Violation
	// Gaps are what could not be looked at.
	Gaps []Gap
	// Money is compared per currency, over the orders at rest.
	Money []Money
}

// Violation is a rule that is broken, and stays so.
type Violation struct {
	Rule Rule
	// OrderID is empty where no order is concerned alone. ClientID and Key are empty for an order that does not exist.
	OrderID, ClientID, Key string
	// Detail has the figures of both sides, in words.
	Detail string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s %s: %s", v.Rule, cmp.Or(v.OrderID, "(no order)"), v.Detail)
}

// Gap is something that could not be asked.
type Gap struct{ Service, What, Why string }

func (g Gap) String() string { return fmt.Sprintf("%s: %s: %s", g.Service, g.What, g.Why) }

// Money is a comparison in one currency, in minor units.
type Money struct {
	Currency string
	// Confirmed is the sum of the CONFIRMED orders, Moved what was captured and not given back.
	Confirmed, Moved int64
}

// Outcome is how a run ended.
type Outcome string

// The outcomes. A run that found violations has that outcome also where it has gaps.
const (
	Clean      Outcome = "clean"
	Incomplete Outcome = "incomplete"
	Violated   Outcome = "violations"
)

// Outcome tells how the run ended.
func (r *Report) Outcome() Outcome {
	switch {
	case len(r.Violations) > 0:
		return Violated
	case len(r.Gaps) > 0:
		return Incomplete
	default:
		return Clean
	}
}

// Complete tells whether all could be looked at.
func (r *Report) Complete() bool { return len(r.Gaps) == 0 }

// ByRule counts the violations, of each rule that there is.
func (r *Report) ByRule() map[Rule]int {
	counts := make(map[Rule]int)
	for _, rule := range Rules() {
		counts[rule] = 0
	}
	for _, v := range r.Violations {
		counts[v.Rule]++
	}
	return counts
}

func (r *Report) sort() {
	slices.SortFunc(r.Violations, func(a, b Violation) int {
		return cmp.Or(strings.Compare(a.OrderID, b.OrderID), strings.Compare(string(a.Rule), string(b.Rule)), strings.Compare(a.Detail, b.Detail))
	})
	slices.SortFunc(r.Gaps, func(a, b Gap) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.What, b.What), strings.Compare(a.Why, b.Why))
	})
	r.Gaps = slices.Compact(r.Gaps)
	slices.SortFunc(r.Money, func(a, b Money) int { return strings.Compare(a.Currency, b.Currency) })
}

// ledger adds money up per currency.
type ledger map[string]*Money

func (l ledger) of(currency string) *Money {
	currency = strings.ToUpper(currency)
	if l[currency] == nil {
		l[currency] = &Money{Currency: currency}
	}
	return l[currency]
}

// note adds an order at rest.
func (l ledger) note(status, currency string, total int64, a Account) {
	m := l.of(currency)
	if status == Confirmed {
		m.Confirmed += total
	}
	m.Moved += a.Net()
}

// close puts the sums on the report. Sums that differ although no order says why are a violation of their own.
func (l ledger) close(r *Report) {
	explained := slices.ContainsFunc(r.Violations, func(v Violation) bool {
		switch v.Rule {
		case ConfirmedIsPaidAndShipped, ClosedIsUndone, UnknownOrder:
			return true
		default:
			return false
		}
	})
	for _, m := range l {
		r.Money = append(r.Money, *m)
		if m.Confirmed != m.Moved && !explained {
			r.Violations = append(r.Violations, Violation{
				Rule: MoneyAddsUp, Detail: fmt.Sprintf("%s: orders for %d are confirmed, and %d was captured and not given back", m.Currency, m.Confirmed, m.Moved),
			})
		}
	}
}
