package shipping_test

import (
	"slices"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/simulator/control"
)

const verify = "verify_shipment"

// holdCreation lets the carrier hold the first creation for longer than anybody waits for it.
func (o *order) holdCreation() string {
	o.T.Helper()
	return o.fault(control.Fault{Operation: "shipments.create", Action: control.Hold, Times: 1})
}

// untilShipments waits until the order's shipments at the carrier have these statuses, oldest first.
func (o *order) untilShipments(want ...string) {
	o.T.Helper()
	o.Until("the carrier has what it should", func() bool {
		var got []string
		for _, s := range o.ledger().Shipments {
			got = append(got, s.Status)
		}
		return slices.Equal(got, want)
	})
}

// A creation that nobody got an answer to takes effect when everything is over. Whatever the order has come to, it has one shipment, or
// none.
func TestCreationThatComesTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()

	t.Run("after the order was confirmed", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		rule := o.holdCreation()
		wantDone(t, o.create())
		wantDone(t, o.dispatch())
		o.wantShipments("dispatched")
		o.release(rule)
		o.untilShipments("dispatched", "cancelled")
	})
	t.Run("after the order was undone", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		rule := o.holdCreation()
		o.Publish(o.createCommand())
		o.held(rule, 1)
		wantDone(t, o.cancel())
		o.wantShipments()
		o.release(rule)
		o.untilShipments("cancelled")
	})
	t.Run("after a creation that was done was undone", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		rule := o.holdCreation()
		wantDone(t, o.create())
		wantDone(t, o.cancel())
		o.wantShipments("cancelled")
		o.release(rule)
		o.untilShipments("cancelled", "cancelled")
	})
	t.Run("and twice", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		one := o.holdCreation()
		o.Publish(o.createCommand())
		o.held(one, 1)
		two := o.fault(control.Fault{Operation: "shipments.create", Action: control.Hold, Times: 1})
		o.held(two, 1)
		wantDone(t, o.cancel())
		o.release(one)
		o.untilShipments("cancelled")
		o.release(two)
		o.untilShipments("cancelled", "cancelled")
	})
	t.Run("no check without a doubt", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantDone(t, o.create())
		wantDone(t, o.cancel())
		if rec, ok, err := participant.Find(t.Context(), w.DB, o.ID, verify); ok || err != nil {
			t.Errorf("check: got %+v, %v, want none", rec, err)
		}
		if got := o.calls("shipments.find"); got != 1 {
			t.Errorf("look-ups: got %d, want that of the undo", got)
		}
	})
}

// The check is on record together with the end that it is about, so it survives whoever recorded that.
func TestCheckSurvivesACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.start()
	o := w.order(t)
	rule := o.holdCreation()
	o.Publish(o.createCommand())
	o.held(rule, 1)
	wantDone(t, o.cancel())
	in.Kill()
	o.release(rule)
	o.untilShipments("created")
	w.start()
	o.untilShipments("cancelled")
}

// The check ends by itself, after the time that it is given.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.CheckTime = time.Second
	w.start()
	o := w.order(t)
	rule := o.holdCreation()
	o.Publish(o.createCommand())
	o.held(rule, 1)
	wantDone(t, o.cancel())
	o.Until("the check has ended", func() bool { return o.Record(verify).State == participant.StateDone })
	if rec := o.Record(verify); rec.DueAt != nil || rec.Attempts < 2 {
		t.Errorf("check: got %+v, want it due no more after several looks", rec)
	}
}

// A look that fails is repeated.
func TestCheckMeetsAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	o := w.order(t)
	rule := o.holdCreation()
	o.Publish(o.createCommand())
	o.held(rule, 1)
	wantDone(t, o.cancel())
	o.fault(control.Fault{Operation: "shipments.find", Action: control.FailBefore, Status: 503, Times: 2})
	o.fault(control.Fault{Operation: "shipments.cancel", Action: control.DropAfter, Times: 1})
	o.release(rule)
	o.untilShipments("cancelled")
	o.Until("the check knows", func() bool { return o.Record(verify).State == participant.StateWaiting })
}
