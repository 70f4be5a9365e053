package stepapi

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// Database is a pool, a connection or a transaction.
type Database interface {
	participant.Querier
	participant.Executor
}

// Register lets a gRPC server answer from the steps in a participant's database.
//
// GetStep fails with REQUEST_INVALID when the ids are none, or the step key is not that of the order and the step: the
// caller and we would then talk about two different things. It fails with UNAVAILABLE while the database is away. So do RetryStep and
// ReleaseSteps.
func Register(s grpc.ServiceRegistrar, db Database) {
	stepv1.RegisterStepServiceServer(s, &server{db: db})
}

type server struct {
	stepv1.UnimplementedStepServiceServer
	db Database
}

// GetStep implements stepv1.StepServiceServer.
func (s *server) GetStep(ctx context.Context, req *stepv1.GetStepRequest) (*stepv1.GetStepResponse, error) {
	orderID, err := parse(req.GetOrderId(), req.GetStepName(), req.GetStepKey())
	if err != nil {
		return nil, err
	}
	record, found, err := participant.Find(ctx, s.db, orderID, req.GetStepName())
	switch {
	case postgres.Classify(err) == postgres.Unavailable:
		return nil, grpcx.Error(grpcx.Unavailable, "the participant's database cannot be used now")
	case err != nil:
		return nil, fmt.Errorf("answering about a step: %w", err)
	case !found:
		return &stepv1.GetStepResponse{State: stepv1.StepState_STEP_STATE_NOT_FOUND}, nil
	}
	return render(&record)
}

// RetryStep implements stepv1.StepServiceServer.
func (s *server) RetryStep(ctx context.Context, req *stepv1.RetryStepRequest) (*stepv1.RetryStepResponse, error) {
	orderID, err := parse(req.GetOrderId(), req.GetStepName(), req.GetStepKey())
	if err != nil {
		return nil, err
	}
	_, retried, err := participant.Retry(ctx, s.db, orderID, req.GetStepName())
	switch {
	case postgres.Classify(err) == postgres.Unavailable:
		return nil, grpcx.Error(grpcx.Unavailable, "the participant's database cannot be used now")
	case err != nil:
		return nil, fmt.Errorf("retrying a step: %w", err)
	}
	return &stepv1.RetryStepResponse{Retried: retried}, nil
}

// ReleaseSteps implements stepv1.StepServiceServer.
func (s *server) ReleaseSteps(ctx context.Context, _ *stepv1.ReleaseStepsRequest) (*stepv1.ReleaseStepsResponse, error) {
	due, err := participant.Release(ctx, s.db)
	switch {
	case postgres.Classify(err) == postgres.Unavailable:
		return nil, grpcx.Error(grpcx.Unavailable, "the participant's database cannot be used now")
	case err != nil:
		return nil, err
	}
	return &stepv1.ReleaseStepsResponse{Due: due}, nil
}

func parse(order, step, key string) (uuid.UUID, error) {
	orderID, err := uuid.Parse(order)
	if err != nil {
		return uuid.Nil, invalid("order_id", "is not a UUID")
	}
	if step == "" {
		return uuid.Nil, invalid("step_name", "is empty")
	}
	stepKey, err := uuid.Parse(key)
	if err != nil {
		return uuid.Nil, invalid("step_key", "is not a UUID")
	}
	if stepKey != keys.StepKey(orderID, step) {
		return uuid.Nil, invalid("step_key", "is not the key of this step of this order")
	}
	return orderID, nil
}

func invalid(path, detail string) error {
	return grpcx.Error(grpcx.RequestInvalid, path+" "+detail, grpcx.WithViolations(grpcx.Violation{Path: path, Detail: detail}))
}

func render(r *participant.Record) (*stepv1.GetStepResponse, error) {
	answer := &stepv1.GetStepResponse{
		Reason: r.Reason, ResultType: r.ResultType, Result: r.Result, Attempts: int32(min(r.Attempts, 1<<31-1)), //nolint:gosec // bounded
		UpdatedAt: timestamppb.New(r.UpdatedAt), Undone: r.Undone(), Reference: r.Reference, LastError: r.LastError,
	}
	if r.ReplyID != uuid.Nil {
		answer.ReplyMessageId = r.ReplyID.String()
	}
	switch r.State {
	case participant.StatePending:
		answer.State = stepv1.StepState_STEP_STATE_RUNNING
	case participant.StateWaiting:
		answer.State = stepv1.StepState_STEP_STATE_WAITING
	case participant.StateDone:
		answer.State = stepv1.StepState_STEP_STATE_DONE
	case participant.StateRefused:
		answer.State = stepv1.StepState_STEP_STATE_REFUSED
	default:
		return nil, fmt.Errorf("answering about step %s of %s: it is in the state %q", r.StepName, r.OrderID, r.State)
	}
	return answer, nil
}
