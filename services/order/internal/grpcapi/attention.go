package grpcapi

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/saga"
	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

const (
	defaultCases = 100
	maxCases     = 500
	// lookTimeout bounds one question to a participant. It looks up one row.
	lookTimeout = 3 * time.Second
)

// Witnesses are the participants, as an operator sees them.
type Witnesses interface {
	// Look asks for all that a participant has on record about a step.
	Look(ctx context.Context, participant string, orderID uuid.UUID, step string) (*stepv1.GetStepResponse, error)
	// Retry lets a participant attempt a step now. It tells whether there is anything to attempt.
	Retry(ctx context.Context, participant string, orderID uuid.UUID, step string) (bool, error)
	// Release lets what is due at a participant go at once. It tells how many steps that are.
	Release(ctx context.Context, participant string) (int64, error)
	// Names lists the participants.
	Names() []string
}

// Attention is AttentionService, for operators.
type Attention struct {
	attentionv1.UnimplementedAttentionServiceServer
	pool      *pgxpool.Pool
	engine    *saga.Engine[*orderv1.PlaceOrder]
	witnesses Witnesses
	log       *slog.Logger
}

// NewAttention makes an AttentionService.
func NewAttention(pool *pgxpool.Pool, engine *saga.Engine[*orderv1.PlaceOrder], witnesses Witnesses, log *slog.Logger) *Attention {
	return &Attention{pool: pool, engine: engine, witnesses: witnesses, log: log}
}

// ListAttention answers with the orders that need a person.
func (a *Attention) ListAttention(ctx context.Context, req *attentionv1.ListAttentionRequest) (*attentionv1.ListAttentionResponse, error) {
	size := int(req.GetPageSize())
	if size == 0 {
		size = defaultCases
	}
	if size < 1 || size > maxCases {
		return nil, invalid([]order.Violation{{Path: "page_size", Detail: fmt.Sprintf("must be from 1 to %d", maxCases)}})
	}
	since, id, ok := readCaseToken(req.GetPageToken())
	if !ok {
		return nil, invalid([]order.Violation{{Path: "page_token", Detail: "is not one of ours"}})
	}
	cases, err := postgres.ListCases(ctx, a.pool, since, id, size+1)
	if err != nil {
		return nil, explain(ctx, err)
	}
	resp := new(attentionv1.ListAttentionResponse)
	if len(cases) > size {
		cases = cases[:size]
		resp.NextPageToken = caseToken(cases[size-1])
	}
	for _, c := range cases {
		resp.Cases = append(resp.Cases, caseOf(&c, a.stepOf(ctx, c.OrderID)))
	}
	return resp, nil
}

// stepOf gives the command that an order needs a person for; nothing if that cannot be told here.
func (a *Attention) stepOf(ctx context.Context, id uuid.UUID) string {
	in, err := a.engine.Get(ctx, id)
	if err != nil {
		return ""
	}
	d, err := a.engine.DefinitionOf(&in)
	if err != nil {
		return ""
	}
	q, _ := d.Troubled(in, "")
	return q.Step
}

// GetAttention answers with all that is known of one order.
func (a *Attention) GetAttention(ctx context.Context, req *attentionv1.GetAttentionRequest) (*attentionv1.GetAttentionResponse, error) {
	id, err := uuid.Parse(req.GetOrderId())
	if err != nil {
		return nil, errNotFound
	}
	c, err := postgres.GetCase(ctx, a.pool, id)
	if err != nil {
		return nil, explain(ctx, err)
	}
	in, err := a.engine.Get(ctx, id)
	if err != nil {
		return nil, explain(ctx, err)
	}
	history, err := saga.ReadHistory(ctx, a.pool, id)
	if err != nil {
		return nil, explain(ctx, err)
	}
	actions, err := postgres.ListActions(ctx, a.pool, id)
	if err != nil {
		return nil, explain(ctx, err)
	}
	d, err := a.engine.DefinitionOf(&in)
	if err != nil {
		return nil, explain(ctx, err)
	}
	q, _ := d.Troubled(in, "")
	resp := &attentionv1.GetAttentionResponse{
		Case: caseOf(&c, q.Step), SagaStatus: string(in.Status), Records: a.testimony(ctx, id, d.Questions(in)),
	}
	for _, s := range in.Steps {
		resp.Steps = append(resp.Steps, stepOf(&s))
	}
	for _, e := range history {
		resp.History = append(resp.History, transitionOf(&e))
	}
	for _, action := range actions {
		resp.Actions = append(resp.Actions, actionOf(&action))
	}
	return resp, nil
}

