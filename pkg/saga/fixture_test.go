package saga_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/pkg/saga"
)

// asker plays the participants when they are asked.
type asker func(ctx context.Context, participant string, id uuid.UUID, step string) (saga.Answer, error)

func (a asker) Ask(ctx context.Context, participant string, id uuid.UUID, step string, key uuid.UUID) (saga.Answer, error) {
	if want := keys.StepKey(id, step); key != want {
		return saga.Answer{}, fmt.Errorf("step key of %s: got %s, want %s", step, key, want)
	}
	return a(ctx, participant, id, step)
}

// rows is a projector: one row for each saga, which says how far the saga is and how often that was said.
type rows struct{ fail error }

const createRows = `CREATE TABLE sale (id uuid CONSTRAINT sale_pkey PRIMARY KEY, status text NOT NULL, changes bigint NOT NULL)`

func (r rows) Events(c saga.Change[order]) ([]messaging.Message, error) {
	if c.Before.Status == c.After.Status {
		return nil, nil
	}
	return []messaging.Message{{Subject: "evt.sale." + string(c.After.Status), Type: "test.Sale", Source: "/sale"}}, nil
}

func (r rows) Queue(b *pgx.Batch, changes []saga.Change[order]) error {
	if r.fail != nil {
		return r.fail
	}
	ids, statuses := make([]uuid.UUID, len(changes)), make([]string, len(changes))
	for i, c := range changes {
		ids[i], statuses[i] = c.After.ID, string(c.After.Status)
	}
	if !slices.IsSortedFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }) {
		return errors.New("changes are not sorted by saga id")
	}
	b.Queue(`INSERT INTO sale (id, status, changes) SELECT id, status, 1 FROM unnest($1::uuid[], $2::text[]) AS n (id, status)
		ON CONFLICT (id) DO UPDATE SET status = excluded.status, changes = sale.changes + 1`, ids, statuses)
	return nil
}

// fixture is an engine on a database and a JetStream server of its own. Its relay does not run unless a test lets it, so
// that the outbox shows all that was written.
type fixture struct {
	t      *testing.T
	url    string
	pool   *pgxpool.Pool
	conn   *messaging.Conn
	relay  *outbox.Relay
	engine *saga.Engine[order]
	logged *safeBuffer
	ask    asker // read by engines of the fixture when they ask
	count  int
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// slow is timing in hours instead of seconds, so that nothing is due before a test lets time pass.
var slow = saga.Timing{Ask: time.Hour, AskMax: 4 * time.Hour, Budget: 20 * time.Hour}

const consumer = "sale-replies"

func newFixture(t *testing.T, definitions ...*saga.Definition[order]) *fixture {
	t.Helper()
	if len(definitions) == 0 {
		definitions = append(definitions, definition(slow))
	}
	f := &fixture{t: t, url: pgtest.URL(t, outbox.Migrations(), inbox.Migrations(), saga.Migrations()), logged: &safeBuffer{}}
	f.pool = pgtest.Open(t, f.url)
	f.exec(createRows)
	conn, err := messaging.Connect(messaging.Config{URL: messagingtest.New(t).URL()})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(conn.Close)
	f.conn = conn
	f.relay = outbox.NewRelay(f.pool, conn, outbox.Config{SweepInterval: time.Hour, SweepAge: time.Hour})
	f.ask = func(context.Context, string, uuid.UUID, string) (saga.Answer, error) {
		return saga.Answer{}, errors.New("nobody is to be asked")
	}
	f.engine = f.newEngine(f.pool, rows{}, definitions...)
	return f
}

// newEngine makes another engine on the same database.
func (f *fixture) newEngine(pool *pgxpool.Pool, p saga.Projector[order], definitions ...*saga.Definition[order]) *saga.Engine[order] {
	return saga.NewEngine(saga.Config[order]{
		Pool: pool, Conn: f.conn, Relay: f.relay, Projector: p,
		Asker: asker(func(ctx context.Context, participant string, id uuid.UUID, step string) (saga.Answer, error) {
			return f.ask(ctx, participant, id, step)
		}),
		AskTimeout: 200 * time.Millisecond,
		Source:     "/sale", Consumer: consumer, Owner: f.t.Name(),
		Logger: slog.New(slog.NewTextHandler(f.logged, nil)),
	}, definitions...)
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.pool.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatalf("executing %s: %v", sql, err)
	}
}

