package shipping_test

import (
	"slices"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/participant"
	shippingv1 "github.com/throughline/throughline/proto/gen/throughline/shipping/v1"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/simulator/control"
)

func TestShipment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	steps := w.start().Steps()

	t.Run("created and dispatched", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		made := o.create()
		wantDone(t, made)
		l := o.ledger()
		if got := result[shippingv1.ShipmentCreated](t, made).GetShipmentId(); len(l.Shipments) != 1 || got != l.Shipments[0].ID {
			t.Errorf("shipment: got %s, want that of the ledger, %+v", got, l.Shipments)
		}
		if got, want := l.Shipments[0].Reference, keys.StepKey(o.ID, create).String(); got != want {
			t.Errorf("reference: got %s, want the step key %s", got, want)
		}
		wantDone(t, o.dispatch())
		o.wantShipments("dispatched")
		l = o.ledger()
		if len(l.Calls) != 2 { // without faults each call is made once, and nothing is asked
			t.Errorf("calls: got %+v, want create and dispatch", l.Calls)
		}
		for _, c := range l.Calls {
			if c.IdempotencyKey != "" {
				t.Errorf("%s: got Idempotency-Key %q, want none: net/http would repeat the request", c.Operation, c.IdempotencyKey)
			}
		}
		o.Event(topology.ShipmentDispatched)
		if got, want := o.Events(), []string{topology.ShipmentCreated, topology.ShipmentDispatched}; !slices.Equal(got, want) {
			t.Errorf("events: got %v, want %v", got, want)
		}
		o.wantRow("dispatched", "")
		wantRefused(t, o.cancel(), "already_dispatched")
		o.wantShipments("dispatched")
		o.wantRow("dispatched", "already_dispatched")
		answer, err := steps.GetStep(t.Context(), &stepv1.GetStepRequest{OrderId: o.ID.String(), StepName: create, StepKey: keys.StepKey(o.ID, create).String()})
		if err != nil || answer.GetState() != stepv1.StepState_STEP_STATE_DONE || answer.GetReplyMessageId() != made.ID.String() {
			t.Errorf("GetStep: got %v, %v, want done by reply %s", answer, err, made.ID)
		}
	})

	for name, change := range map[string]func(*shippingv1.Address){
		"postal code": func(a *shippingv1.Address) { a.PostalCode = "00000" },
		"country":     func(a *shippingv1.Address) { a.Country = "AQ" },
		"box":         func(a *shippingv1.Address) { a.Line1 = "PO Box 7" },
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			t.Parallel()
			o := w.order(t)
			change(o.address)
			wantRefused(t, o.create(), "address_refused")
			if got := result[shippingv1.ShipmentRefused](t, o.Event(topology.ShipmentRefused)); got.GetReason() != "address_refused" || got.GetStepName() != create {
				t.Errorf("event: got %v, want address_refused for %s", got, create)
			}
			o.wantShipments()
			o.wantRow("refused", "address_refused")
			wantDone(t, o.cancel())
			if got := len(o.ledger().Calls); got != 1 {
				t.Errorf("calls: got %d, want 1: there is nothing to look for", got)
			}
		})
	}

	t.Run("refused: a command without what the carrier needs", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.address.City = ""
		wantRefused(t, o.create(), "rejected_by_carrier")
		o.wantShipments()
	})

	t.Run("dispatch of nothing", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantRefused(t, o.dispatch(), "not_created")
	})

	for do, reason := range map[string]string{"cancel": "cancelled_at_carrier", "lose": "lost_at_carrier"} {
		t.Run("dispatch after "+do, func(t *testing.T) {
			t.Parallel()
			o := w.order(t)
			wantDone(t, o.create())
			o.act(do)
			wantRefused(t, o.dispatch(), reason)
			wantDone(t, o.cancel())
		})
	}

	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantDone(t, o.create())
		cancelled := o.cancel()
		wantDone(t, cancelled)
		o.wantShipments("cancelled")
		if got, want := result[shippingv1.ShipmentCancelled](t, cancelled).GetShipmentIds(), o.ledger().Shipments[0].ID; !slices.Equal(got, []string{want}) {
			t.Errorf("cancelled: got %v, want %s", got, want)
		}
		wantRefused(t, o.dispatch(), "undone")
		o.wantRow("cancelled", "")
		o.Event(topology.ShipmentCancelled)
		if got, want := o.Events(), []string{topology.ShipmentCreated, topology.ShipmentCancelled}; !slices.Equal(got, want) {
			t.Errorf("events: got %v, want %v", got, want)
		}
	})

	t.Run("cancel before create", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantDone(t, o.cancel())
		wantRefused(t, o.create(), "undone")
		if got := o.ledger().Calls; len(got) != 0 {
			t.Errorf("calls: got %+v, want none", got)
		}
	})
}

