package order_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/throughline/throughline/pkg/money"
	"github.com/throughline/throughline/services/order/internal/order"
)

var rules = order.Rules{Country: func(code string) bool { return code == "DE" || code == "JP" }}

func valid() *order.Request {
	return &order.Request{
		Currency: "EUR", Lines: []order.Line{{SKU: "BOOK-1", Quantity: 2, UnitPrice: 1250}},
		ShipTo:        &order.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"},
		PaymentMethod: "pm_card_visa",
	}
}

func TestTotal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		currency string
		lines    []order.Line
		want     money.Money
	}{
		{"one line", "EUR", []order.Line{{"A", 2, 1250}}, money.Money{Currency: "EUR", Minor: 2500}},
		{"several", "EUR", []order.Line{{"A", 2, 1250}, {"B", 3, 1}, {"free", 1, 0}}, money.Money{Currency: "EUR", Minor: 2503}},
		{"a currency without decimals", "JPY", []order.Line{{"A", 3, 500}}, money.Money{Currency: "JPY", Minor: 1500}},
		{"a currency with three", "KWD", []order.Line{{"A", 1, 1500}}, money.Money{Currency: "KWD", Minor: 1500}},
		{"the greatest", "EUR", []order.Line{{"A", 1, money.MaxMinor}}, money.Money{Currency: "EUR", Minor: money.MaxMinor}},
		{"the greatest of two", "EUR", []order.Line{{"A", 1, money.MaxMinor - 1}, {"B", 1, 1}}, money.Money{Currency: "EUR", Minor: money.MaxMinor}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			req := valid()
			req.Currency, req.Lines = tc.currency, tc.lines
			got, violations := rules.Check(req)
			if len(violations) > 0 || got != tc.want {
				t.Errorf("got %v, %v, want %v", got, violations, tc.want)
			}
		})
	}
}

