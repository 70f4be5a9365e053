package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
)

// Fifty copies of one request at once, over two gateways and two order services: twenty times, and twenty times half of them ask for something
// else.
func open09(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	const rounds, copies = 40, 50
	totals := make(map[string]int64, rounds)
	for round := range rounds {
		key, halves := fmt.Sprintf("open09 %d", round), round%2 == 1
		answers := make([]answer, copies)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range copies {
			wg.Go(func() {
				body := r0()
				if halves && i >= copies/2 {
					body = r0(`"unit_price":1250`, `"unit_price":4950`)
				}
				<-start
				answers[i] = ask(ctx, t, w.shop, i, http.MethodPost, "/v1/orders", body, "Idempotency-Key", key)
			})
		}
		close(start)
		wg.Wait()
		firsts, won := 0, -1
		for i, a := range answers {
			switch {
			case a.err != nil:
				t.Errorf("round %d, copy %d: %v", round, i, a.err)
			case a.Status == http.StatusCreated:
				if won >= 0 && halves && (won < copies/2) != (i < copies/2) {
					t.Errorf("round %d: both payloads were accepted", round)
				}
				won = i
				if !a.Replayed {
					firsts++
				}
			case a.Problem.Reason == "KEY_IN_PROGRESS":
				if a.Header.Get("Retry-After") == "" {
					t.Errorf("round %d, copy %d: got no Retry-After", round, i)
				}
			case !halves || a.Problem.Reason != "KEY_MISMATCH":
				t.Errorf("round %d, copy %d: got %d %s", round, i, a.Status, a.Body)
			}
		}
		if firsts != 1 {
			t.Errorf("round %d: got %d first answers, want 1", round, firsts)
		}
		want := int64(2500)
		if won >= copies/2 && halves {
			want = 9900
		}
		totals[key] = want
	}
	for key, want := range totals {
		id := keys.OrderID("storefront", key).String()
		if intents, _, captured, _ := w.rest(ctx, t, id); intents != 1 || captured != want {
			t.Errorf("%s: got %d charges of %d, want 1 of %d", key, intents, captured, want)
		}
		if got := effects(ctx, t, w.System, id); got["shipments.create"] != 1 || got["shipments.dispatch"] != 1 {
			t.Errorf("%s: got the effects %v, want one shipment", key, got)
		}
		if n := w.count("order", `SELECT count(*) FROM outbox_message WHERE aggregate_id = $1 AND subject = 'evt.order.created'`, id); n != 1 {
			t.Errorf("%s: got %d events of its creation, want 1", key, n)
		}
		if n := w.count("order", `SELECT count(*) FROM customer_order WHERE idempotency_key = $1`, key); n != 1 {
			t.Errorf("%s: got %d orders, want 1", key, n)
		}
	}
}