// testimony asks the participants, all at once. One that does not answer costs only its own part.
func (a *Attention) testimony(ctx context.Context, id uuid.UUID, questions []saga.Question) []*attentionv1.Record {
	records := make([]*attentionv1.Record, len(questions))
	var asked sync.WaitGroup
	for i, q := range questions {
		asked.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, lookTimeout)
			defer cancel()
			r := &attentionv1.Record{Participant: q.Participant, Step: q.Step}
			records[i] = r
			got, err := a.witnesses.Look(bounded, q.Participant, id, q.Step)
			if err != nil {
				r.Error = err.Error()
				return
			}
			r.State = strings.TrimPrefix(got.GetState().String(), "STEP_STATE_")
			r.Reason, r.Attempts, r.Undone, r.UpdatedAt = got.GetReason(), got.GetAttempts(), got.GetUndone(), got.GetUpdatedAt()
			r.Reference, r.LastError = got.GetReference(), got.GetLastError()
		})
	}
	asked.Wait()
	return records
}

func caseOf(c *postgres.Case, step string) *attentionv1.Case {
	m := &attentionv1.Case{
		OrderId: c.OrderID.String(), ClientId: c.ClientID, IdempotencyKey: c.IdempotencyKey, Status: c.Status, Currency: c.Currency,
		Total: c.Total, Reason: c.Reason, Detail: c.Detail, FailureReason: c.FailureReason, Step: step,
	}
	if c.Since.Unix() > 0 {
		m.Since = timestamppb.New(c.Since)
	}
	return m
}

func stepOf(s *saga.StepState) *attentionv1.Step {
	return &attentionv1.Step{
		Name: s.Name, Phase: string(s.Phase), Attempts: int32(s.Attempts), Asked: int32(s.Asked), Since: stamp(s.Since), Due: stamp(s.Due), //nolint:gosec // counts of one order
		Reason: s.Reason, Attention: s.Attention,
	}
}

func transitionOf(e *saga.Entry) *attentionv1.Transition {
	t := &attentionv1.Transition{
		Revision: e.Revision, Step: e.Step, From: e.From, To: e.To, Cause: e.Cause, Attempt: int32(e.Attempt), At: timestamppb.New(e.At), //nolint:gosec // counts of one order
	}
	if e.CauseID != uuid.Nil {
		t.CauseId = e.CauseID.String()
	}
	return t
}

// stamp leaves a time out that is none.
func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// caseToken names the place behind a case in the list.
func caseToken(c postgres.Case) string {
	b := binary.BigEndian.AppendUint64([]byte{tokenVersion}, uint64(c.Since.UnixMicro())) //nolint:gosec // read back as it was
	return base64.RawURLEncoding.EncodeToString(append(b, c.OrderID[:]...))
}

func readCaseToken(s string) (since time.Time, id uuid.UUID, ok bool) {
	if s == "" {
		return time.Unix(0, 0), uuid.Nil, true
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 25 || b[0] != tokenVersion || strings.ContainsAny(s, "\r\n") {
		return time.Time{}, uuid.Nil, false
	}
	micros := int64(binary.BigEndian.Uint64(b[1:])) //nolint:gosec // written so
	if micros < 0 {
		return time.Time{}, uuid.Nil, false
	}
	return time.UnixMicro(micros), uuid.UUID(b[9:]), true
}
