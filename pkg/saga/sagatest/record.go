package sagatest

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/internal/pgclock"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/saga"
)

// Record runs a saga with an engine on a Postgres of its own, lets inputs happen to it one after another, and gives what its rows say. Time
// passes only until a saga is asked about: so an Asked is at its deadline.
func Record[T proto.Message](tb testing.TB, d *saga.Definition[T], id uuid.UUID, key string, data T, inputs ...saga.Input) *Recording {
	tb.Helper()
	r := &recorder[T]{tb: tb, id: id}
	r.pool, r.clock = pgclock.New(tb, outbox.Migrations(), inbox.Migrations(), saga.Migrations())
	r.engine = saga.NewEngine(saga.Config[T]{
		Pool: r.pool, Relay: r, Projector: silent[T]{}, Asker: r, Source: "/recorder", Consumer: "recorder",
	}, d)
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(data)
	r.must(err)
	rec := &Recording{
		Definition: d.Name(), Version: d.Version(), Hash: hex.EncodeToString(d.Hash()), SagaID: id, Key: key, Data: encoded,
	}
	birth, err := r.engine.Begin(context.Background(), d, id, key, data, r.clock.Now())
	r.must(err)
	r.must(r.engine.Start(context.Background(), birth))
	rec.Events = append(rec.Events, r.what(saga.Started{}))
	for n, input := range inputs {
		if reply, ok := input.(saga.Replied); ok && reply.MessageID == uuid.Nil {
			reply.MessageID = uuid.UUID{0: 1, 15: byte(n + 1)}
			input = reply
		}
		r.happen(input)
		rec.Events = append(rec.Events, r.what(input))
	}
	in, err := r.engine.Get(context.Background(), id)
	r.must(err)
	rec.State = in.Steps
	for i := range rec.State { // the database gives times in its own zone
		rec.State[i].Since, rec.State[i].Due = utc(rec.State[i].Since), utc(rec.State[i].Due)
	}
	return rec
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

type recorder[T proto.Message] struct {
	tb     testing.TB
	id     uuid.UUID
	pool   *pgxpool.Pool
	clock  *pgclock.Clock
	engine *saga.Engine[T]
	answer saga.Answer
	asked  int // how often
	// told is how much of the history, and of the outbox, was read before.
	told, sent int
}

func (r *recorder[T]) must(err error) {
	r.tb.Helper()
	if err != nil {
		r.tb.Fatalf("recording: %v", err)
	}
}

// HandOff implements saga.Relay: nothing is published.
func (r *recorder[T]) HandOff([]outbox.Chain) {}

// Ask implements saga.Asker.
func (r *recorder[T]) Ask(context.Context, string, uuid.UUID, string, uuid.UUID) (saga.Answer, error) {
	r.asked++
	return r.answer, nil
}

func (r *recorder[T]) happen(input saga.Input) {
	r.tb.Helper()
	ctx := context.Background()
	switch in := input.(type) {
	case saga.Replied:
		r.must(r.engine.ApplyReplies(ctx, []messaging.Delivery{messaging.NewDelivery(messaging.Message{
			ID: in.MessageID, Kind: messaging.Reply, AggregateID: r.id, StepName: in.Step, StepKey: keys.StepKey(r.id, in.Step),
			Outcome: string(in.Outcome), Reason: in.Reason, Payload: in.Detail,
		}, 1)}))
	case saga.Asked:
		r.answer = in.Answer
		for before := r.asked; r.asked == before; { // a timer of a step that is over is set anew
			var due time.Time
			r.must(r.pool.QueryRow(ctx, `SELECT min(due_at) FROM saga_timer`).Scan(&due))
			if due.After(r.clock.Now()) {
				r.clock.Set(r.tb, due.UTC())
			}
			_, err := r.engine.FireTimers(ctx)
			r.must(err)
		}
	case saga.CancelRequested:
		_, err := r.engine.Cancel(ctx, r.id, nil)
		r.must(err)
	case saga.Resolved:
		_, err := r.engine.Resolve(ctx, r.id, in, nil)
		r.must(err)
	case saga.Started:
		r.tb.Fatal("recording: a saga begins once")
	}
}

// what gives what has just happened, with what was written about it since the last.
func (r *recorder[T]) what(input saga.Input) Recorded {
	r.tb.Helper()
	ctx := context.Background()
	e := recordedOf(input)
	e.At = r.clock.Now()
	history, err := saga.ReadHistory(ctx, r.pool, r.id)
	r.must(err)
	for _, h := range history[r.told:] {
		e.History = append(e.History, transitionLine(&h.Transition))
	}
	r.told = len(history)
	type row struct {
		ID      uuid.UUID
		Subject string
		Type    string
		Payload []byte
	}
	found, _ := r.pool.Query(ctx, `SELECT message_id, subject, type, payload FROM outbox_pending WHERE aggregate_id = $1`, r.id) // CollectRows reports its error
	rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[row])
	r.must(err)
	slices.SortFunc(rows, func(a, b row) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, m := range rows[r.sent:] {
		participant, step, _ := strings.Cut(strings.TrimPrefix(m.Subject, messaging.CommandPrefix), ".")
		e.Sent = append(e.Sent, commandLine(participant, step, m.Type, m.Payload))
	}
	r.sent = len(rows)
	return e
}

// silent is a projector that keeps no rows and tells nobody.
type silent[T proto.Message] struct{}

func (silent[T]) Events(saga.Change[T]) ([]messaging.Message, error) { return nil, nil }
func (silent[T]) Queue(*pgx.Batch, []saga.Change[T]) error           { return nil }
