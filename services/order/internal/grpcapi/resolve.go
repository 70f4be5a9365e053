package grpcapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	pg "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/telemetry"
	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/placeorder"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// decisions is what the resolutions mean to the saga.
var decisions = map[attentionv1.Resolution]saga.Decision{
	attentionv1.Resolution_RESOLUTION_RETRY:          saga.RetryNow,
	attentionv1.Resolution_RESOLUTION_UNDO_OTHER_WAY: saga.UndoOtherWay,
	attentionv1.Resolution_RESOLUTION_MARK_DONE:      saga.MarkDone,
}

const (
	maxRequestKey = 255
	maxActor      = 200
	maxWhy        = 1000
)

// Resolve decides about a step that needs a person, once for each request key.
func (a *Attention) Resolve(ctx context.Context, req *attentionv1.ResolveRequest) (*attentionv1.ResolveResponse, error) {
	id, violations := checkResolve(req)
	if len(violations) > 0 {
		return nil, invalid(violations)
	}
	resp, err := a.replay(ctx, req)
	if resp == nil && err == nil {
		resp, err = a.resolve(ctx, id, req)
	}
	if errors.Is(err, errDecided) || errors.Is(err, errNothingToResolve) || errors.Is(err, pg.ErrCommitUnknown) {
		// Another call with the key was first, or the answer of our own commit was lost.
		if again, readErr := a.replay(ctx, req); again != nil || readErr != nil {
			resp, err = again, readErr
		}
	}
	return resp, explain(ctx, err)
}

func checkResolve(req *attentionv1.ResolveRequest) (id uuid.UUID, vs []order.Violation) {
	vs = checkDecision(req.GetRequestKey(), req.GetActor(), req.GetReason())
	id, err := uuid.Parse(req.GetOrderId())
	if err != nil {
		vs = append(vs, order.Violation{Path: "order_id", Detail: "is not a UUID"})
	}
	if _, ok := decisions[req.GetResolution()]; !ok {
		vs = append(vs, order.Violation{Path: "resolution", Detail: "must be RESOLUTION_RETRY, RESOLUTION_UNDO_OTHER_WAY or RESOLUTION_MARK_DONE"})
	}
	return id, vs
}

// errDecided says that the decision is on record.
var errDecided = errors.New("the decision is on record")

func (a *Attention) resolve(ctx context.Context, id uuid.UUID, req *attentionv1.ResolveRequest) (*attentionv1.ResolveResponse, error) {
	in, err := a.engine.Get(ctx, id)
	if errors.Is(err, saga.ErrNotFound) {
		return nil, errNotFound
	}
	if err != nil {
		return nil, err
	}
	d, err := a.engine.DefinitionOf(&in)
	if err != nil {
		return nil, err
	}
	question, ok := d.Troubled(in, req.GetStep())
	if !ok {
		return nil, errNothingToResolve
	}
	action := &postgres.Action{
		RequestKey: req.GetRequestKey(), OrderID: id, AskedStep: req.GetStep(), Step: question.Step,
		Resolution: string(decisions[req.GetResolution()]), Actor: req.GetActor(), Reason: req.GetReason(),
	}
	if err := a.heard(ctx, in, question, req.GetResolution()); err != nil {
		return nil, err
	}
	after, err := a.decide(ctx, in, question, action)
	if err != nil {
		return nil, err
	}
	a.log.InfoContext(ctx, "a person has decided", telemetry.LogOrderID, id, telemetry.LogStep, question.Step, "resolution", action.Resolution,
		"actor", action.Actor, "reason", action.Reason, telemetry.LogState, placeorder.StatusOf(&after))
	return &attentionv1.ResolveResponse{Action: actionOf(action), Status: string(placeorder.StatusOf(&after))}, nil
}

var errNothingToResolve = grpcx.Error(grpcx.NothingToResolve, "the order does not need a person for this step, or cannot be resolved so")

