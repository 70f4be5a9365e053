package e2e_test

import (
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestSuccessAfterTheEnd lets the outside hold a request for so long that the order has been undone when it takes effect. The order
// stays as it is, and what came late is undone, once; with webhooks at once, without them when somebody looks.
func TestSuccessAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{Separate: true, NoWebhooks: true})
	ctx := system.Context(t, 4*time.Minute)
	shop := s.Storefront()

	held := func(c *control.Client, key, operation string) (id, rule string) {
		t.Helper()
		id = keys.OrderID(shop.ID, key).String()
		rule, err := c.AddFault(ctx, control.Fault{Operation: operation, OrderID: id, Action: control.Hold, Times: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shop.Place(ctx, key, system.Order{}); err != nil {
			t.Fatal(err)
		}
		system.Eventually(ctx, t, operation+" to be held", func() bool { return calls(ctx, t, s, id)[operation] > 0 })
		if _, err := shop.Cancel(ctx, id, key+"-cancel"); err != nil {
			t.Fatal(err)
		}
		awaitStatus(ctx, t, shop, id, verify.Cancelled, verify.Confirmed, verify.Failed)
		return id, rule
	}
	payment, confirm := held(s.Provider, "payment", "payment_intents.confirm")
	parcel, create := held(s.Carrier, "parcel", "shipments.create")
	s.Kill("payment", 0)
	s.Kill("shipping", 0)
	for c, rule := range map[*control.Client]string{s.Provider: confirm, s.Carrier: create} {
		if n, err := c.Release(ctx, rule); err != nil || n != 1 {
			t.Fatalf("releasing a held call: got %d, %v, want 1", n, err)
		}
	}
	system.Eventually(ctx, t, "the parcel that came late to be cancelled", func() bool {
		l, err := s.Carrier.CarrierLedger(ctx, parcel)
		return err == nil && len(l.Shipments) == 1 && l.Shipments[0].Status == "cancelled"
	})
	l, err := s.Provider.PaymentLedger(ctx, payment)
	if err != nil || len(l.Intents) != 1 || l.Intents[0].AmountCapturable != 0 || l.Intents[0].AmountCaptured != 0 {
		t.Errorf("payment that came late: got %+v, %v, want nothing held and nothing taken", l.Intents, err)
	}
	for _, id := range []string{payment, parcel} {
		if a, err := shop.Get(ctx, id); err != nil || a.Order.Status != verify.Cancelled {
			t.Errorf("order %s afterwards: got %v, %v, want CANCELLED", id, a, err)
		}
	}
	s.Check(ctx)
}

// TestLostCarrierAnswers loses the answer to each creation of a parcel and kills the service behind it: the parcel is adopted, not
// bought again, and is gone after a cancellation.
func TestLostCarrierAnswers(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{Separate: true, Instances: 2})
	ctx := system.Context(t, 4*time.Minute)
	shop := s.Storefront()
	lose := func(key string) string {
		t.Helper()
		id := keys.OrderID(shop.ID, key).String()
		if _, err := s.Carrier.AddFault(ctx, control.Fault{Operation: "shipments.create", OrderID: id, Action: control.DropAfter, Times: 1}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	kept, cancelled := lose("kept"), lose("cancelled")
	for _, key := range []string{"kept", "cancelled"} {
		if _, err := shop.Place(ctx, key, system.Order{}); err != nil {
			t.Fatal(err)
		}
	}
	system.Eventually(ctx, t, "both parcels to be booked", func() bool {
		return effects(ctx, t, s, kept)["shipments.create"] == 1 && effects(ctx, t, s, cancelled)["shipments.create"] == 1
	})
	s.Kill("shipping", 0)
	s.Kill("shipping", 1)
	if _, err := shop.Cancel(ctx, cancelled, "cancelled-cancel"); err != nil {
		t.Fatal(err)
	}
	awaitEnd := func(id string) string {
		return awaitRest(ctx, t, shop, id).Order.Status
	}
	if got := awaitEnd(kept); got != verify.Confirmed {
		t.Errorf("kept: got %s, want CONFIRMED", got)
	}
	got := awaitEnd(cancelled)
	wantCancels := map[string]int{verify.Cancelled: 1, verify.Confirmed: 0} // the cancellation may have come too late
	if want, ok := wantCancels[got]; !ok || effects(ctx, t, s, cancelled)["shipments.cancel"] != want {
		t.Errorf("cancelled: got %s with effects %v, want one cancellation, or none of a confirmed order", got, effects(ctx, t, s, cancelled))
	}
	for _, id := range []string{kept, cancelled} {
		if n := effects(ctx, t, s, id)["shipments.create"]; n != 1 {
			t.Errorf("parcels booked for %s: got %d, want 1", id, n)
		}
	}
	s.Check(ctx)
}
