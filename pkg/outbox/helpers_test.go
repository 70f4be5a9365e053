package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// patience is how long a test waits for what must happen. It is only used up by tests that fail.
const patience = 30 * time.Second

// all holds every message in one sequence, so that a test sees the order of everything.
var all = messaging.Stream{Name: "ALL", Subjects: []string{"cmd.>", "rpl.>", "evt.>"}, MaxAge: time.Hour}

func newPool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	pool := pgtest.New(tb, outbox.Migrations())
	exec(tb, pool, `CREATE TABLE thing (id uuid PRIMARY KEY, event_seq bigint NOT NULL DEFAULT 0, last_message_id uuid)`)
	return pool
}

func exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

func count(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), sql, args...).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

func pending(tb testing.TB, pool *pgxpool.Pool) int {
	tb.Helper()
	return count(tb, pool, `SELECT count(*) FROM outbox`)
}

func event() messaging.Message {
	return messaging.Message{Kind: messaging.Event, Subject: "evt.thing.changed", Type: "test.v1.Changed", Source: "/thing", IdempotencyKey: "k"}
}

func command() messaging.Message {
	return messaging.Message{Kind: messaging.Command, Subject: "cmd.other.act", Type: "test.v1.Act", Source: "/thing", StepName: "act", StepKey: uuid.New()}
}

// change is what a service does: in one transaction it loads an aggregate, changes it, and writes messages about it. lastSeen
// is the Last-Seen of what it handles.
func change(ctx context.Context, pool *pgxpool.Pool, id, lastSeen uuid.UUID, messages ...messaging.Message) ([]outbox.Chain, error) {
	var chains []outbox.Chain
	err := postgres.InTx(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) (err error) {
		chains, err = changeIn(ctx, tx, id, lastSeen, messages...)
		return err
	})
	return chains, err
}

func changeIn(ctx context.Context, tx pgx.Tx, id, lastSeen uuid.UUID, messages ...messaging.Message) ([]outbox.Chain, error) {
	a := outbox.Aggregate{ID: id}
	var last *uuid.UUID
	if _, err := tx.Exec(ctx, `INSERT INTO thing (id) VALUES ($1) ON CONFLICT DO NOTHING`, id); err != nil {
		return nil, err
	}
	if err := tx.QueryRow(ctx, `SELECT event_seq, last_message_id FROM thing WHERE id = $1 FOR UPDATE`, id).Scan(&a.EventSeq, &last); err != nil {
		return nil, err
	}
	if last != nil {
		a.LastMessageID = *last
	}
	chain := a.Begin(lastSeen)
	for _, m := range messages {
		a.Append(&chain, m)
	}
	chains := []outbox.Chain{chain}
	if err := outbox.Write(ctx, tx, chains); err != nil {
		return nil, err
	}
	_, err := tx.Exec(ctx, `UPDATE thing SET event_seq = $2, last_message_id = $3 WHERE id = $1`, id, a.EventSeq, a.LastMessageID)
	return chains, err
}

func mustChange(tb testing.TB, pool *pgxpool.Pool, id, lastSeen uuid.UUID, messages ...messaging.Message) []outbox.Chain {
	tb.Helper()
	chains, err := change(tb.Context(), pool, id, lastSeen, messages...)
	if err != nil {
		tb.Fatal(err)
	}
	return chains
}

// lastOf gives the id of the last message of the only chain.
func lastOf(chains []outbox.Chain) uuid.UUID {
	m := chains[0].Messages
	return m[len(m)-1].ID
}

