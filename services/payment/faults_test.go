package payment_test

import (
	"slices"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/simulator/control"
	simulator "github.com/throughline/throughline/services/simulator/payment"
)

// TestAnswerLost covers calls that have their effect, or not, and whose answer says nothing: for each of the three that lead to
// captured money, in every way in which an answer can be lost, with a provider that heeds keys and with one that does not.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	w.start()
	operations := []string{"payment_intents.create", "payment_intents.confirm", "payment_intents.capture"}
	ways := map[string]control.Fault{
		"never answered":        {Action: control.Hold, Effect: control.EffectBefore},
		"answered too late":     {Action: control.Delay, DelayMS: 800, Effect: control.EffectBefore},
		"effect too late":       {Action: control.Delay, DelayMS: 800},
		"dropped":               {Action: control.DropAfter},
		"failed after":          {Action: control.FailAfter, Status: 500},
		"failed before":         {Action: control.FailBefore, Status: 503},
		"rate limited":          {Action: control.FailBefore, Status: 429},
		"not let in":            {Action: control.FailBefore, Status: 401},
		"page of a proxy":       {Action: control.AnswerWith, Status: 502, Body: "<html>\x00Bad Gateway</html>", ContentType: "text/html"},
		"page that says yes":    {Action: control.AnswerWith, Status: 200, Body: "<html>OK</html>", ContentType: "text/html"},
		"empty page":            {Action: control.AnswerWith, Status: 200},
		"empty object":          {Action: control.AnswerWith, Status: 200, Body: "{}"},
		"page that says no":     {Action: control.AnswerWith, Status: 402, Body: "<html>Payment Required</html>", ContentType: "text/html"},
		"status nobody planned": {Action: control.AnswerWith, Status: 418, Body: `{"error":{"type":"teapot","message":"short and stout"}}`},
	}
	type lost struct {
		*order
		title, operation string
		wantKeys         int
	}
	var cases []lost
	for name, fault := range ways {
		for _, operation := range operations {
			for _, dedup := range []bool{true, false} {
				c := lost{order: w.order(t), title: operation + " " + name, operation: operation, wantKeys: 1}
				if !dedup {
					c.title += ", keys not heeded"
					c.fault(control.Fault{Operation: control.AnyOperation, Action: control.NoDedup})
				}
				if operation == "payment_intents.create" && name == "failed after" && dedup {
					c.wantKeys = 2 // the stored error is all that the first one ever answers
				}
				f := fault
				f.Operation, f.Times = operation, 1
				c.fault(f)
				c.Send(authorize, c.authorizeCommand()) // all at once, since each takes its time
				cases = append(cases, c)
			}
		}
	}
	for _, o := range cases {
		t.Run(o.title, func(t *testing.T) {
			t.Parallel()
			o.T = t
			wantDone(t, o.Reply(authorize))
			wantDone(t, o.capture())
			o.wantMoney(money{charges: 1, captured: 2500})
			if got := o.keys(o.operation); len(got) != o.wantKeys {
				t.Errorf("keys of %s: got %v, want %d", o.operation, got, o.wantKeys)
			}
			if got, want := o.events(), []string{topology.PaymentAuthorized, topology.PaymentCaptured}; !slices.Equal(got, want) {
				t.Errorf("events: got %v, want %v", got, want)
			}
		})
	}
}

// events waits for the capture's event and lists all.
func (o *order) events() []string {
	o.T.Helper()
	o.Event(topology.PaymentCaptured)
	return o.Events()
}

// TestStoredError: the provider keeps an error that was no effect under the key, and repeats it for ever.
func TestStoredError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{RefundDelay: 100 * time.Millisecond})
	w.start()
	stored := true
	broken := func(operation string, times int) control.Fault {
		return control.Fault{Operation: operation, Action: control.FailBefore, Status: 500, Times: times, Stored: &stored}
	}
	t.Run("confirm", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		// The second of these is the first one's answer again.
		o.fault(broken("payment_intents.confirm", 3))
		wantDone(t, o.authorize())
		o.wantMoney(money{charges: 1, held: 2500})
		if got := o.keys("payment_intents.confirm"); len(got) != 3 {
			t.Errorf("keys: got %v, want three: two are used up", got)
		}
	})
	t.Run("create", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(broken("payment_intents.create", 1))
		wantDone(t, o.authorize())
		wantDone(t, o.capture())
		o.wantMoney(money{charges: 1, captured: 2500})
	})
	t.Run("capture", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(broken("payment_intents.capture", 1))
		wantDone(t, o.authorize())
		wantDone(t, o.capture())
		o.wantMoney(money{charges: 1, captured: 2500})
	})
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(broken("payment_intents.cancel", 1))
		wantDone(t, o.authorize())
		wantDone(t, o.void())
		o.wantMoney(money{charges: 1})
	})
	t.Run("refund", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(broken("refunds.create", 1))
		wantDone(t, o.authorize())
		wantDone(t, o.capture())
		wantDone(t, o.void())
		o.wantMoney(money{charges: 1, captured: 2500, refunded: 2500, refunds: 1})
	})
	t.Run("refund that fails after all", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.method = "pm_card_refundFail"
		// The refund is made, its answer is a stored error, and when it is asked for it has failed.
		o.fault(control.Fault{Operation: "refunds.list", Nth: 2, Times: 1, Action: control.Delay, DelayMS: 300})
		o.fault(control.Fault{Operation: "refunds.create", Action: control.FailAfter, Status: 500, Times: 1})
		wantDone(t, o.authorize())
		wantDone(t, o.capture())
		wantDone(t, o.void())
		if got := o.keys("refunds.create"); len(got) != 2 {
			t.Errorf("keys: got %v, want two: a failed refund is made anew", got)
		}
	})
}