func TestViolations(t *testing.T) {
	t.Parallel()
	lines := func(ls ...order.Line) func(*order.Request) {
		return func(r *order.Request) { r.Lines = ls }
	}
	address := func(change func(*order.Address)) func(*order.Request) {
		return func(r *order.Request) { change(r.ShipTo) }
	}
	entries := func(n int) map[string]string {
		m := make(map[string]string, n)
		for i := range n {
			m[strconv.Itoa(i)] = "v"
		}
		return m
	}
	for _, tc := range []struct {
		name   string
		change func(*order.Request)
		want   []string // paths
	}{
		{"nothing", func(*order.Request) {}, nil},
		{"lower-case currency", func(r *order.Request) { r.Currency = "eur" }, []string{"currency"}},
		{"no currency", func(r *order.Request) { r.Currency = "" }, []string{"currency"}},
		{"currency that is no tender", func(r *order.Request) { r.Currency = "XTS" }, []string{"currency"}},
		{"no lines", lines(), []string{"lines"}},
		{"most lines", lines(slices.Repeat([]order.Line{{"A", 1, 1}}, order.MaxLines)...), nil},
		{"too many lines", lines(slices.Repeat([]order.Line{{"A", 1, 1}}, order.MaxLines+1)...), []string{"lines"}},
		{"no sku", lines(order.Line{"", 1, 1}), []string{"lines[0].sku"}},
		{"longest sku", lines(order.Line{strings.Repeat("é", order.MaxSKU), 1, 1}), nil},
		{"sku too long", lines(order.Line{strings.Repeat("é", order.MaxSKU+1), 1, 1}), []string{"lines[0].sku"}},
		{"sku with NUL", lines(order.Line{"a\x00b", 1, 1}), []string{"lines[0].sku"}},
		{"sku that is not UTF-8", lines(order.Line{"a\xff", 1, 1}), []string{"lines[0].sku"}},
		{"quantity 0 in the second line", lines(order.Line{"A", 1, 1}, order.Line{"B", 0, 1}), []string{"lines[1].quantity"}},
		{"negative quantity", lines(order.Line{"A", -1, 1}), []string{"lines[0].quantity"}},
		{"greatest quantity", lines(order.Line{"A", order.MaxQuantity, 1}), nil},
		{"quantity too great", lines(order.Line{"A", order.MaxQuantity + 1, 1}), []string{"lines[0].quantity"}},
		{"negative price", lines(order.Line{"A", 1, -1}), []string{"lines[0].unit_price"}},
		{"price too great", lines(order.Line{"A", 1, money.MaxMinor + 1}), []string{"lines[0].unit_price"}},
		{"total 0", lines(order.Line{"A", 1, 0}), []string{"lines"}},
		{"product too great", lines(order.Line{"A", 2, money.MaxMinor/2 + 1}), []string{"lines"}},
		{"product that wraps in 64 bits", lines(order.Line{"A", 1_000_000, money.MaxMinor}), []string{"lines"}},
		{"sum too great", lines(order.Line{"A", 1, money.MaxMinor}, order.Line{"B", 1, 1}), []string{"lines"}},
		{"no address", func(r *order.Request) { r.ShipTo = nil }, []string{"ship_to"}},
		{"empty address", func(r *order.Request) { r.ShipTo = &order.Address{} }, []string{"ship_to.name", "ship_to.line1", "ship_to.city", "ship_to.country"}},
		{"blank name", address(func(a *order.Address) { a.Name = " \t" }), []string{"ship_to.name"}},
		{"no postal code", address(func(a *order.Address) { a.PostalCode = "" }), nil},
		{"city too long", address(func(a *order.Address) { a.City = strings.Repeat("x", order.MaxAddressText+1) }), []string{"ship_to.city"}},
		{"line2 with NUL", address(func(a *order.Address) { a.Line2 = "\x00" }), []string{"ship_to.line2"}},
		{"lower-case country", address(func(a *order.Address) { a.Country = "de" }), []string{"ship_to.country"}},
		{"no payment method", func(r *order.Request) { r.PaymentMethod = "" }, []string{"payment_method"}},
		{"payment method too long", func(r *order.Request) { r.PaymentMethod = strings.Repeat("p", 256) }, []string{"payment_method"}},
		{"longest note", func(r *order.Request) { r.Note = strings.Repeat("ü", order.MaxNote) }, nil},
		{"note too long", func(r *order.Request) { r.Note = strings.Repeat("n", order.MaxNote+1) }, []string{"note"}},
		{"most metadata", func(r *order.Request) { r.Metadata = entries(order.MaxMetadata) }, nil},
		{"too much metadata", func(r *order.Request) { r.Metadata = entries(order.MaxMetadata + 1) }, []string{"metadata"}},
		{"metadata key too long", func(r *order.Request) { r.Metadata = map[string]string{strings.Repeat("k", 41): "v"} }, []string{"metadata"}},
		{"metadata key empty", func(r *order.Request) { r.Metadata = map[string]string{"": "v"} }, []string{"metadata"}},
		{"metadata value too long", func(r *order.Request) { r.Metadata = map[string]string{"k": strings.Repeat("v", 501)} }, []string{`metadata["k"]`}},
		{"several at once", func(r *order.Request) { r.Currency, r.Note = "", "\x00" }, []string{"currency", "note"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			req := valid()
			tc.change(req)
			_, violations := rules.Check(req)
			var got []string
			for _, v := range violations {
				got = append(got, v.Path)
				if v.Detail == "" {
					t.Errorf("got no detail for %s", v.Path)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got violations %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCheckReason(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]int{"": 0, "ordered twice": 0, strings.Repeat("r", 500): 0, strings.Repeat("r", 501): 1, "\x00": 1} {
		if got := order.CheckReason(reason); len(got) != want {
			t.Errorf("got %v for %.20q, want %d violations", got, reason, want)
		}
	}
}

func TestFinal(t *testing.T) {
	t.Parallel()
	all := map[order.Status]bool{
		order.Pending: false, order.Compensating: false, order.NeedsAttention: false,
		order.Confirmed: true, order.Failed: true, order.Cancelled: true,
	}
	for _, s := range slices.Sorted(maps.Keys(all)) {
		if got := s.Final(); got != all[s] {
			t.Errorf("got final %v for %s, want %v", got, s, all[s])
		}
	}
}
