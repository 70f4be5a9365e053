package stepapi_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/pkg/saga"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/stepapi"
)

const (
	credential = "between-us"
	step       = "authorize_payment"
)

var (
	replyID = uuid.MustParse("0192d6a0-0000-7000-8000-000000000001")
	updated = time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC)
)

// serve answers a connection to a server with what every service's server has, by real TCP.
func serve(t *testing.T, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	s, err := grpcx.NewServer(grpcx.ServerConfig{Credentials: []string{credential}})
	if err != nil {
		t.Fatal(err)
	}
	register(s)
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: lis.Addr().String(), Credential: credential})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func serveSteps(t *testing.T) (*pgxpool.Pool, *grpc.ClientConn) {
	t.Helper()
	pool := pgtest.New(t, participant.Migrations())
	return pool, serve(t, func(s grpc.ServiceRegistrar) { stepapi.Register(s, pool) })
}

func TestWhatBecameOfAStep(t *testing.T) {
	t.Parallel()
	pool, conn := serveSteps(t)
	participants := stepapi.Participants{"payment": conn}
	tests := map[string]struct {
		state  string // empty: no record
		undone bool
		reason string
		want   saga.Answer
		wire   stepv1.StepState
	}{
		"no record":        {want: saga.Answer{Finding: saga.FoundNothing}, wire: stepv1.StepState_STEP_STATE_NOT_FOUND},
		"running":          {state: "pending", want: saga.Answer{Finding: saga.FoundRunning}, wire: stepv1.StepState_STEP_STATE_RUNNING},
		"waiting":          {state: "waiting", want: saga.Answer{Finding: saga.FoundWaiting}, wire: stepv1.StepState_STEP_STATE_WAITING},
		"done":             {state: "done", want: saga.Answer{Finding: saga.FoundDone}, wire: stepv1.StepState_STEP_STATE_DONE},
		"done, but undone": {state: "done", undone: true, want: saga.Answer{Finding: saga.FoundRefused, Reason: "undone"}, wire: stepv1.StepState_STEP_STATE_DONE},
		"running, undone":  {state: "pending", undone: true, want: saga.Answer{Finding: saga.FoundRunning}, wire: stepv1.StepState_STEP_STATE_RUNNING},
		"refused":          {state: "refused", reason: "card_declined", want: saga.Answer{Finding: saga.FoundRefused, Reason: "card_declined"}, wire: stepv1.StepState_STEP_STATE_REFUSED},
		"tombstone":        {state: "refused", reason: "undone", undone: true, want: saga.Answer{Finding: saga.FoundRefused, Reason: "undone"}, wire: stepv1.StepState_STEP_STATE_REFUSED},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			order := uuid.New()
			want := &stepv1.GetStepResponse{State: tt.wire}
			if tt.state != "" {
				_, err := pool.Exec(t.Context(), `
					INSERT INTO step (order_id, step_name, kind, state, undone_at, reason, attempts, result_type, result, reply_id, updated_at)
					VALUES ($1, $2, 'action', $3, CASE WHEN $4 THEN now() END, $5, 3, 'a.Type', 'payload', $6, $7)`,
					order, step, tt.state, tt.undone, tt.reason, replyID, updated)
				if err != nil {
					t.Fatal(err)
				}
				want = &stepv1.GetStepResponse{
					State: tt.wire, Reason: tt.reason, ResultType: "a.Type", Result: []byte("payload"), Attempts: 3,
					ReplyMessageId: replyID.String(), UpdatedAt: timestamppb.New(updated), Undone: tt.undone,
				}
			}
			got, err := participants.Ask(t.Context(), "payment", order, step, keys.StepKey(order, step))
			if err != nil || got != tt.want {
				t.Errorf("answer: got %+v, %v, want %+v", got, err, tt.want)
			}
			onWire, err := stepv1.NewStepServiceClient(conn).GetStep(t.Context(), request(order, step, keys.StepKey(order, step)))
			if err != nil || !proto.Equal(onWire, want) {
				t.Errorf("response: got %v, %v, want %v", onWire, err, want)
			}
		})
	}
}

func request(order uuid.UUID, step string, key uuid.UUID) *stepv1.GetStepRequest {
	return &stepv1.GetStepRequest{OrderId: order.String(), StepName: step, StepKey: key.String()}
}

