package sagasim

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/saga"
)

// decide lets a person look at an order that needs one, and decide as the ledgers allow: he says that something is done only when it is,
// which he may have seen to himself.
func (w *world) decide(o *order) {
	o.called = false
	q, needed := o.plan.Troubled(o.last, "")
	if !needed {
		return
	}
	decision, f := saga.RetryNow, triedByPerson
	switch pick := w.pick(3); {
	case pick == 1 && (q.Step == capture || q.Step == dispatch):
		decision, f = saga.UndoOtherWay, undoneByPerson
	case pick == 2 && (q.Step == capture || q.Step == dispatch) && w.doneByHand(o, q.Step):
		decision, f = saga.MarkDone, saidDone
	case pick != 0 && (q.Step == void || q.Step == cancelShipment) && w.undoneByHand(o, q.Step):
		o.byHand = true
		decision, f = saga.UndoOtherWay, undoneByPerson
		if pick == 2 {
			decision, f = saga.MarkDone, saidDone
		}
	}
	i := w.order.instances[w.pick(len(w.order.instances))]
	i.spawn(time.Time{}, []string{q.Step}, func(ctx context.Context) {
		_, err := i.parts.engine.Resolve(ctx, o.id, saga.Resolved{Decision: decision, Step: q.Step}, nil)
		switch {
		case ctx.Err() != nil, errors.Is(err, saga.ErrNothingToResolve): // somebody was faster
		case err != nil:
			w.failf("resolving: %w", err)
		default:
			w.hit(f, q.Step)
		}
	})
}

// doneByHand takes the money that is held, or sends the parcel, unless that has happened; and asks the ledgers.
func (w *world) doneByHand(o *order, step string) bool {
	for _, in := range w.provider.intents {
		if step == capture && in.Order == o.id && in.Status == toCapture {
			in.Status, in.Held, in.Captured = succeeded, 0, in.Amount
		}
	}
	for _, p := range w.carrier.parcels {
		if step == dispatch && p.Ref == keys.StepKey(o.id, create) && p.Status == packed {
			p.Status = dispatched
		}
	}
	l := w.ledgerOf(o)
	if step == capture {
		return l.charges == 1 && l.net == o.amount
	}
	return l.live == 1 && l.dispatched == 1
}

// undoneByHand gives the money back, or calls the parcel back. A person does so only when nothing can come after him: the tombstones are
// there, nobody is at it, and nothing is on its way.
func (w *world) undoneByHand(o *order, undo string) bool {
	p, actions := w.payment, []string{authorize, capture}
	if undo == cancelShipment {
		p, actions = w.shipping, []string{create, dispatch}
	}
	if len(w.requests) > 0 {
		return false
	}
	for _, action := range actions {
		r, ok := w.onRecord(p, o.id, action)
		if !ok || !r.Undone() || r.LeaseOwner != "" {
			return false
		}
	}
	if undo == void {
		for _, in := range w.provider.intents {
			switch {
			case in.Order != o.id:
			case in.Status == succeeded:
				in.Refunds = in.Captured
			default:
				in.Status, in.Held = canceled, 0
			}
		}
		return true
	}
	for _, parcel := range w.carrier.parcels {
		if parcel.Ref == keys.StepKey(o.id, create) && parcel.live() {
			parcel.Status = withdrawn
		}
	}
	return true
}

func (w *world) onRecord(p *participantService, order uuid.UUID, step string) (participant.Record, bool) {
	p.db.at(w.now)
	r, ok, err := p.db.Find(context.Background(), order, step)
	if err != nil {
		w.failf("reading a step: %w", err)
	}
	return r, ok
}
