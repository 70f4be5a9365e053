package stepapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/saga"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
)

var (
	// ErrUnknownParticipant says that a saga names a participant that nobody told us how to reach.
	ErrUnknownParticipant = errors.New("no connection to this participant")

	// ErrAnswer says that a participant gave an answer that means nothing here, as a newer one may.
	ErrAnswer = errors.New("answer not understood")
)

// Participants asks participants, by their name in sagas, over connections as grpcx.Dial makes them. It is a saga.Asker, is
// safe for concurrent use and must not change once it is used.
type Participants map[string]grpc.ClientConnInterface

var _ saga.Asker = Participants(nil)

// Ask asks a participant for its record of a step. It waits no longer than ctx lasts, less what grpcx keeps of a deadline,
// and does not wait for a participant that is not there. An error means that nothing was learnt.
func (p Participants) Ask(ctx context.Context, name string, sagaID uuid.UUID, step string, stepKey uuid.UUID) (saga.Answer, error) {
	conn, ok := p[name]
	if !ok {
		return saga.Answer{}, fmt.Errorf("asking %s about %s: %w", name, step, ErrUnknownParticipant)
	}
	got, err := stepv1.NewStepServiceClient(conn).GetStep(ctx, &stepv1.GetStepRequest{
		OrderId: sagaID.String(), StepName: step, StepKey: stepKey.String(),
	})
	if err != nil {
		return saga.Answer{}, fmt.Errorf("asking %s about %s: %w", name, step, err)
	}
	answer, ok := read(got)
	if !ok {
		return saga.Answer{}, fmt.Errorf("asking %s about %s: %w: state %s", name, step, ErrAnswer, got.GetState())
	}
	return answer, nil
}

// Look asks a participant for all that it has on record about a step, as [Participants.Ask] does.
func (p Participants) Look(ctx context.Context, name string, orderID uuid.UUID, step string) (*stepv1.GetStepResponse, error) {
	conn, ok := p[name]
	if !ok {
		return nil, fmt.Errorf("asking %s about %s: %w", name, step, ErrUnknownParticipant)
	}
	got, err := stepv1.NewStepServiceClient(conn).GetStep(ctx, &stepv1.GetStepRequest{
		OrderId: orderID.String(), StepName: step, StepKey: keys.StepKey(orderID, step).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("asking %s about %s: %w", name, step, err)
	}
	return got, nil
}

// Retry lets a participant attempt a step now, or an undo once more that was refused. It tells whether there is anything to attempt.
func (p Participants) Retry(ctx context.Context, name string, orderID uuid.UUID, step string) (bool, error) {
	conn, ok := p[name]
	if !ok {
		return false, fmt.Errorf("retrying %s at %s: %w", step, name, ErrUnknownParticipant)
	}
	got, err := stepv1.NewStepServiceClient(conn).RetryStep(ctx, &stepv1.RetryStepRequest{
		OrderId: orderID.String(), StepName: step, StepKey: keys.StepKey(orderID, step).String(),
	})
	if err != nil {
		return false, fmt.Errorf("retrying %s at %s: %w", step, name, err)
	}
	return got.GetRetried(), nil
}

// Release lets the steps that are due at a participant be attempted at once. It tells how many there are.
func (p Participants) Release(ctx context.Context, name string) (int64, error) {
	conn, ok := p[name]
	if !ok {
		return 0, fmt.Errorf("releasing the steps of %s: %w", name, ErrUnknownParticipant)
	}
	got, err := stepv1.NewStepServiceClient(conn).ReleaseSteps(ctx, &stepv1.ReleaseStepsRequest{})
	if err != nil {
		return 0, fmt.Errorf("releasing the steps of %s: %w", name, err)
	}
	return got.GetDue(), nil
}

// Names lists the participants, sorted.
func (p Participants) Names() []string { return slices.Sorted(maps.Keys(p)) }

func read(got *stepv1.GetStepResponse) (answer saga.Answer, ok bool) {
	switch got.GetState() {
	case stepv1.StepState_STEP_STATE_NOT_FOUND:
		return saga.Answer{Finding: saga.FoundNothing}, true
	case stepv1.StepState_STEP_STATE_RUNNING:
		return saga.Answer{Finding: saga.FoundRunning}, true
	case stepv1.StepState_STEP_STATE_WAITING:
		return saga.Answer{Finding: saga.FoundWaiting}, true
	case stepv1.StepState_STEP_STATE_DONE:
		if got.GetUndone() { // done, but undone, is not done
			return saga.Answer{Finding: saga.FoundRefused, Reason: participant.ReasonUndone}, true
		}
		return saga.Answer{Finding: saga.FoundDone}, true
	case stepv1.StepState_STEP_STATE_REFUSED:
		return saga.Answer{Finding: saga.FoundRefused, Reason: got.GetReason()}, true
	default:
		return saga.Answer{}, false
	}
}
