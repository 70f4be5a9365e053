package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestEndings plays each ending of an order on real input.
func TestEndings(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{})
	shop := s.Storefront()
	for _, tc := range []struct {
		key        string
		order      system.Order
		wantStatus string
		wantReason string
		// wantCalls are operations that must, or must not (0), have had their effect.
		wantEffects map[string]int
	}{
		{"sold", system.Order{}, verify.Confirmed, "", map[string]int{
			"payment_intents.confirm": 1, "payment_intents.capture": 1, "shipments.create": 1, "shipments.dispatch": 1, "payment_intents.cancel": 0}},
		{"declined", system.Order{PaymentMethod: "pm_card_visa_chargeDeclined"}, verify.Failed, "card_declined", map[string]int{
			"shipments.create": 0, "payment_intents.capture": 0}},
		{"declined by its short name", system.Order{PaymentMethod: "pm_card_chargeDeclined"}, verify.Failed, "card_declined", map[string]int{
			"shipments.create": 0}},
		{"no money", system.Order{PaymentMethod: "pm_card_visa_chargeDeclinedInsufficientFunds"}, verify.Failed, "insufficient_funds", map[string]int{
			"shipments.create": 0}},
		{"bad address", system.Order{PostalCode: "00000"}, verify.Failed, "address_refused", map[string]int{
			"payment_intents.confirm": 1, "payment_intents.cancel": 1, "payment_intents.capture": 0, "shipments.create": 0}},
		{"capture refused", system.Order{PaymentMethod: "pm_sim_captureDeclined"}, verify.Failed, "card_declined", map[string]int{
			"shipments.create": 1, "shipments.cancel": 1, "payment_intents.cancel": 1, "payment_intents.capture": 0, "shipments.dispatch": 0}},
	} {
		t.Run(tc.key, func(t *testing.T) {
			t.Parallel()
			ctx := system.Context(t, time.Minute)
			first, err := shop.Place(ctx, tc.key, tc.order)
			if err != nil {
				t.Fatal(err)
			}
			if first.Status != http.StatusCreated || first.Replayed {
				t.Fatalf("first POST: got %d replayed %v, want 201 and no replay: %s", first.Status, first.Replayed, first.Body)
			}
			if want := keys.OrderID("storefront", tc.key).String(); first.Order.ID != want {
				t.Errorf("order id: got %s, want %s, which is derived from client and key", first.Order.ID, want)
			}
			if got, want := first.Header.Get("Location"), "/v1/orders/"+first.Order.ID; got != want {
				t.Errorf("Location: got %q, want %q", got, want)
			}
			last := awaitRest(ctx, t, shop, first.Order.ID)
			if last.Order.Status != tc.wantStatus || last.Order.FailureReason != tc.wantReason {
				t.Errorf("ending: got %s (%s), want %s (%s)", last.Order.Status, last.Order.FailureReason, tc.wantStatus, tc.wantReason)
			}
			again, err := shop.Place(ctx, tc.key, tc.order)
			if err != nil {
				t.Fatal(err)
			}
			if again.Status != first.Status || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
				t.Errorf("replay: got %d replayed %v\n%s\nwant %d replayed true\n%s", again.Status, again.Replayed, again.Body, first.Status, first.Body)
			}
			got := effects(ctx, t, s, first.Order.ID)
			for operation, want := range tc.wantEffects {
				if got[operation] != want {
					t.Errorf("effects of %s: got %d, want %d (all: %v)", operation, got[operation], want, got)
				}
			}
		})
	}
	t.Cleanup(func() { s.Check(system.Context(t, time.Minute)) })
}

