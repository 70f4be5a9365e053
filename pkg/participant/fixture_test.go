package participant

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

const (
	hold    = "hold_room"
	release = "release_room"
	tidy    = "tidy_room"
)

// schema is the business table of a small hotel.
const schema = `CREATE TABLE room (
    order_id uuid PRIMARY KEY, status text NOT NULL, event_seq bigint NOT NULL, last_message_id uuid, revision bigint NOT NULL)`

// hotel is its Projector.
type hotel struct {
	// fail, if set, is asked before changes are stored.
	fail func([]Change) error
	// broken, if set, is asked before events are made.
	broken func(Result) error
}

func (hotel) QueueLoad(b *pgx.Batch, orders []uuid.UUID, into map[uuid.UUID]*Row) {
	b.Queue(`SELECT order_id, event_seq, last_message_id, revision FROM room WHERE order_id = ANY ($1::uuid[])`, orders).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var (
				r    Row
				last *uuid.UUID
			)
			if err := rows.Scan(&r.ID, &r.EventSeq, &last, &r.Revision); err != nil {
				return err
			}
			r.LastMessageID = orZero(last)
			into[r.ID] = &r
		}
		return rows.Err()
	})
}

func (h hotel) Events(r Result) ([]messaging.Message, error) {
	if h.broken != nil {
		if err := h.broken(r); err != nil {
			return nil, err
		}
	}
	fact := map[string]string{hold: "held", release: "released", tidy: "tidied"}[r.StepName]
	switch r.Outcome.(type) {
	case Refused:
		fact += "_refused"
	case Waiting:
		fact += "_on_request"
	}
	return []messaging.Message{{Subject: "evt.hotel." + fact, Type: "hotel." + fact, Source: "/hotel", Payload: r.Payload}}, nil
}

func (h hotel) QueueStore(b *pgx.Batch, changes []Change) error {
	if h.fail != nil {
		if err := h.fail(changes); err != nil {
			return err
		}
	}
	for _, c := range changes {
		status := "asked"
		for _, r := range c.Results {
			status = fmt.Sprintf("%s %T", r.StepName, r.Outcome)
		}
		if c.Row.Revision == 0 {
			b.Queue(`INSERT INTO room VALUES ($1, $2, $3, $4, 1)`, c.Row.ID, status, c.Row.EventSeq, orNil(c.Row.LastMessageID))
			continue
		}
		b.Queue(`WITH moved AS (UPDATE room SET status = $2, event_seq = $3, last_message_id = $4, revision = revision + 1
		                         WHERE order_id = $1 AND revision = $5 RETURNING 1)
		         SELECT throughline_require((SELECT count(*) FROM moved), 1, 'room')`,
			c.Row.ID, status, c.Row.EventSeq, orNil(c.Row.LastMessageID), c.Row.Revision)
	}
	return nil
}

// desk is a database with the means to drive runners on it one move at a time: calls end in a runner's channel of results,
// and the test decides when they are recorded, and when time has passed.
type desk struct {
	*testing.T
	url  string
	pool *pgxpool.Pool
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, url: pgtest.URL(t, inbox.Migrations(), outbox.Migrations(), Migrations())}
	d.pool = pgtest.Open(t, d.url)
	d.exec(schema)
	return d
}

func (d *desk) exec(sql string, args ...any) {
	d.Helper()
	if _, err := d.pool.Exec(d.Context(), sql, args...); err != nil {
		d.Fatalf("executing %s: %v", sql, err)
	}
}

// config is what the tests' runners share.
func (d *desk) config() Config {
	return Config{
		Pool: d.pool, Relay: outbox.NewRelay(d.pool, nil, outbox.Config{}), Projector: hotel{}, Source: "/hotel",
		ReplySubject: "rpl.order.stay", Consumer: "hotel", Logger: slog.New(slog.NewTextHandler(d.Output(), nil)),
	}
}

func (d *desk) runner(steps ...Step) *Runner { return d.runnerWith(d.config(), steps...) }

func (d *desk) runnerWith(cfg Config, steps ...Step) *Runner {
	d.Helper()
	r, err := NewRunner(cfg, steps...)
	if err != nil {
		d.Fatalf("making a runner: %v", err)
	}
	d.Cleanup(r.cancel)
	return r
}

// command makes a command as it arrives.
func command(order uuid.UUID, step string) messaging.Delivery {
	return messaging.NewDelivery(messaging.Message{
		ID: keys.NewMessageID(), Kind: messaging.Command, Subject: "cmd.hotel." + step, Type: "hotel.Command",
		Source: "/order", AggregateID: order, IdempotencyKey: "key-1", StepName: step, StepKey: keys.StepKey(order, step),
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Payload: []byte("payload of " + step),
	}, 1)
}

func (d *desk) apply(r *Runner, batch ...messaging.Delivery) {
	d.Helper()
	if err := r.ApplyCommands(d.Context(), batch); err != nil {
		d.Fatalf("taking commands in: %v", err)
	}
}

// claim lets a runner claim what is due.
func (d *desk) claim(r *Runner) {
	d.Helper()
	if _, err := r.claimDue(d.Context()); err != nil {
		d.Fatalf("claiming: %v", err)
	}
}

// result waits for a call to end.
func (d *desk) result(r *Runner) finished {
	d.Helper()
	select {
	case f := <-r.results:
		return f
	case <-time.After(20 * time.Second):
		d.Fatal("no call has ended in 20 s")
		panic("unreachable")
	}
}

// finish waits for a call to end, and records its result.
func (d *desk) finish(r *Runner) finished {
	d.Helper()
	f := d.result(r)
	r.recordAll(d.Context(), []finished{f})
	return f
}

