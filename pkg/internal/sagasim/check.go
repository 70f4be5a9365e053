package sagasim

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/saga"
)

func (w *world) orderOf(id uuid.UUID) *order {
	for _, o := range w.orders {
		if o.id == id {
			return o
		}
	}
	panic(fmt.Sprintf("order %s is not of this world", id))
}

// committed looks at a saga as it was committed. What an end promises must be true in that moment, not some time later.
func (w *world) committed(r *saga.Record) {
	o := w.orderOf(r.ID)
	o.begun = true
	before := o.last.Status
	w.inTime(o, r)
	if o.plan.Version() == 2 && before != "" {
		w.sideBySide(o.last.Steps, r.Steps)
	}
	o.last = r.Instance
	o.last.Steps = append([]saga.StepState(nil), r.Steps...)
	if r.Status != before {
		w.truth(o)
	}
	if r.Attention != "" && !o.called && w.pick(3) == 1 {
		o.called = true
		w.after(w.seconds(60), "a person looks", func() { w.decide(o) })
	}
}

// sideBySide notes what became of one of two parallel steps while the other was open.
func (w *world) sideBySide(before, after []saga.StepState) {
	open := func(s saga.StepState) bool { return s.Phase == saga.Sent || s.Phase == saga.Waiting }
	for i, beside := range []int{1, 0} {
		if open(before[i]) && after[i].Phase == saga.Refused && open(before[beside]) {
			w.hit(besideOpen, after[i].Name)
		}
		if after[i].Phase == saga.Undoing && before[i].Phase != saga.Undoing && after[beside].Phase == saga.Undoing {
			w.hit(undoneBeside, undoOf(after[i].Name))
		}
	}
}

// inTime checks that a step whose budget is used up is not left alone when its participant was asked: the saga has turned back, or
// a person is told.
func (w *world) inTime(o *order, r *saga.Record) {
	for i, s := range r.Steps {
		if i >= len(o.last.Steps) {
			return
		}
		before := o.last.Steps[i]
		if before.Phase != saga.Sent && before.Phase != saga.Undoing || w.now.Sub(before.Since) < saga.DefaultBudget {
			continue
		}
		asked := s.Phase == before.Phase && s.Asked > before.Asked
		undoing := before.Phase == saga.Undoing
		name := s.Name
		if undoing {
			name = undoOf(s.Name)
		}
		switch compensatable := s.Name == authorize || s.Name == create; {
		case asked && (undoing || !compensatable) && s.Attention == "", asked && !undoing && compensatable:
			w.failf("G3: %s has been %s since %s, and nobody is told", name, s.Phase, w.now.Sub(s.Since))
		case asked, s.Phase == saga.Undoing && !undoing && r.Reason == saga.ReasonTimedOut:
			w.hit(usedUp, name)
		}
	}
}

// ledger is what the outside has of an order.
type ledger struct {
	charges, holds, live, dispatched int
	net                              int64
}

func (w *world) ledgerOf(o *order) ledger {
	var l ledger
	for _, in := range w.provider.intents {
		if in.Order != o.id {
			continue
		}
		if in.Captured > 0 {
			l.charges++
		}
		if in.Held > 0 {
			l.holds++
		}
		l.net += in.Captured - in.Refunds
	}
	ref := keys.StepKey(o.id, create)
	for _, p := range w.carrier.parcels {
		if p.Ref != ref {
			continue
		}
		if p.live() {
			l.live++
		}
		if p.Status == dispatched {
			l.dispatched++
		}
	}
	return l
}

// truth checks that the order's state and the ledgers agree.
func (w *world) truth(o *order) {
	l := w.ledgerOf(o)
	switch o.last.Status {
	case saga.Completed:
		if l.net != o.amount || l.charges != 1 || l.holds != 0 || l.live != 1 || l.dispatched != 1 {
			w.failf("G2: completed, of %d; the ledgers say: %+v", o.amount, l)
		}
	case saga.Compensated:
		if l.net != 0 || l.holds != 0 || l.live != 0 {
			w.failf("G2: compensated; the ledgers say: %+v", l)
		}
	case saga.Running, saga.Compensating:
	}
}

// settled checks how everything has ended.
func (w *world) settled() {
	for _, o := range w.orders {
		if w.failed != nil {
			return
		}
		l := w.ledgerOf(o)
		switch {
		case !o.begun:
			w.failf("G3: an order was never begun")
		case l.charges > 1 || l.live > 1 && !o.dispatchedBy:
			w.failf("G1: %d charges, %d live shipments", l.charges, l.live)
		case o.last.Status.Ended():
			if o.last.Attention != "" {
				w.failf("G3: %s, and yet: %s", o.last.Status, o.last.Attention)
			}
		case !parked(&o.last):
			w.failf("G3: the saga has not ended: %s", describe(&o.last))
		}
		w.truth(o)
		if o.accepted && o.last.Status != saga.Compensated && !parked(&o.last) {
			w.failf("a cancel was accepted, and the saga is %s", o.last.Status)
		}
	}
	if w.failed == nil {
		if left := w.whatIsLeft(); left != "" {
			w.failf("something is left over: %s", left)
		}
	}
}

// parked tells whether a person must act: an undo was refused for good.
func parked(in *saga.Instance) bool {
	refused := false
	for _, s := range in.Steps {
		refused = refused || s.Phase == saga.UndoRefused
	}
	return refused && in.Attention != ""
}

func describe(in *saga.Instance) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", in.Status)
	for _, s := range in.Steps {
		fmt.Fprintf(&b, ", %s %q", s.Name, s.Phase)
	}
	return b.String()
}

// whatIsLeft lists what is under way.
func (w *world) whatIsLeft() string {
	var left []string
	for _, o := range w.orders {
		if !o.last.Status.Ended() && !parked(&o.last) {
			left = append(left, describe(&o.last))
		}
	}
	for _, s := range w.services {
		for _, m := range s.queue.messages {
			left = append(left, fmt.Sprintf("a message for %s about %s", s.name, m.StepName))
		}
		s.relay.settle()
		for _, x := range s.relay.rows {
			if !s.relay.sound(x) {
				left = append(left, fmt.Sprintf("an outbox row of %s: %s", s.name, x.Subject))
			}
		}
	}
	for _, p := range []*participantService{w.payment, w.shipping} {
		for _, r := range p.db.open() {
			if o := w.orderOf(r.OrderID); r.Undone() && r.DueAt == nil && (parked(&o.last) || o.byHand) {
				continue // what is in doubt stays so beside an undo that was refused, also when a person has dealt with it
			}
			left = append(left, fmt.Sprintf("step %s, %s", r.StepName, r.State))
		}
	}
	return strings.Join(left, "; ")
}
