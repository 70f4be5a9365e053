package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestKill kills each service in the middle of orders, while the clients go on repeating. Whatever was under way ends as it
// should, without a person.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"gateway", "order", "payment", "shipping"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			s := system.Start(t, system.Options{Separate: true})
			ctx := system.Context(t, 3*time.Minute)
			slow(ctx, t, s)
			placed := place(ctx, t, s, 40)
			for range 2 {
				awaitConfirmed(ctx, t, s, 3)
				s.Kill(victim, 0)
			}
			placed.Wait()
			assertEndings(t, s.Check(ctx), 40)
		})
	}
}

// TestKillOneOfThree kills and freezes single instances of each service; the others take over.
func TestKillOneOfThree(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{Separate: true, Instances: 3})
	ctx := system.Context(t, 4*time.Minute)
	slow(ctx, t, s)
	placed := place(ctx, t, s, 60)
	for i, victim := range []string{"payment", "order", "shipping", "gateway"} {
		awaitConfirmed(ctx, t, s, 3*(i+1))
		s.Kill(victim, i%3)
		frozen := (i + 1) % 3
		s.Signal(victim, frozen, syscall.SIGSTOP)
		defer s.Signal(victim, frozen, syscall.SIGCONT)
	}
	for i, victim := range []string{"payment", "order", "shipping", "gateway"} {
		s.Signal(victim, (i+1)%3, syscall.SIGCONT)
	}
	placed.Wait()
	assertEndings(t, s.Check(ctx), 60)
}

// slow makes both simulators take their time, so that a kill finds calls under way.
func slow(ctx context.Context, tb testing.TB, s *system.System) {
	tb.Helper()
	for _, c := range []*control.Client{s.Provider, s.Carrier} {
		if _, err := c.AddFault(ctx, control.Fault{Operation: control.AnyOperation, Action: control.Delay, DelayMS: 30}); err != nil {
			tb.Fatal(err)
		}
	}
}

// place places n orders, a few at a time: most are sold, every fifth has a bad card, every seventh a bad address.
func place(ctx context.Context, t *testing.T, s *system.System, n int) *sync.WaitGroup {
	t.Helper()
	shop := s.Storefront()
	var wg sync.WaitGroup
	turns := make(chan struct{}, 4)
	for i := range n {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			o := system.Order{Quantity: 1 + i%9}
			switch {
			case i%5 == 4:
				o.PaymentMethod = "pm_card_visa_chargeDeclined"
			case i%7 == 6:
				o.PostalCode = "00000"
			}
			a, err := shop.Place(ctx, fmt.Sprintf("kill-%d", i), o)
			if err != nil {
				t.Error(err)
				return
			}
			if a.Status != http.StatusCreated {
				t.Errorf("POST %d: got %d %s, want 201", i, a.Status, a.Body)
			}
		})
	}
	return &wg
}

// awaitConfirmed waits until some orders are through, so that the next fault falls into the middle of others.
func awaitConfirmed(ctx context.Context, tb testing.TB, s *system.System, n int) {
	tb.Helper()
	shop := s.Storefront()
	system.Eventually(ctx, tb, fmt.Sprintf("%d confirmed orders", n), func() bool {
		orders, err := shop.Orders(ctx)
		confirmed := 0
		for _, o := range orders {
			if o.Status == verify.Confirmed {
				confirmed++
			}
		}
		return err == nil && confirmed >= n
	})
}

// assertEndings checks that every order was placed once and ended as its input says.
func assertEndings(tb testing.TB, byStatus map[string][]verify.Order, n int) {
	tb.Helper()
	failed := 0
	for i := range n {
		if i%5 == 4 || i%7 == 6 {
			failed++
		}
	}
	if got, want := len(byStatus[verify.Confirmed]), n-failed; got != want {
		tb.Errorf("confirmed orders: got %d, want %d", got, want)
	}
	if got := len(byStatus[verify.Failed]); got != failed {
		tb.Errorf("failed orders: got %d, want %d", got, failed)
	}
	if got := len(byStatus[verify.NeedsAttention]) + len(byStatus[verify.Cancelled]); got != 0 {
		tb.Errorf("orders that ended otherwise: got %d, want 0", got)
	}
}