// TestKeyInUse: the first confirmation is still being worked on when the second comes.
func TestKeyInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	w.start()
	for _, dedup := range []bool{true, false} {
		t.Run(map[bool]string{true: "keys heeded", false: "keys not heeded"}[dedup], func(t *testing.T) {
			t.Parallel()
			o := w.order(t)
			if !dedup {
				o.fault(control.Fault{Operation: control.AnyOperation, Action: control.NoDedup})
			}
			rule := o.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Hold, Times: 1})
			o.Send(authorize, o.authorizeCommand())
			o.held(rule, 1)
			if dedup {
				o.Until("a second confirmation was refused", func() bool { return o.calls("payment_intents.confirm") >= 2 })
				o.Until("the refusal is on record", func() bool { return o.Record(authorize).Attempts >= 3 })
				if got := o.Arrived(messaging.Reply); len(got) != 0 {
					t.Errorf("replies while the key is in use: got %+v, want none", got)
				}
			} else {
				wantDone(t, o.Reply(authorize))
			}
			o.release(rule)
			wantDone(t, o.Reply(authorize))
			o.wantMoney(money{charges: 1, held: 2500})
		})
	}
}

// TestTwoInstances: one command twice, at the same moment, for two instances.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	w.start()
	w.start()
	for _, dedup := range []bool{true, false} {
		for range 5 {
			t.Run(map[bool]string{true: "keys heeded", false: "keys not heeded"}[dedup], func(t *testing.T) {
				t.Parallel()
				o := w.order(t)
				if !dedup {
					o.fault(control.Fault{Operation: control.AnyOperation, Action: control.NoDedup})
				}
				o.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Delay, DelayMS: 300})
				first, second := o.Command(authorize, o.authorizeCommand()), o.Command(authorize, o.authorizeCommand())
				o.Publish(first)
				o.Publish(second)
				o.Publish(first)
				wantDone(t, o.Reply(authorize))
				wantDone(t, o.capture())
				o.wantMoney(money{charges: 1, captured: 2500})
				if got := o.events(); len(got) != 2 {
					t.Errorf("events: got %v, want one authorization and one capture", got)
				}
				if got := len(o.keys("payment_intents.confirm")); got != 1 || o.calls("payment_intents.confirm") != 1 {
					t.Errorf("confirmations: got %d under %d keys, want one", o.calls("payment_intents.confirm"), got)
				}
			})
		}
	}
}

// TestTakeover: an instance dies in the middle of calls, and another one takes its steps over.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	w.config.StepLease, w.config.StepSettle, w.config.ProviderTimeout = 5*time.Second, 500*time.Millisecond, 2*time.Second
	doomed := w.start()
	type taken struct {
		*order
		title, step, rule, operation, effect string
		last                                 messaging.Message // the command that the crash meets
	}
	var cases []taken
	for _, operation := range []string{"payment_intents.create", "payment_intents.confirm", "payment_intents.capture"} {
		for _, effect := range []string{control.EffectBefore, control.EffectAfter} {
			for _, dedup := range []bool{true, false} {
				c := taken{order: w.order(t), title: operation + ", effect " + effect + " the crash", step: authorize, operation: operation, effect: effect}
				if !dedup {
					c.title += ", keys not heeded"
					c.fault(control.Fault{Operation: control.AnyOperation, Action: control.NoDedup})
				}
				c.last = c.Command(authorize, c.authorizeCommand())
				if operation == "payment_intents.capture" {
					wantDone(t, c.authorize())
					c.step, c.last = capture, c.captureCommand()
				}
				c.rule = c.fault(control.Fault{Operation: operation, Action: control.Hold, Effect: effect, Times: 1})
				cases = append(cases, c)
			}
		}
	}
	for _, c := range cases {
		c.Publish(c.last)
	}
	for _, c := range cases {
		c.held(c.rule, 1)
	}
	doomed.Kill()
	for _, c := range cases {
		if got := c.Record(c.step); got.State != participant.StatePending || got.LeaseOwner == "" {
			t.Errorf("%s: record after the crash: got %s with owner %q, want a pending step that the dead one owns", c.title, got.State, got.LeaseOwner)
		}
		c.release(c.rule)
	}
	w.start()
	for _, c := range cases {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			c.T = t
			wantDone(t, c.Reply(c.step))
			if c.step == authorize {
				wantDone(t, c.capture())
			}
			c.wantMoney(money{charges: 1, captured: 2500})
			if got := c.calls(c.operation); c.operation != "payment_intents.create" && c.effect == control.EffectBefore && got != 1 {
				t.Errorf("calls of %s: got %d, want 1: whoever takes over asks first", c.operation, got)
			}
			if got := c.events(); len(got) != 2 {
				t.Errorf("events: got %v, want one authorization and one capture", got)
			}
		})
	}
}