// number asks the database for a number.
func (f *fixture) number(sql string, args ...any) int64 {
	f.t.Helper()
	var n int64
	if err := f.pool.QueryRow(f.t.Context(), sql, args...).Scan(&n); err != nil {
		f.t.Fatalf("querying %s: %v", sql, err)
	}
	return n
}

// newID gives ids that are not in the order of their making.
func (f *fixture) newID() uuid.UUID {
	f.count++
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, f.count))
}

// begin begins sagas in one transaction.
func (f *fixture) begin(n int) []uuid.UUID {
	f.t.Helper()
	ids := make([]uuid.UUID, n)
	births := make([]*saga.Birth, n)
	for i := range ids {
		ids[i] = f.newID()
		births[i] = f.birth(f.t.Context(), definition(slow), ids[i])
	}
	if err := f.queueBirths(births); err != nil {
		f.t.Fatalf("beginning: %v", err)
	}
	f.engine.Born(births)
	return ids
}

func (f *fixture) birth(ctx context.Context, d *saga.Definition[order], id uuid.UUID) *saga.Birth {
	f.t.Helper()
	b, err := f.engine.Begin(ctx, d, id, "key of "+id.String(), wrapperspb.String(id.String()), time.Now())
	if err != nil {
		f.t.Fatalf("preparing saga %s: %v", id, err)
	}
	return b
}

func (f *fixture) queueBirths(births []*saga.Birth) error {
	var b pgx.Batch
	if err := f.engine.QueueBirths(&b, births); err != nil {
		return err
	}
	return postgres.SendAtomic(f.t.Context(), f.pool, &b)
}

// reply makes the reply of a participant that has handled no message but lastSeen.
func reply(id uuid.UUID, step string, outcome saga.Outcome, lastSeen uuid.UUID) messaging.Delivery {
	return messaging.NewDelivery(messaging.Message{
		ID: keys.NewMessageID(), Kind: messaging.Reply, Subject: "rpl.sale.place-order", AggregateID: id,
		StepName: step, StepKey: keys.StepKey(id, step), Outcome: string(outcome), Reason: "because", LastSeen: lastSeen,
		CreatedAt: time.Now(),
	}, 1)
}

// apply applies replies as the consumer does: a lost race is run again, some times.
func apply(ctx context.Context, e *saga.Engine[order], batch ...messaging.Delivery) error {
	var err error
	for range 20 {
		if err = e.ApplyReplies(ctx, batch); inbox.Blame(err) != inbox.Race {
			return err
		}
	}
	return fmt.Errorf("losing every race: %w", err)
}

func (f *fixture) apply(batch ...messaging.Delivery) {
	f.t.Helper()
	if err := apply(f.t.Context(), f.engine, batch...); err != nil {
		f.t.Fatalf("applying %d replies: %v", len(batch), err)
	}
}

// done plays one saga until the named step was sent.
func (f *fixture) upTo(id uuid.UUID, step string) {
	f.t.Helper()
	for _, name := range []string{"authorize", "ship", "capture", "dispatch", "thank"} {
		if name == step {
			return
		}
		f.apply(reply(id, name, saga.OutcomeDone, uuid.Nil))
	}
}

func (f *fixture) get(id uuid.UUID) saga.Instance {
	f.t.Helper()
	in, err := f.engine.Get(f.t.Context(), id)
	if err != nil {
		f.t.Fatalf("getting saga %s: %v", id, err)
	}
	return in
}

func (f *fixture) wantStatus(id uuid.UUID, want saga.Status) {
	f.t.Helper()
	if got := f.get(id); got.Status != want {
		f.t.Errorf("status of saga %s: got %s (%+v), want %s", id, got.Status, got.Steps, want)
	}
	var row string
	err := f.pool.QueryRow(f.t.Context(), `SELECT status FROM sale WHERE id = $1`, id).Scan(&row)
	if err != nil || row != string(want) {
		f.t.Errorf("projected status of saga %s: got %q, %v, want %q", id, row, err, want)
	}
}

// written is a row of the outbox.
type written struct {
	ID, LastSeen, StepKey uuid.UUID
	Subject, Type, Source string
	Key, Step             string
	Seq                   int64
	Left                  bool
	TraceParent           string
	Payload               []byte
}

