package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// attention runs the operators' command line, and gives what it prints.
func attention(t *testing.T, s *system.System, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"attention"}, args...)
	args = append(args, "--data", s.Data(), "--order", fmt.Sprintf("127.0.0.1:%d", s.Ports()["order-grpc"]))
	out, err := exec.CommandContext(t.Context(), system.Binary(t), args...).CombinedOutput()
	return string(out), err
}

// mustAttend is attention that must succeed.
func mustAttend(t *testing.T, s *system.System, args ...string) string {
	t.Helper()
	out, err := attention(t, s, args...)
	if err != nil {
		t.Fatalf("throughline attention %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// awaitStatus waits until an order has a status, and fails if it has one of the others before.
func awaitStatus(ctx context.Context, t *testing.T, shop *system.Client, id, want string, never ...string) {
	t.Helper()
	system.Eventually(ctx, t, "order "+id+" to be "+want, func() bool {
		a, err := shop.Get(ctx, id)
		if err != nil {
			return false
		}
		for _, status := range never {
			if a.Order.Status == status {
				t.Fatalf("order %s: got %s on the way to %s, want never", id, status, want)
			}
		}
		return a.Order.Status == want
	})
}

// desk is one system whose orders get stuck.
type desk struct {
	*system.System
	shop *system.Client
}

func (d *desk) fault(t *testing.T, c *control.Client, key string, f control.Fault) string {
	t.Helper()
	f.OrderID = keys.OrderID(d.shop.ID, key).String()
	id, err := c.AddFault(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (d *desk) heal(t *testing.T, c *control.Client, rule string) {
	t.Helper()
	if err := c.RemoveFault(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) place(ctx context.Context, t *testing.T, key string, o system.Order) string {
	t.Helper()
	a, err := d.shop.Place(ctx, key, o)
	if err != nil {
		t.Fatal(err)
	}
	return a.Order.ID
}

// ending brings an order to its end. What makes one has begun the order.
type ending func(context.Context, *testing.T, *desk)

// TestAttention brings orders that wait for a person to their end, by the command line. The system gives up waiting after two minutes; what waits
// for that is begun first, and the other stories are told meanwhile.
func TestAttention(t *testing.T) {
	t.Parallel()
	ctx := system.Context(t, 6*time.Minute)
	d := &desk{System: system.Start(t, system.Options{Separate: true})}
	d.shop = d.Storefront()
	t.Cleanup(func() { d.Check(system.Context(t, time.Minute)) })
	long := map[string]ending{
		"a refund keeps failing":         refundKeepsFailing(ctx, t, d),
		"a capture in doubt is given up": captureGivenUp(ctx, t, d),
		"a capture in doubt was done":    captureWasDone(ctx, t, d),
	}
	for _, endings := range []map[string]ending{
		{
			"a refund fails for a while":           refundFailsForAWhile,
			"an undo is refused, and done by hand": undoDoneByHand,
			"an undo is refused, and tried again":  undoTriedAgain,
		},
		long,
	} {
		for name, tell := range endings {
			t.Run(name, func(t *testing.T) { tell(ctx, t, d) })
		}
	}
}

// refundFailsForAWhile: the parcel is lost after the payment was captured, the provider cannot give the money back at first, and the order
// service dies twice meanwhile. The refund is tried at growing intervals until it succeeds, and nobody is asked.
func refundFailsForAWhile(ctx context.Context, t *testing.T, d *desk) {
	const key, failures = "for-a-while", 5
	dispatch := d.fault(t, d.Carrier, key, control.Fault{Operation: "shipments.dispatch", Action: control.Hold})
	d.fault(t, d.Provider, key, control.Fault{Operation: "refunds.create", Action: control.FailBefore, Status: 503, Times: failures})
	id := d.place(ctx, t, key, system.Order{})
	system.Eventually(ctx, t, "the carrier to hold the dispatch", func() bool { return calls(ctx, t, d.System, id)["shipments.dispatch"] > 0 })
	if _, err := d.Carrier.Act(ctx, id, "lose"); err != nil {
		t.Fatal(err)
	}
	d.heal(t, d.Carrier, dispatch)
	for n := 1; n <= 2; n++ {
		system.Eventually(ctx, t, "another try", func() bool { return calls(ctx, t, d.System, id)["refunds.create"] > n })
		d.Kill("order", 0)
	}
	awaitStatus(ctx, t, d.shop, id, verify.Failed, verify.Cancelled, verify.Confirmed, verify.NeedsAttention)
	l, err := d.Provider.PaymentLedger(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	var tries []time.Time
	for _, c := range l.Calls {
		if c.Operation == "refunds.create" {
			tries = append(tries, c.At)
		}
	}
	if len(tries) != failures+1 {
		t.Fatalf("tries: got %d, want %d that fail and one that does not", len(tries), failures)
	}
	if first, last := tries[1].Sub(tries[0]), tries[failures].Sub(tries[failures-1]); last <= first {
		t.Errorf("intervals of the tries: got %s at first and %s at last, want them to grow", first, last)
	}
	if len(l.Refunds) != 1 || l.Refunds[0].Amount != 2500 {
		t.Errorf("refunds: got %+v, want one of 2500", l.Refunds)
	}
}

// refundKeepsFailing: the parcel is lost after the payment was captured, and the provider cannot give the money back.
func refundKeepsFailing(ctx context.Context, t *testing.T, d *desk) ending {
	t.Helper()
	const key = "refund"
	dispatch := d.fault(t, d.Carrier, key, control.Fault{Operation: "shipments.dispatch", Action: control.Hold})
	refund := d.fault(t, d.Provider, key, control.Fault{Operation: "refunds.create", Action: control.FailBefore, Status: 503})
	id := d.place(ctx, t, key, system.Order{})
	system.Eventually(ctx, t, "the carrier to hold the dispatch", func() bool { return calls(ctx, t, d.System, id)["shipments.dispatch"] > 0 })
	if _, err := d.Carrier.Act(ctx, id, "lose"); err != nil {
		t.Fatal(err)
	}
	d.heal(t, d.Carrier, dispatch)
	for range 2 {
		awaitStatus(ctx, t, d.shop, id, verify.Compensating, verify.Failed, verify.Cancelled, verify.Confirmed)
		before := calls(ctx, t, d.System, id)["refunds.create"]
		system.Eventually(ctx, t, "another try", func() bool { return calls(ctx, t, d.System, id)["refunds.create"] > before })
		d.Kill("order", 0)
	}
	return func(ctx context.Context, t *testing.T, d *desk) { refundIsTriedAgain(ctx, t, d, id, refund) }
}

// refundIsTriedAgain waits until a person is asked about a refund, who has it tried again without what hinders it.
func refundIsTriedAgain(ctx context.Context, t *testing.T, d *desk, id, rule string) {
	t.Helper()
	awaitStatus(ctx, t, d.shop, id, verify.NeedsAttention, verify.Failed, verify.Cancelled, verify.Confirmed)
	tries := calls(ctx, t, d.System, id)["refunds.create"]
	if !strings.Contains(mustAttend(t, d.System, "list"), id) {
		t.Errorf("list: got no %s, want it there", id)
	}
	show := mustAttend(t, d.System, "show", id)
	for _, want := range []string{"void_payment has no outcome", "needs_attention", "RUNNING", "pi_"} {
		if !strings.Contains(show, want) {
			t.Errorf("show: got\n%s\nwant %q in it", show, want)
		}
	}
	// With a delay that doubles from half a second there are 8 in two minutes; one that did not grow would make more than a hundred.
	if tries > 20 {
		t.Errorf("tries before a person was asked: got %d, want them to become rarer", tries)
	}
	d.heal(t, d.Provider, rule)
	mustAttend(t, d.System, "retry", id, "--reason", "the provider is back")
	healed, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	awaitStatus(healed, t, d.shop, id, verify.Failed, verify.Cancelled)
	if got := effects(ctx, t, d.System, id); got["refunds.create"] != 1 {
		t.Errorf("refunds: got %d, want 1", got["refunds.create"])
	}
}

// refusedUndo makes an order whose parcel the carrier does not take back.
func refusedUndo(ctx context.Context, t *testing.T, d *desk, key string) (id, rule string) {
	t.Helper()
	rule = d.fault(t, d.Carrier, key, control.Fault{
		Operation: "shipments.cancel", Action: control.AnswerWith, Status: 409, Body: `{"error":{"code":"already_dispatched","message":"it has left"}}`,
	})
	id = d.place(ctx, t, key, system.Order{PaymentMethod: "pm_sim_captureDeclined"})
	awaitStatus(ctx, t, d.shop, id, verify.NeedsAttention, verify.Failed, verify.Cancelled, verify.Confirmed)
	if got := effects(ctx, t, d.System, id); got["payment_intents.cancel"] != 0 {
		t.Errorf("effects: got %v, want the chain to stop at the refused undo", got)
	}
	return id, rule
}

func undoDoneByHand(ctx context.Context, t *testing.T, d *desk) {
	id, _ := refusedUndo(ctx, t, d, "by-hand")
	if out, err := attention(t, d.System, "mark-done", id); err == nil || !strings.Contains(out, "--reason") {
		t.Errorf("deciding without a reason: got %v, %s, want a refusal that says what is missing", err, out)
	}
	if _, err := d.Carrier.Act(ctx, id, "cancel"); err != nil {
		t.Fatal(err)
	}
	decide := []string{"mark-done", id, "--reason", "the carrier has stopped it by phone", "--actor", "kim", "--request-key", "by-hand-1"}
	if out := mustAttend(t, d.System, decide...); !strings.Contains(out, "cancel_shipment") {
		t.Errorf("deciding: got %q, want what it was about", out)
	}
	awaitStatus(ctx, t, d.shop, id, verify.Failed, verify.Cancelled)
	if out := mustAttend(t, d.System, decide...); !strings.Contains(out, "decided before") {
		t.Errorf("deciding again: got %q, want that it was decided before", out)
	}
	if out, err := attention(t, d.System, "retry", id, "--reason", "why not"); err == nil || !strings.Contains(out, "does not need a person") {
		t.Errorf("deciding about what needs nobody: got %v, %s, want a refusal", err, out)
	}
	var shown struct {
		Answer struct {
			Actions []struct {
				Actor, Reason, Step, Resolution string
			} `json:"actions"`
		} `json:"answer"`
	}
	if err := json.Unmarshal([]byte(mustAttend(t, d.System, "show", id, "--json")), &shown); err != nil {
		t.Fatal(err)
	}
	if a := shown.Answer.Actions; len(a) != 1 || a[0].Actor != "kim" || a[0].Step != "cancel_shipment" || a[0].Reason == "" {
		t.Errorf("decisions on record: got %+v, want kim's", a)
	}
}

func undoTriedAgain(ctx context.Context, t *testing.T, d *desk) {
	id, rule := refusedUndo(ctx, t, d, "again")
	mustAttend(t, d.System, "retry", id, "--reason", "let us see")
	system.Eventually(ctx, t, "the carrier to refuse again", func() bool { return calls(ctx, t, d.System, id)["shipments.cancel"] >= 2 })
	awaitStatus(ctx, t, d.shop, id, verify.NeedsAttention, verify.Failed, verify.Cancelled)
	d.heal(t, d.Carrier, rule)
	mustAttend(t, d.System, "retry", id, "--reason", "the carrier has found it on the shelf")
	awaitStatus(ctx, t, d.shop, id, verify.Failed, verify.Cancelled)
}

// captureInDoubt makes an order whose capture has no outcome, until a rule is taken away.
func captureInDoubt(ctx context.Context, t *testing.T, d *desk, key string) (id, rule string) {
	t.Helper()
	rule = d.fault(t, d.Provider, key, control.Fault{Operation: "payment_intents.capture", Action: control.FailBefore, Status: 503})
	return d.place(ctx, t, key, system.Order{}), rule
}

// awaitDoubt waits until a person is asked about a capture.
func awaitDoubt(ctx context.Context, t *testing.T, d *desk, id string) {
	t.Helper()
	awaitStatus(ctx, t, d.shop, id, verify.NeedsAttention, verify.Failed, verify.Cancelled, verify.Confirmed, verify.Compensating)
}

func captureGivenUp(ctx context.Context, t *testing.T, d *desk) ending {
	t.Helper()
	id, _ := captureInDoubt(ctx, t, d, "given-up")
	return func(ctx context.Context, t *testing.T, d *desk) {
		awaitDoubt(ctx, t, d, id)
		mustAttend(t, d.System, "undo", id, "--reason", "the client does not want to wait")
		awaitStatus(ctx, t, d.shop, id, verify.Failed, verify.Cancelled, verify.Confirmed)
		if a, err := d.shop.Get(ctx, id); err != nil || a.Order.FailureReason != "given_up" {
			t.Errorf("why it failed: got %v, %v, want given_up", a, err)
		}
		if got := effects(ctx, t, d.System, id); got["payment_intents.capture"] != 0 || got["shipments.cancel"] != 1 || got["payment_intents.cancel"] != 1 {
			t.Errorf("effects: got %v, want parcel and payment cancelled", got)
		}
	}
}

func captureWasDone(ctx context.Context, t *testing.T, d *desk) ending {
	t.Helper()
	id, rule := captureInDoubt(ctx, t, d, "was-done")
	return func(ctx context.Context, t *testing.T, d *desk) {
		awaitDoubt(ctx, t, d, id)
		d.heal(t, d.Provider, rule)
		mustAttend(t, d.System, "retry", id, "--reason", "the provider is back")
		awaitStatus(ctx, t, d.shop, id, verify.Confirmed, verify.Failed, verify.Cancelled, verify.Compensating)
	}
}
