package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

// VerifyShipment is the check of create_shipment. Nobody asks for it.
const VerifyShipment = "verify_shipment"

// DefaultCheckTime is how long after its end a creation that was in doubt is looked up again. A request may lie in a queue of the
// carrier's for as long as the carrier has an outage.
const DefaultCheckTime = 24 * time.Hour

// checkMax bounds the time between two looks.
const checkMax = time.Hour

// verify looks for what a creation without an answer has booked after all, when the order has its shipment or must not have one, and
// cancels it. It looks again and again, each time after half of the time that has passed, for all of the check time: about 20 times in a
// day. A webhook about the order lets it look at once.
func (s *Steps) verify(ctx context.Context, call *participant.Call) participant.Outcome {
	create, ok, err := call.Sibling(ctx, CreateShipment)
	undo, undone, undoErr := call.Sibling(ctx, CancelShipment)
	switch {
	case err != nil || undoErr != nil:
		return participant.Unknown{Err: errors.Join(err, undoErr)}
	case !ok:
		return participant.Done{}
	}
	last := create.UpdatedAt
	if undone && undo.UpdatedAt.After(last) {
		last = undo.UpdatedAt
	}
	passed := max(call.Now.Sub(last), 0)
	if !create.State.Finished() || undone && !undo.State.Finished() {
		return participant.Waiting{Ask: s.nextLook(passed)} // who is at it looks, too
	}
	keep := ""
	if create.State == participant.StateDone && !create.Undone() {
		keep = create.Reference
	}
	o := s.order(call.OrderID)
	found, err := o.Find(ctx)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	for _, sh := range found {
		if sh.ID == keep || !sh.Live() {
			continue
		}
		status, err := cancelOne(ctx, o, sh.ID)
		if err != nil {
			return participant.Unknown{Err: fmt.Errorf("cancelling a shipment that came late: %w", err)}
		}
		level := slog.LevelWarn
		if status == shipping.Dispatched {
			level = slog.LevelError // it is on its way, and no repetition brings it back
		}
		s.log.Log(ctx, level, "a creation without an answer had booked a shipment after all", telemetry.LogOrderID, call.OrderID,
			"shipment_id", sh.ID, telemetry.LogStatus, status)
	}
	if passed >= s.cfg.CheckTime {
		return participant.Done{}
	}
	return participant.Waiting{Ask: min(s.nextLook(passed), s.cfg.CheckTime-passed)}
}

// nextLook is how long to wait after so much time.
func (s *Steps) nextLook(passed time.Duration) time.Duration {
	return min(max(passed/2, s.cfg.Settle), checkMax)
}
