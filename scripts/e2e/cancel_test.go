package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// Two hundred orders are cancelled at a random moment, each twice, half of them with one key and half with two. An order is either cancelled,
// with nothing taken and nothing shipped, or confirmed, and its client was told which.
func open18(t *testing.T, w *world) {
	const runs, abreast = 200, 20
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 18)) //nolint:gosec // it is no secret
	turns := make(chan struct{}, abreast)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards ends
	ends := make(map[string]int)
	for i := range runs {
		latency, after := rng.IntN(500), time.Duration(rng.IntN(800))*time.Millisecond
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			end := raceCancel(t, w, fmt.Sprintf("open18 %d", i), latency, after, i%2 == 0)
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
		})
	}
	wg.Wait()
	t.Logf("ends: %v", ends)
	if ends[verify.Cancelled]+ends[verify.Confirmed] != runs || ends[verify.Cancelled] == 0 || ends[verify.Confirmed] == 0 {
		t.Errorf("ends: got %v, want %d of both kinds", ends, runs)
	}
}

// raceCancel places an order at a provider that takes its time, and cancels it twice. It gives how the order has ended.
func raceCancel(t *testing.T, w *world, key string, latency int, after time.Duration, oneKey bool) string {
	t.Helper()
	ctx := system.Context(t, patience)
	id := keys.OrderID("storefront", key).String()
	if latency > 0 {
		w.hit(ctx, t, w.Provider, id, control.Fault{Operation: control.AnyOperation, Action: control.Delay, DelayMS: latency})
	}
	placed := w.place(ctx, t, r0(), "Idempotency-Key", key)
	wantCreated(t, "order", placed, false)
	timer := time.NewTimer(after)
	defer timer.Stop()
	<-timer.C
	var answers [2]answer
	var both sync.WaitGroup
	for i := range answers {
		both.Go(func() {
			cancelKey := key + " cancel"
			if !oneKey {
				cancelKey = fmt.Sprintf("%s cancel %d", key, i)
			}
			answers[i] = w.cancelFor(ctx, t, i, id, cancelKey)
		})
	}
	both.Wait()
	end := awaitRest(ctx, t, w.shop, id).Order.Status
	want := verify.Confirmed
	for _, a := range answers {
		switch {
		case a.Status == http.StatusOK:
			want = verify.Cancelled
		case a.Status != http.StatusConflict || a.Problem.Reason != "CANCEL_TOO_LATE":
			t.Errorf("cancelling %s: got %d %s, want 200 or 409 CANCEL_TOO_LATE", id, a.Status, a.Body)
		}
	}
	if end != want || answers[0].Status != answers[1].Status {
		t.Errorf("order %s: ended as %s after %d and %d, want %s", id, end, answers[0].Status, answers[1].Status, want)
	}
	got := effects(ctx, t, w.System, id)
	if n := got["payment_intents.cancel"] + got["refunds.create"]; n > 1 {
		t.Errorf("undos of the payment of %s: got %d, want at most 1", id, n)
	}
	w.assertRecorded(ctx, t, id)
	return end
}

// cancelFor sends a cancellation until there is an answer that a repeat does not change.
func (w *world) cancelFor(ctx context.Context, t *testing.T, gateway int, id, key string) answer {
	t.Helper()
	var a answer
	system.Eventually(ctx, t, "an answer to the cancellation of "+id, func() bool {
		a = ask(ctx, t, w.shop, gateway, http.MethodPost, "/v1/orders/"+id+"/cancel", `{}`, "Idempotency-Key", key)
		return a.err == nil && a.Status < 500 && a.Problem.Reason != "KEY_IN_PROGRESS"
	})
	return a
}

// assertRecorded compares what the payment service has on record with the provider's ledger.
func (w *world) assertRecorded(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	_, _, captured, refunded := w.charged(ctx, t, id)
	if n := w.count("payment", `SELECT coalesce(sum(amount_captured), 0) FROM payment WHERE order_id = $1`, id); int64(n) != captured {
		t.Errorf("captured on record of %s: got %d, want %d", id, n, captured)
	}
	if n := w.count("payment", `SELECT coalesce(sum(amount_refunded), 0) FROM payment WHERE order_id = $1`, id); int64(n) != refunded {
		t.Errorf("refunded on record of %s: got %d, want %d", id, n, refunded)
	}
}

// The provider tells of the success again while the refund is under way. Nothing is counted twice.
func open18Notice(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	const key = "open18 notice"
	id := keys.OrderID("storefront", key).String()
	refund := w.hit(ctx, t, w.Provider, id, control.Fault{Operation: "refunds.create", Action: control.Hold, Times: 1})
	then := lostParcel("")(ctx, t, w, id)
	wantCreated(t, "order", w.place(ctx, t, r0(), "Idempotency-Key", key), false)
	then()
	w.awaitCall(ctx, t, id, "refunds.create")
	for _, event := range []string{"payment_intent.succeeded", "payment_intent.amount_capturable_updated"} {
		if _, err := w.Provider.Webhook(ctx, control.WebhookRequest{OrderID: id, Event: event, Times: 2}); err != nil {
			t.Fatal(err)
		}
	}
	let(ctx, t, w.Provider, refund)
	w.ended(ctx, t, id, verify.Failed)
	if got := effects(ctx, t, w.System, id); got["refunds.create"] != 1 || got["payment_intents.capture"] != 1 {
		t.Errorf("effects: got %v, want one capture and one refund", got)
	}
	w.assertRecorded(ctx, t, id)
}