// TestAnswerLost covers calls whose answer says nothing: in every way in which that can be. There is one live parcel, whatever
// happens, and none after the undo.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	ways := map[string]control.Fault{
		"never answered":        {Action: control.Hold, Effect: control.EffectBefore},
		"answered too late":     {Action: control.Delay, DelayMS: 700, Effect: control.EffectBefore},
		"effect too late":       {Action: control.Delay, DelayMS: 700},
		"dropped":               {Action: control.DropAfter},
		"failed after":          {Action: control.FailAfter, Status: 500},
		"failed before":         {Action: control.FailBefore, Status: 503},
		"rate limited":          {Action: control.FailBefore, Status: 429},
		"not let in":            {Action: control.FailBefore, Status: 403},
		"page of a proxy":       {Action: control.AnswerWith, Status: 502, Body: "<html>\x00Bad Gateway</html>", ContentType: "text/html"},
		"page that says yes":    {Action: control.AnswerWith, Status: 201, Body: "<html>Created</html>", ContentType: "text/html"},
		"page that says no":     {Action: control.AnswerWith, Status: 422, Body: "<html>Unprocessable</html>", ContentType: "text/html"},
		"empty page":            {Action: control.AnswerWith, Status: 200},
		"empty object":          {Action: control.AnswerWith, Status: 201, Body: "{}"},
		"redirected":            {Action: control.AnswerWith, Status: 307},
		"of another order":      {Action: control.AnswerWith, Status: 201, Body: `{"id":"shp_other","status":"created","reference":"x","order_id":"y"}`},
		"status nobody planned": {Action: control.AnswerWith, Status: 409, Body: `{"error":{"code":"teapot","message":"short and stout"}}`},
	}
	type lost struct {
		*order
		title, operation string
	}
	var cases []lost
	for name, fault := range ways {
		for _, operation := range []string{"shipments.create", "shipments.dispatch", "shipments.cancel"} {
			c := lost{order: w.order(t), title: operation + " " + name, operation: operation}
			f := fault
			f.Operation, f.Times = operation, 1
			c.fault(f)
			c.Publish(c.createCommand()) // all at once, since each takes its time
			cases = append(cases, c)
		}
	}
	for _, c := range cases {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			c.T = t
			wantDone(t, c.Reply(create))
			c.wantShipments("created")
			if c.operation == "shipments.dispatch" {
				wantDone(t, c.dispatch())
				c.wantShipments("dispatched")
				return
			}
			wantDone(t, c.cancel())
			c.wantShipments("cancelled")
		})
	}
}

