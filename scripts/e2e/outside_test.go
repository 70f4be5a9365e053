package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestOutside lets the provider and the carrier go wrong, each for orders of its own, in one system with two instances of everything. The
// names of its cases are those of the reports that they come from.
func TestOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{Instances: 2})
	t.Run("cases", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *world){
			"OPEN12ChargedReplyLost": open12, "OPEN13SuccessAfterTheEnd": open13, "OPEN15VoidOfWhatIsNotHeld": open15,
			"OPEN16AddressRefusedBySimpleChecks": open16, "OPEN18CancelRacesCapture": open18, "OPEN18NoticeWhileARefundRuns": open18Notice,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, w)
			})
		}
	})
	ctx := system.Context(t, patience)
	w.settled(ctx, t)
	for _, service := range []string{"order", "payment", "shipping"} {
		if n := w.count(service, `SELECT count(*) FROM dead_letter`); n != 0 {
			t.Errorf("dead letters of %s: got %d, want none", service, n)
		}
	}
}

// hit adds a fault to the calls about one order, which need not be placed yet.
func (w *world) hit(ctx context.Context, t *testing.T, at *control.Client, id string, f control.Fault) string {
	t.Helper()
	f.OrderID = id
	rule, err := at.AddFault(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

// let ends a rule and releases what it holds.
func let(ctx context.Context, t *testing.T, at *control.Client, rule string) {
	t.Helper()
	if err := at.RemoveFault(ctx, rule); err != nil {
		t.Fatal(err)
	}
}

// payments lists the calls at the provider about an order, by operation; every operation without one.
func (w *world) payments(ctx context.Context, t *testing.T, id, operation string) []control.Call {
	t.Helper()
	l, err := w.Provider.PaymentLedger(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(l.Calls, func(c control.Call) bool { return operation != "" && c.Operation != operation })
}

func (w *world) awaitCall(ctx context.Context, t *testing.T, id, operation string) {
	t.Helper()
	system.Eventually(ctx, t, operation+" of "+id, func() bool { return calls(ctx, t, w.System, id)[operation] > 0 })
}

// ended waits for the end of an order, and says if it is another.
func (w *world) ended(ctx context.Context, t *testing.T, id, want string) {
	t.Helper()
	if a := awaitRest(ctx, t, w.shop, id); a.Order.Status != want {
		t.Errorf("order %s: got %s, want %s", id, a.Order.Status, want)
	}
}

// The provider charges and the answer is lost, in each way there is, for the authorization and for the capture, where the provider knows a key
// again and where it does not. Nobody is charged twice, and nothing is sent again before the provider was asked.
func open12(t *testing.T, w *world) {
	loss := map[string]control.Fault{
		"a never answered":        {Action: control.Hold, Effect: control.EffectBefore, Times: 1},
		"b answered too late":     {Action: control.Delay, Effect: control.EffectBefore, DelayMS: 6500, Times: 1},
		"c connection reset":      {Action: control.DropAfter, Times: 1},
		"d 500 after the charge":  {Action: control.FailAfter, Status: 500, Times: 1},
		"a never key unknown":     {Action: control.Hold, Effect: control.EffectBefore, Times: 1},
		"b too late key unknown":  {Action: control.Delay, Effect: control.EffectBefore, DelayMS: 6500, Times: 1},
		"d 500 after key unknown": {Action: control.FailAfter, Status: 500, Times: 1},
	}
	ctx := system.Context(t, patience)
	type charge struct{ key, id, operation string }
	var charges []charge
	for name, f := range loss {
		for _, operation := range []string{"payment_intents.confirm", "payment_intents.capture"} {
			key := "open12 " + name + " " + operation
			c := charge{key, keys.OrderID("storefront", key).String(), operation}
			if strings.HasSuffix(name, "unknown") {
				w.hit(ctx, t, w.Provider, c.id, control.Fault{Operation: control.AnyOperation, Action: control.NoDedup})
			}
			f.Operation = operation
			w.hit(ctx, t, w.Provider, c.id, f)
			wantCreated(t, key, w.place(ctx, t, r0(), "Idempotency-Key", key), false)
			charges = append(charges, c)
		}
	}
	for _, c := range charges {
		w.ended(ctx, t, c.id, verify.Confirmed)
		if intents, _, captured, refunded := w.charged(ctx, t, c.id); intents != 1 || captured != 2500 || refunded != 0 {
			t.Errorf("%s: got %d payments, %d captured, %d refunded; want 1 of 2500", c.key, intents, captured, refunded)
		}
		wantCreated(t, c.key+", repeated by the client", w.place(ctx, t, r0(), "Idempotency-Key", c.key), true)
		w.assertAsked(ctx, t, c.key, c.id, c.operation)
	}
}

// assertAsked checks that an operation of an order was not sent again before somebody asked, and that all of it carries one key, unless a
// question has shown between two that the first had no effect.
func (w *world) assertAsked(ctx context.Context, t *testing.T, name, id, operation string) {
	t.Helper()
	effects, asked := 0, true
	used := make(map[string]bool)
	for _, c := range w.payments(ctx, t, id, "") {
		switch c.Operation {
		case operation:
			if !asked {
				t.Errorf("%s: it was sent again before the provider was asked", name)
			}
			asked = false
			if used[c.IdempotencyKey] = true; c.Effect {
				effects++
			}
		case "payment_intents.retrieve", "payment_intents.create":
			asked = true // a create under its key tells what the payment is at
		}
	}
	if effects != 1 || len(used) != 1 {
		t.Errorf("%s: got %d effects under %d keys, want 1 under 1", name, effects, len(used))
	}
}

// A charge takes effect after its order was cancelled, and the provider says so three times. It is voided once, and the order stays as it is.
func open13(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	const key = "open13"
	id := keys.OrderID("storefront", key).String()
	rule := w.hit(ctx, t, w.Provider, id, control.Fault{Operation: "payment_intents.confirm", Action: control.Hold, Times: 1})
	wantCreated(t, "order", w.place(ctx, t, r0(), "Idempotency-Key", key), false)
	w.awaitCall(ctx, t, id, "payment_intents.confirm")
	wantStatus(t, "cancel", ask(ctx, t, w.shop, 0, http.MethodPost, "/v1/orders/"+id+"/cancel", `{}`, "Idempotency-Key", key+" cancel"), http.StatusOK, "")
	w.ended(ctx, t, id, verify.Cancelled)
	let(ctx, t, w.Provider, rule)
	for range 2 {
		if _, err := w.Provider.Webhook(ctx, control.WebhookRequest{OrderID: id, Event: "payment_intent.succeeded", Times: 3}); err != nil {
			t.Fatal(err)
		}
	}
	system.Eventually(ctx, t, "the late charge to be undone", func() bool {
		l, err := w.Provider.PaymentLedger(ctx, id)
		return err == nil && len(l.Intents) == 1 && l.Intents[0].Status == "canceled" && l.Intents[0].AmountCapturable == 0
	})
	got := effects(ctx, t, w.System, id)
	if got["payment_intents.cancel"] != 1 || got["refunds.create"] != 0 || got["shipments.create"] != 0 {
		t.Errorf("effects: got %v, want one void and nothing else", got)
	}
	w.ended(ctx, t, id, verify.Cancelled)
	if n := w.eventsOf(ctx, t, id, "evt.order.cancelled"); n != 1 {
		t.Errorf("evt.order.cancelled: got %d, want 1", n)
	}
}

// eventsOf counts the events of one kind about an order that are in the stream, each once, whatever copies there are.
func (w *world) eventsOf(ctx context.Context, t *testing.T, id, subject string) int {
	t.Helper()
	stream, err := w.jetstream(t).Stream(ctx, "EVT")
	if err != nil {
		t.Fatal(err)
	}
	state := stream.CachedInfo().State
	seen := make(map[string]bool)
	for seq := state.FirstSeq; seq > 0 && seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == subject && m.Header.Get(messaging.HeaderOrderID) == id {
			seen[m.Header.Get(messaging.HeaderCEID)] = true
		}
	}
	return len(seen)
}

// An address that anybody can see to be wrong costs no call.
func open16(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	const key = "open16"
	a := w.place(ctx, t, r0(`"country":"DE"`, `"country":"XX"`), "Idempotency-Key", key)
	wantStatus(t, "unknown country", a, http.StatusBadRequest, "")
	if n := len(w.payments(ctx, t, keys.OrderID("storefront", key).String(), "")); n != 0 {
		t.Errorf("calls at the provider: got %d, want none", n)
	}
	wantCreated(t, "the same key, then clean", w.place(ctx, t, r0(), "Idempotency-Key", key), false)
}

// undoing is an order that fails at the carrier, and what has happened to its payment by then.
type undoing struct {
	// prepare lays what goes wrong, and gives what to do once the order is placed.
	prepare func(ctx context.Context, t *testing.T, w *world, id string) (then func())
	body    string
	want    map[string]int // effects of our own calls at the provider
}

// lostParcel holds the dispatch, so that the payment is captured, lets something happen, and then loses the parcel.
func lostParcel(meanwhile string) func(context.Context, *testing.T, *world, string) func() {
	return func(ctx context.Context, t *testing.T, w *world, id string) func() {
		rule := w.hit(ctx, t, w.Carrier, id, control.Fault{Operation: "shipments.dispatch", Action: control.Hold, Times: 1})
		return func() {
			w.awaitCall(ctx, t, id, "shipments.dispatch")
			if meanwhile != "" {
				w.byHand(ctx, t, w.Provider, id, meanwhile)
			}
			w.byHand(ctx, t, w.Carrier, id, "lose")
			let(ctx, t, w.Carrier, rule)
		}
	}
}

// refusedParcel holds the booking, lets something happen to the payment, and then lets the carrier refuse the address.
func refusedParcel(meanwhile string) func(context.Context, *testing.T, *world, string) func() {
	return func(ctx context.Context, t *testing.T, w *world, id string) func() {
		rule := w.hit(ctx, t, w.Carrier, id, control.Fault{Operation: "shipments.create", Action: control.Hold, Times: 1})
		return func() {
			w.awaitCall(ctx, t, id, "shipments.create")
			w.byHand(ctx, t, w.Provider, id, meanwhile)
			let(ctx, t, w.Carrier, rule)
		}
	}
}

// byHand does what a person does at the provider's or carrier's own site.
func (w *world) byHand(ctx context.Context, t *testing.T, at *control.Client, id, do string) {
	t.Helper()
	if acted, err := at.Act(ctx, id, do); err != nil || len(acted) == 0 {
		t.Fatalf("%s by hand: got %v, %v, want it done", do, acted, err)
	}
}

// The carrier can not deliver, and the payment is not what the saga last heard of it. The undo makes net money zero, whatever it finds.
func open15(t *testing.T, w *world) {
	refused := r0("10115", "00000")
	ctx := system.Context(t, patience)
	undoings := map[string]undoing{
		"a authorized": {func(context.Context, *testing.T, *world, string) func() { return func() {} }, refused, map[string]int{"payment_intents.cancel": 1}},
		"b captured":   {lostParcel(""), r0(), map[string]int{"refunds.create": 1}},
		"c captured between look and void": {func(ctx context.Context, t *testing.T, w *world, id string) func() {
			rule := w.hit(ctx, t, w.Provider, id, control.Fault{Operation: "payment_intents.cancel", Action: control.Hold, Times: 1})
			return func() {
				w.awaitCall(ctx, t, id, "payment_intents.cancel")
				w.captureElsewhere(ctx, t, id)
				let(ctx, t, w.Provider, rule)
			}
		}, refused, map[string]int{"refunds.create": 1}},
		"d voided by hand":          {refusedParcel("void"), refused, nil},
		"e authorization has ended": {refusedParcel("expire"), refused, nil},
		"f refunded by hand":        {lostParcel("refund"), r0(), nil},
	}
	key := func(name string) string { return "open15 " + name }
	id := func(name string) string { return keys.OrderID("storefront", key(name)).String() }
	then := make(map[string]func(), len(undoings))
	for name, u := range undoings {
		then[name] = u.prepare(ctx, t, w, id(name))
		wantCreated(t, name, w.place(ctx, t, u.body, "Idempotency-Key", key(name)), false)
	}
	for name := range undoings {
		then[name]()
	}
	for name, u := range undoings {
		w.ended(ctx, t, id(name), verify.Failed)
		w.assertUndone(ctx, t, name, id(name), u.want)
	}
}

// assertUndone checks that net money is zero, by so many effects of our own calls as are wanted, and in few tries.
func (w *world) assertUndone(ctx context.Context, t *testing.T, name, id string, want map[string]int) {
	t.Helper()
	got := effects(ctx, t, w.System, id)
	for _, operation := range []string{"payment_intents.cancel", "refunds.create"} {
		if got[operation] != want[operation] {
			t.Errorf("%s: effects of %s: got %d, want %d", name, operation, got[operation], want[operation])
		}
	}
	l, err := w.Provider.PaymentLedger(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range l.Intents {
		if in.AmountCapturable != 0 || in.AmountCaptured != in.AmountRefunded {
			t.Errorf("%s: payment: got %+v, want nothing held and all refunded", name, in)
		}
	}
	if len(l.Refunds) > 1 {
		t.Errorf("%s: refunds: got %+v, want at most one, of the full amount", name, l.Refunds)
	}
	if n := len(l.Calls); n > 20 {
		t.Errorf("%s: calls at the provider: got %d, want no endless retry", name, n)
	}
}

// captureElsewhere captures an order's payment as another system with our key would, or a person.
func (w *world) captureElsewhere(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	l, err := w.Provider.PaymentLedger(ctx, id)
	if err != nil || len(l.Intents) != 1 {
		t.Fatalf("payments of %s: got %v, %v, want one", id, l.Intents, err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/v1/payment_intents/%s/capture", w.Ports()["provider"], l.Intents[0].ID)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk_test_throughline")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Fatalf("capturing elsewhere: got %s, want 200", resp.Status)
	}
}