// idle fails if a call is under way or has ended that the test does not know of, or if a slot is taken.
func (d *desk) idle(r *Runner) {
	d.Helper()
	r.calls.Wait()
	if n := len(r.results); n != 0 {
		d.Errorf("results of calls that were not expected: got %d, want 0", n)
	}
	if n := len(r.slots); n != 0 {
		d.Errorf("slots in use: got %d, want 0", n)
	}
}

// pass lets time pass for the steps on record.
func (d *desk) pass(by time.Duration) {
	d.Helper()
	d.exec(`UPDATE step SET due_at = due_at - $1::interval, updated_at = updated_at - $1::interval`, by)
}

func (d *desk) step(order uuid.UUID, name string) Record {
	d.Helper()
	rec, ok, err := Find(d.Context(), d.pool, order, name)
	if err != nil {
		d.Fatal(err)
	}
	if !ok {
		d.Fatalf("step %s of %s is not on record", name, order)
	}
	return rec
}

// is checks the state of a step.
func (d *desk) is(order uuid.UUID, name string, want State) Record {
	d.Helper()
	rec := d.step(order, name)
	if rec.State != want {
		d.Errorf("state of %s: got %s, want %s (%+v)", name, rec.State, want, rec)
	}
	return rec
}

// row is an outbox row.
type row struct {
	messaging.Message
	Left bool
}

// outbox gives the messages about an order, in the sequence in which they were written.
func (d *desk) outbox(order uuid.UUID) []row {
	d.Helper()
	found, err := d.pool.Query(d.Context(), `
		SELECT message_id, subject, type, source, idempotency_key, step_name, step_key, outcome, reason, last_seen, aggregate_seq,
		       traceparent, payload, left_to_sweep
		  FROM outbox_pending WHERE aggregate_id = $1 ORDER BY message_id`, order)
	if err != nil {
		d.Fatalf("reading the outbox: %v", err)
	}
	rows, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (row, error) {
		var (
			m                 row
			stepKey, lastSeen *uuid.UUID
		)
		err := r.Scan(&m.ID, &m.Subject, &m.Type, &m.Source, &m.IdempotencyKey, &m.StepName, &stepKey, &m.Outcome, &m.Reason,
			&lastSeen, &m.AggregateSeq, &m.TraceParent, &m.Payload, &m.Left)
		m.StepKey, m.LastSeen = orZero(stepKey), orZero(lastSeen)
		return m, err
	})
	if err != nil {
		d.Fatalf("reading the outbox: %v", err)
	}
	return rows
}

// told checks what was written about an order: events by subject and sequence, replies by step, outcome and reason.
func (d *desk) told(order uuid.UUID, want ...string) []row {
	d.Helper()
	rows := d.outbox(order)
	got := make([]string, 0, len(rows))
	for _, r := range rows {
		if messaging.KindOf(r.Subject) == messaging.Event {
			got = append(got, fmt.Sprintf("%s %d", r.Subject, r.AggregateSeq))
		} else {
			got = append(got, joined(r.StepName, r.Outcome, r.Reason))
		}
	}
	if !slices.Equal(got, want) {
		d.Errorf("messages written: got %q, want %q", got, want)
	}
	return rows
}

func joined(words ...string) string {
	s := ""
	for _, w := range words {
		if w != "" && s != "" {
			s += " "
		}
		s += w
	}
	return s
}

// counter counts calls of a step.
type counter struct{ atomic.Int64 }

// step makes a step that counts its calls and gives an outcome.
func (c *counter) step(name string, outcome Outcome, undoes ...string) Step {
	return Step{Name: name, Undoes: undoes, Perform: func(context.Context, *Call) Outcome {
		c.Add(1)
		return outcome
	}}
}

func (c *counter) is(d *desk, want int64) {
	d.Helper()
	if got := c.Load(); got != want {
		d.Errorf("calls: got %d, want %d", got, want)
	}
}

var held = Done{Result: wrapperspb.String("room 12"), Reference: "r12"}

// gate makes a step that tells when it is called, and gives the outcome that it is then told.
type gate struct {
	called chan *Call
	answer chan Outcome
	// deaf calls do not end with their context.
	deaf bool
}

func newGate() *gate { return &gate{called: make(chan *Call, 16), answer: make(chan Outcome, 16)} }

func (g *gate) step(name string, undoes ...string) Step {
	return Step{Name: name, Undoes: undoes, Perform: func(ctx context.Context, c *Call) Outcome {
		g.called <- c
		done := ctx.Done()
		if g.deaf {
			done = nil
		}
		select {
		case o := <-g.answer:
			return o
		case <-done:
			return Unknown{Err: context.Cause(ctx)}
		}
	}}
}

func (g *gate) call(d *desk) *Call {
	d.Helper()
	select {
	case c := <-g.called:
		return c
	case <-time.After(20 * time.Second):
		d.Fatal("no call in 20 s")
		return nil
	}
}

// status reads the business row.
func (d *desk) status(order uuid.UUID) (status string, revision int64) {
	d.Helper()
	if err := d.pool.QueryRow(d.Context(), `SELECT status, revision FROM room WHERE order_id = $1`, order).Scan(&status, &revision); err != nil {
		d.Fatalf("reading the business row: %v", err)
	}
	return status, revision
}

func (d *desk) marked(id uuid.UUID) bool {
	d.Helper()
	var n int
	if err := d.pool.QueryRow(d.Context(), `SELECT count(*) FROM inbox WHERE consumer = 'hotel' AND message_id = $1`, id).Scan(&n); err != nil {
		d.Fatalf("reading the inbox: %v", err)
	}
	return n == 1
}