// connect gives a connection that ensures its streams in each session, as a service does.
func connect(tb testing.TB, s *natsserver.Server, streams ...messaging.Stream) *messaging.Conn {
	tb.Helper()
	conn, err := messaging.Connect(messaging.Config{URL: s.URL(), Name: tb.Name(), Logger: logger(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ensuring sync.WaitGroup
	ensuring.Go(func() {
		for ctx.Err() == nil {
			if conn.WaitConnected(ctx) != nil {
				return
			}
			session := conn.Session()
			if conn.EnsureStreams(ctx, streams...) != nil {
				continue
			}
			select {
			case <-session.Changed:
			case <-ctx.Done():
			}
		}
	})
	tb.Cleanup(func() {
		cancel()
		conn.Close()
		ensuring.Wait()
	})
	return conn
}

// running is a relay that runs.
type running struct {
	*outbox.Relay
	stop, kill context.CancelFunc
	done       chan error
}

// start runs a relay with settings that let tests be quick, unless they are given. It is killed at the end of the test.
func start(tb testing.TB, pool *pgxpool.Pool, conn *messaging.Conn, cfg outbox.Config) *running {
	tb.Helper()
	if cfg.SweepInterval == 0 {
		cfg.SweepInterval = 20 * time.Millisecond
	}
	if cfg.SweepAge == 0 {
		cfg.SweepAge = 100 * time.Millisecond
	}
	if cfg.FlushHorizon == 0 {
		cfg.FlushHorizon = time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = logger(tb)
	}
	stop, cancelStop := context.WithCancel(context.Background())
	work, cancelWork := context.WithCancel(context.Background())
	r := &running{Relay: outbox.NewRelay(pool, conn, cfg), stop: cancelStop, done: make(chan error, 1)}
	r.kill = func() { cancelWork(); cancelStop() }
	var run sync.WaitGroup
	run.Go(func() { r.done <- r.Run(stop, work) })
	tb.Cleanup(func() {
		r.kill()
		run.Wait()
	})
	return r
}

// open waits until the relay hands off.
func (r *running) open(tb testing.TB) {
	tb.Helper()
	eventually(tb, "hand-off is open", func() bool { return r.Ready(context.Background()) == nil })
}

// eventually waits until a condition holds, or fails.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("waited %s until %s", patience, what)
		}
	}
}

// sight is a message in the stream.
type sight struct {
	id, aggregate uuid.UUID
	seq           int64
	subject       string
}

// stream gives what the stream holds, in its order.
func stream(tb testing.TB, conn *messaging.Conn, name string) []sight {
	tb.Helper()
	js := conn.JetStream()
	if js == nil {
		return nil
	}
	s, err := js.Stream(tb.Context(), name)
	if err != nil {
		return nil // not there yet
	}
	info := s.CachedInfo()
	var found []sight
	for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
		raw, err := s.GetMsg(tb.Context(), seq)
		if err != nil {
			return nil
		}
		m, err := messaging.Parse(raw.Subject, raw.Header, raw.Data)
		if err != nil {
			tb.Fatalf("reading message %d of the stream: %v", seq, err)
		}
		found = append(found, sight{m.ID, m.AggregateID, m.AggregateSeq, m.Subject})
	}
	return found
}

// awaitStream waits until the stream holds n messages, and gives them.
func awaitStream(tb testing.TB, conn *messaging.Conn, n int) (found []sight) {
	tb.Helper()
	eventually(tb, fmt.Sprintf("the stream holds %d messages", n), func() bool {
		found = stream(tb, conn, all.Name)
		return len(found) >= n
	})
	if len(found) > n {
		tb.Fatalf("got %d messages in the stream, want %d", len(found), n)
	}
	return found
}

// wantOrder fails unless exactly these messages were found, in this order.
func wantOrder(tb testing.TB, found []sight, chains ...outbox.Chain) {
	tb.Helper()
	var got, want []string
	for _, s := range found {
		got = append(got, fmt.Sprintf("%s %d %s", s.subject, s.seq, s.id))
	}
	for _, c := range chains {
		for _, m := range c.Messages {
			want = append(want, fmt.Sprintf("%s %d %s", m.Subject, m.AggregateSeq, m.ID))
		}
	}
	if !slices.Equal(got, want) {
		tb.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func newServer(tb testing.TB) *natsserver.Server {
	tb.Helper()
	return messagingtest.New(tb)
}

// logger writes to the log of the test until it ends.
func logger(tb testing.TB) *slog.Logger {
	w := &testWriter{tb: tb}
	tb.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = true
	})
	return slog.New(slog.NewTextHandler(w, nil))
}

type testWriter struct {
	tb    testing.TB
	mu    sync.Mutex
	ended bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.tb.Logf("%s", p)
	}
	return len(p), nil
}

// heard gives a logger, and a channel that gets a value for each line that contains text.
func heard(text string) (*slog.Logger, <-chan struct{}) {
	lines := make(chan struct{}, 1000)
	return slog.New(slog.NewTextHandler(listener{[]byte(text), lines}, nil)), lines
}

type listener struct {
	text  []byte
	lines chan<- struct{}
}

func (l listener) Write(p []byte) (int, error) {
	if bytes.Contains(p, l.text) {
		l.lines <- struct{}{}
	}
	return len(p), nil
}