// TestInDoubt: the order is undone while nobody knows whether it has a parcel.
func TestInDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.StepSettle = 3 * time.Second // time enough to release the creation before it is looked for
	w.start()

	t.Run("and there is none", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(control.Fault{Operation: "shipments.create", Action: control.FailBefore, Status: 503})
		o.Publish(o.createCommand())
		o.Until("the creation failed", func() bool { return o.calls("shipments.create") >= 1 })
		wantDone(t, o.cancel())
		o.wantShipments()
	})

	t.Run("and it arrives late", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		rule := o.fault(control.Fault{Operation: "shipments.create", Action: control.Hold, Times: 1})
		o.Publish(o.createCommand())
		o.held(rule, 1)
		o.Publish(o.cancelCommand())
		o.Until("its sender has given up", func() bool { return o.Record(create).LastError != "" })
		o.release(rule)
		wantDone(t, o.Reply(cancel))
		o.wantShipments("cancelled")
		wantRefused(t, o.create(), "undone")
	})

	t.Run("and the carrier is out of order for some time", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(control.Fault{Operation: "shipments.create", Action: control.DropAfter, Times: 1})
		o.fault(control.Fault{Operation: "shipments.find", Action: control.FailBefore, Status: 503, Times: 2})
		o.Publish(o.createCommand())
		o.Until("the creation was seen", func() bool { return o.calls("shipments.create") == 1 })
		wantDone(t, o.cancel())
		o.wantShipments("cancelled")
	})
}

// TestExtra: two creations arrive after all. One parcel is kept, the other cancelled.
func TestExtra(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	o := w.order(t)
	first := o.fault(control.Fault{Operation: "shipments.create", Action: control.Hold, Times: 1})
	second := o.fault(control.Fault{Operation: "shipments.create", Action: control.Hold, Nth: 2, Times: 1})
	o.Publish(o.createCommand())
	o.held(first, 1)
	o.held(second, 1) // nothing was found for as long as a creation is waited for, so another one was sent
	o.release(first)
	o.Until("the first has arrived", func() bool { return len(o.ledger().Shipments) == 1 })
	o.release(second)
	wantDone(t, o.Reply(create))
	o.Until("both have arrived", func() bool { return len(o.ledger().Shipments) == 2 })
	live := 0
	for _, s := range o.ledger().Shipments {
		if s.Status == "created" {
			live++
			if got := o.Record(create).Reference; got != s.ID {
				t.Errorf("reference: got %s, want the live shipment %s", got, s.ID)
			}
		}
	}
	if live != 1 {
		t.Errorf("live shipments: got %d of %+v, want 1", live, o.ledger().Shipments)
	}
	wantDone(t, o.cancel())
	o.wantShipments("cancelled", "cancelled")
}

// TestTwoInstances: one command twice, at the same moment, for two instances.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.start()
	for range 10 {
		t.Run("create", func(t *testing.T) {
			t.Parallel()
			o := w.order(t)
			o.fault(control.Fault{Operation: "shipments.create", Action: control.Delay, DelayMS: 200})
			first, second := o.createCommand(), o.createCommand()
			o.Publish(first)
			o.Publish(second)
			o.Publish(first)
			wantDone(t, o.Reply(create))
			o.wantShipments("created")
			wantDone(t, o.cancel())
			o.wantShipments("cancelled")
		})
	}
}

// TestTakeover: an instance dies in the middle of calls, and another one takes its steps over.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.StepLease, w.config.CarrierTimeout = 5*time.Second, 2*time.Second
	doomed := w.start()
	type taken struct {
		*order
		title, step, rule string
	}
	var cases []taken
	for step, operation := range map[string]string{create: "shipments.create", dispatch: "shipments.dispatch", cancel: "shipments.cancel"} {
		for _, effect := range []string{control.EffectBefore, control.EffectAfter} {
			c := taken{order: w.order(t), title: operation + ", effect " + effect + " the crash", step: step}
			last := c.createCommand()
			if step != create {
				wantDone(t, c.create())
				last = map[string]func() messaging.Message{dispatch: c.dispatchCommand, cancel: c.cancelCommand}[step]()
			}
			c.rule = c.fault(control.Fault{Operation: operation, Action: control.Hold, Effect: effect, Times: 1})
			c.Publish(last)
			c.held(c.rule, 1)
			cases = append(cases, c)
		}
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
			c.wantShipments(map[string]string{create: "created", dispatch: "dispatched", cancel: "cancelled"}[c.step])
		})
	}
}