// TestCancel cancels an order while the carrier is at it.
func TestCancel(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{})
	ctx := system.Context(t, time.Minute)
	shop := s.Storefront()
	id := keys.OrderID(shop.ID, "k").String()
	if _, err := s.Carrier.AddFault(ctx, control.Fault{Operation: "shipments.create", OrderID: id, Action: control.Hold}); err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Place(ctx, "k", system.Order{}); err != nil {
		t.Fatal(err)
	}
	system.Eventually(ctx, t, "the carrier to hold the call", func() bool {
		faults, err := s.Carrier.Faults(ctx)
		return err == nil && len(faults) == 1 && faults[0].Held == 1
	})
	a, err := shop.Cancel(ctx, id, "k-cancel")
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != http.StatusOK || (a.Order.Status != verify.Compensating && a.Order.Status != verify.Cancelled) {
		t.Fatalf("cancel: got %d %s, want 200 and the order on its way back", a.Status, a.Order.Status)
	}
	if err := s.Carrier.ClearFaults(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Carrier.Release(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if last := awaitRest(ctx, t, shop, id); last.Order.Status != verify.Cancelled {
		t.Errorf("ending: got %s, want CANCELLED", last.Order.Status)
	}
	again, err := shop.Cancel(ctx, id, "k-cancel")
	if err != nil {
		t.Fatal(err)
	}
	if again.Status != http.StatusOK || !again.Replayed || !bytes.Equal(again.Body, a.Body) {
		t.Errorf("second cancel: got %d replayed %v, want the first answer again", again.Status, again.Replayed)
	}
	sold, err := shop.Place(ctx, "sold", system.Order{})
	if err != nil {
		t.Fatal(err)
	}
	awaitRest(ctx, t, shop, sold.Order.ID)
	late, err := shop.Cancel(ctx, sold.Order.ID, "sold-cancel")
	if err != nil {
		t.Fatal(err)
	}
	if late.Status != http.StatusConflict || late.Problem.Reason != "CANCEL_TOO_LATE" {
		t.Errorf("cancel of a confirmed order: got %d %s, want 409 CANCEL_TOO_LATE", late.Status, late.Problem.Reason)
	}
	s.Check(ctx)
}

// TestBurst sends 200 requests with 20 keys at once, to several instances of every service.
func TestBurst(t *testing.T) {
	t.Parallel()
	for _, instances := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d instances", instances), func(t *testing.T) {
			t.Parallel()
			s := system.Start(t, system.Options{Instances: instances})
			ctx := system.Context(t, 2*time.Minute)
			shop := s.Storefront()
			const orders, copies = 20, 10
			firsts := make([]int, orders)
			var mu sync.Mutex
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range orders * copies {
				wg.Go(func() {
					<-start
					key := i % orders
					a, err := retryFrom(ctx, shop, i, fmt.Sprintf("burst-%d", key), system.Order{Quantity: 1 + key})
					if err != nil {
						t.Error(err)
						return
					}
					if a.Status != http.StatusCreated {
						t.Errorf("POST %d: got %d %s, want 201", i, a.Status, a.Body)
					}
					if !a.Replayed {
						mu.Lock()
						firsts[key]++
						mu.Unlock()
					}
				})
			}
			close(start)
			wg.Wait()
			for key, n := range firsts {
				if n != 1 {
					t.Errorf("key %d: %d answers without the mark of a replay, want 1", key, n)
				}
			}
			byStatus := s.Check(ctx)
			if got := len(byStatus[verify.Confirmed]); got != orders {
				t.Errorf("confirmed orders: got %d, want %d: %v", got, orders, byStatus)
			}
		})
	}
}

// retryFrom places an order, beginning at gateway i, so that copies of one key go to different gateways.
func retryFrom(ctx context.Context, shop *system.Client, i int, key string, o system.Order) (*system.Answer, error) {
	c := *shop
	c.URLs = append(append([]string(nil), shop.URLs[i%len(shop.URLs):]...), shop.URLs[:i%len(shop.URLs)]...)
	return c.Place(ctx, key, o)
}

// awaitRest waits until an order has ended.
func awaitRest(ctx context.Context, tb testing.TB, shop *system.Client, id string) *system.Answer {
	tb.Helper()
	var last *system.Answer
	system.Eventually(ctx, tb, "order "+id+" to end", func() bool {
		a, err := shop.Get(ctx, id)
		if err != nil || a.Status != http.StatusOK {
			return false
		}
		last = a
		return a.Order.Status != verify.Pending && a.Order.Status != verify.Compensating
	})
	return last
}

// effects counts the calls at both simulators that had an effect, by operation.
func effects(ctx context.Context, tb testing.TB, s *system.System, id string) map[string]int {
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
		if c.Effect {
			n[c.Operation]++
		}
	}
	return n
}