// outbox lists what was written about a saga, in the order of writing.
func (f *fixture) outbox(id uuid.UUID) []written {
	f.t.Helper()
	const sql = `
SELECT message_id, coalesce(last_seen, '00000000-0000-0000-0000-000000000000'), coalesce(step_key, '00000000-0000-0000-0000-000000000000'),
       subject, type, source, idempotency_key, step_name, aggregate_seq, left_to_sweep, traceparent, payload
  FROM outbox_pending WHERE aggregate_id = $1 ORDER BY message_id`
	rows, err := f.pool.Query(f.t.Context(), sql, id)
	if err != nil {
		f.t.Fatalf("reading the outbox: %v", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[written])
	if err != nil {
		f.t.Fatalf("reading the outbox: %v", err)
	}
	return all
}

func (f *fixture) subjects(id uuid.UUID) []string {
	f.t.Helper()
	var subjects []string
	for _, w := range f.outbox(id) {
		subjects = append(subjects, w.Subject)
	}
	return subjects
}

func (f *fixture) lastWritten(id uuid.UUID) written {
	f.t.Helper()
	all := f.outbox(id)
	if len(all) == 0 {
		f.t.Fatalf("outbox of saga %s: got no rows, want some", id)
	}
	return all[len(all)-1]
}

func (f *fixture) wantSubjects(id uuid.UUID, want ...string) {
	f.t.Helper()
	if got := f.subjects(id); !slices.Equal(got, want) {
		f.t.Errorf("messages of saga %s:\n got %s\nwant %s", id, strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

func (f *fixture) wantNumber(what string, want int64, sql string, args ...any) {
	f.t.Helper()
	if got := f.number(sql, args...); got != want {
		f.t.Errorf("%s: got %d, want %d", what, got, want)
	}
}

func (f *fixture) wantTimers(id uuid.UUID, want int64) {
	f.t.Helper()
	f.wantNumber("timers of saga "+id.String(), want, `SELECT count(*) FROM saga_timer WHERE saga_id = $1`, id)
}

// pass lets time pass for one saga: all that is stored about it is so much older.
func (f *fixture) pass(id uuid.UUID, d time.Duration) {
	f.t.Helper()
	var state []byte
	if err := f.pool.QueryRow(f.t.Context(), `SELECT state FROM saga_instance WHERE saga_id = $1`, id).Scan(&state); err != nil {
		f.t.Fatalf("reading the state of saga %s: %v", id, err)
	}
	var s struct {
		Steps []saga.StepState     `json:"steps"`
		Seen  map[string]uuid.UUID `json:"seen,omitempty"`
		Armed time.Time            `json:"armed,omitzero"`
	}
	if err := json.Unmarshal(state, &s); err != nil {
		f.t.Fatalf("decoding the state of saga %s: %v", id, err)
	}
	older := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(-d)
		}
	}
	older(&s.Armed)
	for i := range s.Steps {
		older(&s.Steps[i].Since)
		older(&s.Steps[i].Due)
	}
	state, err := json.Marshal(s)
	if err != nil {
		f.t.Fatalf("encoding the state of saga %s: %v", id, err)
	}
	f.exec(`UPDATE saga_instance SET state = $2 WHERE saga_id = $1`, id, state)
	f.exec(`UPDATE saga_timer SET due_at = due_at - $2::interval WHERE saga_id = $1`, id, d)
}

// fire takes one batch of timers.
func (f *fixture) fire() int {
	f.t.Helper()
	n, err := f.engine.FireTimers(f.t.Context())
	if err != nil {
		f.t.Fatalf("firing timers: %v", err)
	}
	return n
}

// answering lets every participant answer so, and gives the steps that were asked about.
func (f *fixture) answering(a saga.Answer, err error) *asked {
	list := &asked{}
	f.ask = func(_ context.Context, _ string, _ uuid.UUID, step string) (saga.Answer, error) {
		list.mu.Lock()
		defer list.mu.Unlock()
		list.steps = append(list.steps, step)
		return a, err
	}
	return list
}

type asked struct {
	mu    sync.Mutex
	steps []string
}

func (a *asked) want(t *testing.T, want ...string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.steps, want) {
		t.Errorf("asked about: got %v, want %v", a.steps, want)
	}
	a.steps = nil
}