// A retry reaches a step that has no outcome, and an undo that was refused, and nothing else.
func TestRetry(t *testing.T) {
	t.Parallel()
	pool, conn := serveSteps(t)
	participants := stepapi.Participants{"payment": conn}
	for name, tt := range map[string]struct {
		kind, state string
		want        bool
	}{
		"running":        {"action", "pending", true},
		"waiting":        {"action", "waiting", true},
		"done":           {"action", "done", false},
		"refused":        {"action", "refused", false},
		"undo running":   {"undo", "pending", true},
		"undo refused":   {"undo", "refused", true},
		"undo confirmed": {"undo", "done", false},
		"no record":      {"", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			order := uuid.New()
			if tt.state != "" {
				_, err := pool.Exec(t.Context(), `INSERT INTO step (order_id, step_name, kind, state, reason, due_at)
					VALUES ($1, $2, $3, $4, 'why', CASE WHEN $4 IN ('pending', 'waiting') THEN now() + interval '1 hour' END)`, order, step, tt.kind, tt.state)
				if err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // it may be repeated
				if got, err := participants.Retry(t.Context(), "payment", order, step); err != nil || got != tt.want {
					t.Errorf("retry: got %v, %v, want %v", got, err, tt.want)
				}
			}
			var due int
			if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM step WHERE order_id = $1 AND due_at <= now()`, order).Scan(&due); err != nil {
				t.Fatal(err)
			}
			if (due == 1) != tt.want {
				t.Errorf("steps that are due: got %d, want one: %v", due, tt.want)
			}
		})
	}
	if _, err := participants.Retry(t.Context(), "shipping", uuid.New(), step); !errors.Is(err, stepapi.ErrUnknownParticipant) {
		t.Errorf("retrying at nobody: got %v, want %v", err, stepapi.ErrUnknownParticipant)
	}
}

func TestQuestionsThatMeanNothing(t *testing.T) {
	t.Parallel()
	_, conn := serveSteps(t)
	order := uuid.New()
	key := keys.StepKey(order, step)
	tests := map[string]struct {
		req  *stepv1.GetStepRequest
		path string
	}{
		"no order":             {&stepv1.GetStepRequest{StepName: step, StepKey: key.String()}, "order_id"},
		"no step":              {request(order, "", keys.StepKey(order, "")), "step_name"},
		"no key":               {&stepv1.GetStepRequest{OrderId: order.String(), StepName: step}, "step_key"},
		"key of another step":  {request(order, step, keys.StepKey(order, "capture_payment")), "step_key"},
		"key of another order": {request(order, step, keys.StepKey(uuid.New(), step)), "step_key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := stepv1.NewStepServiceClient(conn).GetStep(t.Context(), tt.req)
			if got := status.Code(err); got != codes.InvalidArgument {
				t.Errorf("code: got %v (%v), want %v", got, err, codes.InvalidArgument)
			}
			if got := grpcx.ReasonOf(err); got != grpcx.RequestInvalid {
				t.Errorf("reason: got %q, want %q", got, grpcx.RequestInvalid)
			}
			if vs := grpcx.Violations(err); len(vs) != 1 || vs[0].Path != tt.path {
				t.Errorf("violations: got %v, want one of %s", vs, tt.path)
			}
		})
	}
}

// An error is an error, and never an answer.
func TestNothingIsLearnt(t *testing.T) {
	t.Parallel()
	order := uuid.New()
	key := keys.StepKey(order, step)

	t.Run("database is away", func(t *testing.T) {
		t.Parallel()
		pool, conn := serveSteps(t)
		pool.Close()
		got, err := stepapi.Participants{"payment": conn}.Ask(t.Context(), "payment", order, step, key)
		if status.Code(err) != codes.Unavailable || got != (saga.Answer{}) {
			t.Errorf("got %+v, %v, want nothing, %v", got, err, codes.Unavailable)
		}
	})
	t.Run("wrong key", func(t *testing.T) {
		t.Parallel()
		_, conn := serveSteps(t)
		got, err := stepapi.Participants{"payment": conn}.Ask(t.Context(), "payment", order, step, uuid.New())
		if status.Code(err) != codes.InvalidArgument || got != (saga.Answer{}) {
			t.Errorf("got %+v, %v, want nothing, %v", got, err, codes.InvalidArgument)
		}
	})
	t.Run("unknown participant", func(t *testing.T) {
		t.Parallel()
		if _, err := (stepapi.Participants{}).Ask(t.Context(), "payment", order, step, key); !errors.Is(err, stepapi.ErrUnknownParticipant) {
			t.Errorf("got %v, want %v", err, stepapi.ErrUnknownParticipant)
		}
	})
	t.Run("participant is away", func(t *testing.T) {
		t.Parallel()
		var lc net.ListenConfig
		lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = lis.Close() // now nobody listens there
		conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: lis.Addr().String(), Credential: credential})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := (stepapi.Participants{"payment": conn}).Ask(ctx, "payment", order, step, key); status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			t.Errorf("got %v, want %v at once", err, codes.Unavailable)
		}
	})
	t.Run("answer of another release", func(t *testing.T) {
		t.Parallel()
		for _, state := range []stepv1.StepState{stepv1.StepState_STEP_STATE_UNSPECIFIED, 99} {
			conn := serve(t, func(s grpc.ServiceRegistrar) { stepv1.RegisterStepServiceServer(s, fixed{state: state}) })
			if got, err := (stepapi.Participants{"payment": conn}).Ask(t.Context(), "payment", order, step, key); !errors.Is(err, stepapi.ErrAnswer) {
				t.Errorf("state %v: got %+v, %v, want %v", state, got, err, stepapi.ErrAnswer)
			}
		}
	})
}

// fixed gives one answer.
type fixed struct {
	stepv1.UnimplementedStepServiceServer
	state stepv1.StepState
}

func (f fixed) GetStep(context.Context, *stepv1.GetStepRequest) (*stepv1.GetStepResponse, error) {
	return &stepv1.GetStepResponse{State: f.state}, nil
}
