package sagasim

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/participant"
)

// shipments performs the shipping steps as a shipping service must: what is in doubt is looked up by its reference before anything
// else, and what is too much is cancelled. It follows the service that Throughline has decision by decision.
type shipments struct{ world *world }

func (s shipments) steps() []participant.Step {
	return s.world.watched(
		participant.Step{Name: create, Perform: s.create},
		participant.Step{Name: dispatch, Perform: s.dispatch},
		participant.Step{Name: cancelShipment, Undoes: []string{create, dispatch}, Perform: s.cancel},
	)
}

func (s shipments) search(ctx context.Context, order uuid.UUID) ([]parcel, error) {
	return outside(ctx, "search parcels", true, func() ([]parcel, error) {
		return s.world.carrier.search(keys.StepKey(order, create)), nil
	})
}

func (s shipments) create(ctx context.Context, c *participant.Call) participant.Outcome {
	if c.Attempt > 1 {
		if out := s.adopt(ctx, c); out != nil {
			return out
		}
	}
	made, err := outside(ctx, "create parcel", false, func() (parcel, error) {
		return s.world.carrier.create(c.OrderID, c.StepKey)
	})
	switch {
	case errors.Is(err, errAddress):
		return participant.Refused{Reason: "address_unknown"}
	case err != nil:
		// The next attempt looks first, and finds what is still on its way now.
		return participant.Unknown{Err: err, RetryAfter: settle}
	case c.Attempt > 1:
		if out := s.adopt(ctx, c); out != nil { // an earlier one may have arrived in between
			return out
		}
		return participant.Unknown{Err: errNoSuch, Reference: made.ID}
	}
	return participant.Done{Reference: made.ID}
}

// adopt takes what the carrier has as the order's shipment, and cancels what is too much; nil if there is nothing.
func (s shipments) adopt(ctx context.Context, c *participant.Call) participant.Outcome {
	found, err := s.search(ctx, c.OrderID)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	keep := parcel{}
	for _, p := range found {
		if p.live() && (keep.ID == "" || p.Status == dispatched && keep.Status == packed) {
			keep = p
		}
	}
	switch {
	case len(found) == 0:
		return nil
	case keep.ID == "":
		return participant.Refused{Reason: "gone_at_carrier", Reference: found[0].ID}
	}
	for _, p := range found {
		if p.ID == keep.ID || !p.live() {
			continue
		}
		after, err := s.cancelOne(ctx, p.ID)
		if err != nil || after.Status == packed {
			return participant.Unknown{Err: errors.Join(errAnswerNot, err), Reference: keep.ID}
		}
	}
	return participant.Done{Reference: keep.ID}
}

func (s shipments) cancelOne(ctx context.Context, id string) (parcel, error) {
	return outside(ctx, "cancel "+id, false, func() (parcel, error) { return s.world.carrier.cancel(id) })
}

func (s shipments) get(ctx context.Context, id string) (parcel, error) {
	return outside(ctx, "get "+id, true, func() (parcel, error) {
		if p := s.world.carrier.get(id); p != nil {
			return *p, nil
		}
		return parcel{}, errNoSuch
	})
}

func (s shipments) dispatch(ctx context.Context, c *participant.Call) participant.Outcome {
	made, ok, err := c.Sibling(ctx, create)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	if !ok || made.State != participant.StateDone || made.Reference == "" {
		return participant.Refused{Reason: "not_created"}
	}
	p := parcel{ID: made.Reference, Status: packed}
	if c.Attempt > 1 {
		if p, err = s.get(ctx, p.ID); err != nil {
			return participant.Unknown{Err: err, Reference: made.Reference}
		}
	}
	if p.Status == packed {
		p, err = outside(ctx, "dispatch "+p.ID, false, func() (parcel, error) { return s.world.carrier.dispatch(c.OrderID, made.Reference) })
		if err != nil {
			var askErr error
			if p, askErr = s.get(ctx, made.Reference); askErr != nil {
				return participant.Unknown{Err: errors.Join(err, askErr), Reference: made.Reference}
			}
		}
	}
	switch p.Status {
	case dispatched:
		return participant.Done{Reference: p.ID}
	case withdrawn, lost:
		return participant.Refused{Reason: "gone_at_carrier", Reference: p.ID}
	case packed:
	}
	return participant.Unknown{Err: errors.Join(errAnswerNot, err), Reference: made.Reference}
}

// cancel leaves the order without a live shipment, whatever it finds.
func (s shipments) cancel(ctx context.Context, c *participant.Call) participant.Outcome {
	made, ok, err := c.Sibling(ctx, create)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	if !ok || neverBegan(&made) && made.Attempts < 2 {
		return participant.Done{}
	}
	found, err := s.search(ctx, c.OrderID)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	left := ""
	for _, p := range found {
		if p.Status == packed {
			if p, err = s.cancelOne(ctx, p.ID); err != nil {
				return participant.Unknown{Err: err, Reference: made.Reference}
			}
		}
		if p.Status == dispatched {
			left = p.ID
		}
	}
	if left != "" {
		return participant.Refused{Reason: "already_dispatched", Reference: left}
	}
	return participant.Done{Reference: made.Reference}
}
