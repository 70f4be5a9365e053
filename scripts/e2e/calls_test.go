package e2e_test

import (
	"context"
	"testing"

	"github.com/throughline/throughline/scripts/e2e/system"
)

// calls counts the calls at both simulators about an order, by operation, whether they had an effect or not.
func calls(ctx context.Context, tb testing.TB, s *system.System, id string) map[string]int {
	tb.Helper()
	payments, err := s.Provider.PaymentLedger(ctx, id)
	if err != nil {
		tb.Fatal(err)
	}
	shipments, err := s.Carrier.CarrierLedger(ctx, id)
	if err != nil {
		tb.Fatal(err)
	}
	n := make(map[string]int)
	for _, c := range append(payments.Calls, shipments.Calls...) {
		n[c.Operation]++
	}
	return n
}
