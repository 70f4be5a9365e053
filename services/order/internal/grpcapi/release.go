package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	pg "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// Release lets due work go at once, once for each request key.
func (a *Attention) Release(ctx context.Context, req *attentionv1.ReleaseRequest) (*attentionv1.ReleaseResponse, error) {
	if violations := checkDecision(req.GetRequestKey(), req.GetActor(), req.GetReason()); len(violations) > 0 {
		return nil, invalid(violations)
	}
	resp, err := a.replayRelease(ctx, req)
	if resp != nil || err != nil {
		return resp, explain(ctx, err)
	}
	r := &postgres.Release{RequestKey: req.GetRequestKey(), Actor: req.GetActor(), Reason: req.GetReason(), Steps: make(map[string]int64)}
	// The participants first: should one not be reached, nothing is on record, and the call is repeated.
	for _, name := range a.witnesses.Names() {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		due, err := a.witnesses.Release(bounded, name)
		cancel()
		if err != nil {
			a.log.WarnContext(ctx, "participant not reached for a release", "participant", name, telemetry.LogError, err)
			return nil, grpcx.Error(grpcx.Unavailable, name+" cannot be reached now; try again with the same request key")
		}
		r.Steps[name] = due
	}
	err = postgres.ReleaseDue(ctx, a.pool, r)
	if pg.IsUniqueViolation(err, postgres.ReleaseConstraint) || errors.Is(err, pg.ErrCommitUnknown) {
		if again, readErr := a.replayRelease(ctx, req); again != nil || readErr != nil {
			return again, explain(ctx, readErr)
		}
	}
	if err != nil {
		return nil, explain(ctx, err)
	}
	a.log.InfoContext(ctx, "a person has let due work go at once", "actor", r.Actor, "reason", r.Reason, "sagas", r.Sagas, "steps", r.Steps)
	return &attentionv1.ReleaseResponse{DueWork: dueWorkOf(r)}, nil
}

// replayRelease answers from the record of a release; nil and no error if there is none.
func (a *Attention) replayRelease(ctx context.Context, req *attentionv1.ReleaseRequest) (*attentionv1.ReleaseResponse, error) {
	r, ok, err := postgres.FindRelease(ctx, a.pool, req.GetRequestKey())
	if err != nil || !ok {
		return nil, err
	}
	if r.Actor != req.GetActor() || r.Reason != req.GetReason() {
		return nil, grpcx.Error(grpcx.KeyMismatch, "the request key names another release")
	}
	return &attentionv1.ReleaseResponse{DueWork: dueWorkOf(&r), Replayed: true}, nil
}

func dueWorkOf(r *postgres.Release) *attentionv1.DueWork {
	return &attentionv1.DueWork{
		RequestKey: r.RequestKey, Actor: r.Actor, Reason: r.Reason, At: timestamppb.New(r.CreatedAt), Sagas: r.Sagas, Steps: r.Steps,
	}
}

// checkDecision checks what every decision of a person says of itself.
func checkDecision(key, actor, reason string) (vs []order.Violation) {
	fail := func(path, detail string) { vs = append(vs, order.Violation{Path: path, Detail: detail}) }
	printable := len(key) > 0 && len(key) <= maxRequestKey
	for i := range len(key) {
		printable = printable && key[i] >= 0x20 && key[i] <= 0x7e
	}
	if !printable {
		fail("request_key", fmt.Sprintf("must have 1 to %d printable ASCII characters", maxRequestKey))
	}
	if n := utf8.RuneCountInString(actor); n < 1 || n > maxActor {
		fail("actor", fmt.Sprintf("must have 1 to %d characters", maxActor))
	}
	if n := utf8.RuneCountInString(reason); n < 1 || n > maxWhy {
		fail("reason", fmt.Sprintf("must have 1 to %d characters", maxWhy))
	}
	return vs
}