// heard refuses to take an undo as done that its participant has not heard of: until it has, it would still perform the action, should that
// come late, and nobody would undo it any more. A participant that cannot be asked is the person's own affair.
func (a *Attention) heard(ctx context.Context, in saga.Instance, q saga.Question, r attentionv1.Resolution) error {
	undoing := slices.ContainsFunc(in.Steps, func(s saga.StepState) bool { return s.Phase == saga.Undoing && s.Attention != "" })
	if r == attentionv1.Resolution_RESOLUTION_RETRY || !undoing {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	got, err := a.witnesses.Look(bounded, q.Participant, in.ID, q.Step)
	if err == nil && got.GetState() == stepv1.StepState_STEP_STATE_NOT_FOUND {
		return grpcx.Error(grpcx.NothingToResolve, q.Participant+" has not heard of "+q.Step+" yet, and might still perform what it undoes; retry it first")
	}
	return nil
}

// decide carries a decision out and puts it on record. A retry reaches the participant first: should it not, nothing has happened; and
// should it be done before the saga hears of the decision, the decision is on record all the same.
func (a *Attention) decide(ctx context.Context, in saga.Instance, q saga.Question, action *postgres.Action) (saga.Instance, error) {
	retried := false
	if saga.Decision(action.Resolution) == saga.RetryNow {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		var err error
		if retried, err = a.witnesses.Retry(bounded, q.Participant, in.ID, q.Step); err != nil {
			a.log.WarnContext(ctx, "participant not reached for a retry", telemetry.LogOrderID, in.ID, telemetry.LogStep, q.Step, telemetry.LogError, err)
			return saga.Instance{}, grpcx.Error(grpcx.Unavailable, q.Participant+" cannot be reached now; try again with the same request key")
		}
	}
	after, err := a.engine.Resolve(ctx, in.ID, saga.Resolved{Decision: saga.Decision(action.Resolution), Step: q.Step},
		func(b *pgx.Batch, before, after saga.Instance) error { return queueAction(b, action, before, after) })
	if errors.Is(err, saga.ErrNothingToResolve) && retried {
		if after, err = a.engine.Get(ctx, in.ID); err != nil {
			return saga.Instance{}, err
		}
		var b pgx.Batch
		if err := queueAction(&b, action, in, after); err != nil {
			return saga.Instance{}, err
		}
		err = pg.SendAtomic(ctx, a.pool, &b)
	}
	switch {
	case errors.Is(err, saga.ErrNothingToResolve):
		return saga.Instance{}, errNothingToResolve
	case pg.IsUniqueViolation(err, postgres.ActionConstraint):
		return saga.Instance{}, errDecided
	}
	return after, err
}

func queueAction(b *pgx.Batch, action *postgres.Action, before, after saga.Instance) (err error) {
	if action.Before, err = snapshot(&before); err != nil {
		return err
	}
	if action.After, err = snapshot(&after); err != nil {
		return err
	}
	postgres.QueueAction(b, action)
	return nil
}

// snapshot is what an order was at, for the record.
func snapshot(in *saga.Instance) (string, error) {
	type step struct {
		Name      string `json:"name"`
		Phase     string `json:"phase"`
		Attempts  int    `json:"attempts"`
		Reason    string `json:"reason,omitempty"`
		Attention string `json:"attention,omitempty"`
	}
	state := struct {
		Status   string `json:"status"`
		Saga     string `json:"saga"`
		Reason   string `json:"reason,omitempty"`
		Revision int64  `json:"revision"`
		Steps    []step `json:"steps"`
	}{Status: string(placeorder.StatusOf(in)), Saga: string(in.Status), Reason: in.Reason, Revision: in.Revision}
	for _, s := range in.Steps {
		state.Steps = append(state.Steps, step{s.Name, string(s.Phase), s.Attempts, s.Reason, s.Attention})
	}
	b, err := json.Marshal(state)
	if err != nil {
		return "", fmt.Errorf("encoding the state of order %s: %w", in.ID, err)
	}
	return string(b), nil
}

// replay answers from the record of a decision; nil and no error if there is none.
func (a *Attention) replay(ctx context.Context, req *attentionv1.ResolveRequest) (*attentionv1.ResolveResponse, error) {
	action, ok, err := postgres.FindAction(ctx, a.pool, req.GetRequestKey())
	if err != nil || !ok {
		return nil, err
	}
	if action.OrderID.String() != req.GetOrderId() || action.Resolution != string(decisions[req.GetResolution()]) || action.Actor != req.GetActor() ||
		action.Reason != req.GetReason() || req.GetStep() != action.AskedStep {
		return nil, grpcx.Error(grpcx.KeyMismatch, "the request key names another decision")
	}
	c, err := postgres.GetCase(ctx, a.pool, action.OrderID)
	if err != nil {
		return nil, err
	}
	return &attentionv1.ResolveResponse{Action: actionOf(&action), Status: c.Status, Replayed: true}, nil
}

func actionOf(a *postgres.Action) *attentionv1.Action {
	m := &attentionv1.Action{
		RequestKey: a.RequestKey, OrderId: a.OrderID.String(), Step: a.Step, Actor: a.Actor, Reason: a.Reason, At: timestamppb.New(a.CreatedAt),
		Before: a.Before, After: a.After,
	}
	for resolution, decision := range decisions {
		if string(decision) == a.Resolution {
			m.Resolution = resolution
		}
	}
	return m
}
