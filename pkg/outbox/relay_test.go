package outbox_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
)

// never is longer than any test.
const never = time.Hour

func TestHandOffPublishesInChainOrder(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{SweepInterval: never, SweepAge: never})
	r.open(t)
	id := uuid.New()
	first := mustChange(t, pool, id, uuid.Nil, event(), event(), command())
	r.HandOff(first)
	awaitStream(t, conn, 3)
	second := mustChange(t, pool, id, lastOf(first), event(), command())
	if !second[0].Proven {
		t.Error("got no proof from an answer to the last message, want one")
	}
	r.HandOff(second)
	wantOrder(t, awaitStream(t, conn, 5), first[0], second[0])
	eventually(t, "the rows are removed", func() bool { return pending(t, pool) == 0 })
}

// A message must not leave before the one before it is acknowledged.
func TestChainStopsAtAFailure(t *testing.T) {
	t.Parallel()
	cmds := messaging.Stream{Name: "CMDS", Subjects: []string{"cmd.>"}}
	pool, conn := newPool(t), connect(t, newServer(t), cmds)
	log, failed := heard("hand-off left to the sweep")
	r := start(t, pool, conn, outbox.Config{Logger: log})
	r.open(t)
	// No stream takes the event.
	chains := append(mustChange(t, pool, uuid.New(), uuid.Nil, event(), command()), mustChange(t, pool, uuid.New(), uuid.Nil, command())...)
	r.HandOff(chains)
	select {
	case <-failed:
	case <-time.After(patience):
		t.Fatal("the hand-off did not fail")
	}
	wantOrder(t, stream(t, conn, "CMDS"), chains[1])

	if err := conn.EnsureStreams(t.Context(), messaging.Stream{Name: "EVTS", Subjects: []string{"evt.>"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sweep has published the chain", func() bool {
		return len(stream(t, conn, "CMDS")) == 2 && len(stream(t, conn, "EVTS")) == 1
	})
}

// Without a proof, what is still pending goes first, whoever wrote it.
func TestUnprovenChainIsLeftToTheSweepAtOnce(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{SweepInterval: never, SweepAge: never})
	r.open(t)
	id := uuid.New()
	lost := mustChange(t, pool, id, uuid.Nil, event(), event()) // by a process that died before its hand-off
	chains := mustChange(t, pool, id, uuid.Nil, event(), command())
	if chains[0].Proven {
		t.Error("got a proof from nothing, want none")
	}
	r.HandOff(chains)
	wantOrder(t, awaitStream(t, conn, 4), lost[0], chains[0])
}

func TestLeftBehindRowIsSwept(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{SweepAge: 300 * time.Millisecond})
	r.open(t)
	began := time.Now()
	chains := mustChange(t, pool, uuid.New(), uuid.Nil, event(), command()) // and never handed off
	wantOrder(t, awaitStream(t, conn, 2), chains[0])
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("swept after %s, want at least the sweep age", took)
	}
	eventually(t, "the rows are removed", func() bool { return pending(t, pool) == 0 })
}

// Rows are found by their own state, not by a place in a sequence that a late commit would be behind.
func TestLateCommitIsPublished(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{})
	r.open(t)
	late, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Rollback(t.Context())
	first, err := changeIn(t.Context(), late, uuid.New(), uuid.Nil, event(), command())
	if err != nil {
		t.Fatal(err)
	}
	gone, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := changeIn(t.Context(), gone, uuid.New(), uuid.Nil, event()); err != nil {
		t.Fatal(err)
	}
	second := mustChange(t, pool, uuid.New(), uuid.Nil, event(), command())
	r.HandOff(second)
	if err := gone.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOrder(t, awaitStream(t, conn, 2), second[0])
	eventually(t, "the rows that committed first are removed", func() bool { return pending(t, pool) == 0 })
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantOrder(t, awaitStream(t, conn, 4), second[0], first[0])
}

func TestWhatExceedsTheWindowIsLeftToTheSweep(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{Window: 1, SweepAge: 300 * time.Millisecond})
	r.open(t)
	began := time.Now()
	chains := mustChange(t, pool, uuid.New(), uuid.Nil, event(), command())
	r.HandOff(chains)
	wantOrder(t, awaitStream(t, conn, 2), chains[0])
	if took := time.Since(began); took < 250*time.Millisecond {
		t.Errorf("published after %s, want by the sweep", took)
	}
}

func TestBrokerAway(t *testing.T) {
	t.Parallel()
	pool, server := newPool(t), newServer(t)
	messagingtest.Stop(t, server)
	conn := connect(t, server, all)
	r := start(t, pool, conn, outbox.Config{SweepAge: never})
	if err := r.Ready(t.Context()); !errors.Is(err, outbox.ErrClosed) {
		t.Errorf("got ready %v, want %v", err, outbox.ErrClosed)
	}
	id := uuid.New()
	var last uuid.UUID
	for range 20 {
		chains := mustChange(t, pool, id, last, event(), command())
		r.HandOff(chains)
		last = lastOf(chains)
	}
	if got := pending(t, pool); got != 40 {
		t.Errorf("got %d rows waiting, want 40", got)
	}
	messagingtest.Restart(t, server)
	r.open(t)
	fresh := mustChange(t, pool, id, last, event(), command())
	r.HandOff(fresh)
	found := awaitStream(t, conn, 42)
	wantEventOrder(t, found, 21)
	eventually(t, "the rows are removed", func() bool { return pending(t, pool) == 0 })
}

// wantEventOrder fails unless the events of each aggregate came in sequence from 1, and n in all.
func wantEventOrder(t *testing.T, found []sight, n int) {
	t.Helper()
	next, seen := make(map[uuid.UUID]int64), make(map[uuid.UUID]bool)
	for _, s := range found {
		if s.seq == 0 || seen[s.id] {
			continue
		}
		seen[s.id] = true
		if next[s.aggregate]++; s.seq != next[s.aggregate] {
			t.Errorf("aggregate %s: got event %d, want %d", s.aggregate, s.seq, next[s.aggregate])
		}
	}
	if len(seen) != n {
		t.Errorf("got %d events, want %d", len(seen), n)
	}
}

// The broker acknowledges, loses power, and comes back without what it had.
func TestBrokerForgets(t *testing.T) {
	t.Parallel()
	pool, server := newPool(t), newServer(t)
	conn := connect(t, server, all)
	r := start(t, pool, conn, outbox.Config{FlushHorizon: never, SweepAge: never})
	r.open(t)
	a, b := uuid.New(), uuid.New()
	first := mustChange(t, pool, a, uuid.Nil, event(), event(), command())
	r.HandOff(first)
	other := mustChange(t, pool, b, uuid.Nil, event())
	r.HandOff(other)
	awaitStream(t, conn, 4)
	session := conn.Session()

	messagingtest.Stop(t, server)
	if err := os.RemoveAll(server.Config().StoreDir); err != nil {
		t.Fatal(err)
	}
	messagingtest.Restart(t, server)

	// The answer to the command is handled at once: what it leads to is proven, but the broker does not know event 1 now.
	second := mustChange(t, pool, a, lastOf(first), event(), command())
	if !second[0].Proven {
		t.Fatal("got no proof")
	}
	for range session.Changed { // it is closed, once the end of the session is known
	}
	r.HandOff(second)
	found := awaitStream(t, conn, 6)
	wantEventOrder(t, found, 4)
	if got := pending(t, pool); got != 6 {
		t.Errorf("got %d rows pending within the flush horizon, want all 6", got)
	}
}

func TestStopWaitsForHandOff(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{SweepAge: never, SweepInterval: never})
	r.open(t)
	var chains []outbox.Chain
	for range 50 {
		chains = append(chains, mustChange(t, pool, uuid.New(), uuid.Nil, event(), event(), command())...)
	}
	r.HandOff(chains)
	r.stop()
	if err := <-r.done; err != nil {
		t.Errorf("got %v, want no error from a stop", err)
	}
	if got := len(stream(t, conn, all.Name)); got != 150 {
		t.Errorf("got %d messages published when the relay has stopped, want 150", got)
	}
	r.HandOff(mustChange(t, pool, uuid.New(), uuid.Nil, event())) // does nothing, and does not fail
	if err := r.Ready(t.Context()); !errors.Is(err, outbox.ErrClosed) {
		t.Errorf("got ready %v, want %v", err, outbox.ErrClosed)
	}
}

func TestOneSweepsAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	pool, server := newPool(t), newServer(t)
	cfg := outbox.Config{SweepAge: time.Millisecond}
	conn := connect(t, server, all)
	first := start(t, pool, conn, cfg)
	first.open(t)
	second := start(t, pool, connect(t, server, all), cfg)
	second.open(t)
	awaitStream(t, conn, 0)
	mustChange(t, pool, uuid.New(), uuid.Nil, event())
	awaitStream(t, conn, 1)
	owners := func() int {
		return count(t, pool, `SELECT count(*) FROM lease WHERE name = 'outbox_sweep' AND owner <> ''`)
	}
	if got := owners(); got != 1 {
		t.Errorf("got %d holders of the lease, want 1", got)
	}
	first.stop()
	mustChange(t, pool, uuid.New(), uuid.Nil, event())
	awaitStream(t, conn, 2)
}

// A holder that died or is frozen keeps the others waiting no longer than its lease.
func TestTakeoverFromTheDead(t *testing.T) {
	t.Parallel()
	pool, server := newPool(t), newServer(t)
	exec(t, pool, `INSERT INTO lease (name, owner, token, until) VALUES ('outbox_sweep', 'dead', 1, now() + interval '1 s')`)
	conn := connect(t, server, all)
	start(t, pool, conn, outbox.Config{})
	mustChange(t, pool, uuid.New(), uuid.Nil, event())
	awaitStream(t, conn, 1)
	var dead bool
	if err := pool.QueryRow(t.Context(), `SELECT owner = 'dead' FROM lease WHERE name = 'outbox_sweep'`).Scan(&dead); err != nil || dead {
		t.Errorf("got the lease with the dead %t, %v, want it taken over", dead, err)
	}
}

// A sweeper whose broker is away must not keep the lease from one who has a broker.
func TestSweeperWithoutABrokerGivesWay(t *testing.T) {
	t.Parallel()
	pool, server, gone := newPool(t), newServer(t), newServer(t)
	first := start(t, pool, connect(t, gone, all), outbox.Config{})
	first.open(t)
	conn := connect(t, server, all)
	second := start(t, pool, conn, outbox.Config{})
	second.open(t)
	messagingtest.Stop(t, gone)
	eventually(t, "the first is closed", func() bool { return first.Ready(t.Context()) != nil })
	chains := mustChange(t, pool, uuid.New(), uuid.Nil, event(), command())
	wantOrder(t, awaitStream(t, conn, 2), chains[0])
}

func TestRefusedEventIsSetAside(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	server := smallServer(t, 8<<10)
	conn := connect(t, server, all)
	r := start(t, pool, conn, outbox.Config{})
	r.open(t)
	large := event()
	large.Payload = make([]byte, 9<<10)
	id := uuid.New()
	first := mustChange(t, pool, id, uuid.Nil, event(), large, event(), command())
	r.HandOff(first)
	m := first[0].Messages
	// The event before and the command are published; the refused event and the one behind it are not.
	want := outbox.Chain{Messages: []messaging.Message{m[0], m[3]}}
	wantOrder(t, awaitStream(t, conn, 2), want)

	// The answer to the command proves that the command is out, but not that the events are.
	second := mustChange(t, pool, id, lastOf(first), event(), command())
	if second[0].Proven {
		t.Error("got a proof although an event was set aside, want none")
	}
	r.HandOff(second)
	want.Messages = append(want.Messages, second[0].Messages[1])
	wantOrder(t, awaitStream(t, conn, 3), want)

	// The same written with Queue.
	a := outbox.Aggregate{ID: id, EventSeq: 4, LastMessageID: lastOf(second)}
	third := []outbox.Chain{a.Begin(lastOf(second))}
	a.Append(&third[0], event())
	var b pgx.Batch
	if err := outbox.Queue(&b, third); err != nil {
		t.Fatal(err)
	}
	if err := postgres.SendAtomic(t.Context(), pool, &b); err != nil || third[0].Proven {
		t.Errorf("got proven %t, %v, want none", third[0].Proven, err)
	}

	// Others are not held up.
	other := mustChange(t, pool, uuid.New(), uuid.Nil, event(), command())
	r.HandOff(other)
	want.Messages = append(want.Messages, other[0].Messages...)
	wantOrder(t, awaitStream(t, conn, 5), want)

	eventually(t, "what is out is removed", func() bool { return pending(t, pool) == 4 })
	var reason string
	var refusals int
	if err := pool.QueryRow(t.Context(), `SELECT set_aside_reason, refusals FROM outbox WHERE set_aside_at IS NOT NULL`).Scan(&reason, &refusals); err != nil {
		t.Fatal(err)
	}
	if refusals != 3 || reason == "" {
		t.Errorf("got %d refusals with reason %q, want 3 and a reason", refusals, reason)
	}

	// When somebody has put it right, all follow in sequence.
	exec(t, pool, `UPDATE outbox_message SET payload = '' WHERE message_id = $1`, m[1].ID)
	exec(t, pool, `UPDATE outbox SET set_aside_at = NULL WHERE set_aside_at IS NOT NULL`)
	found := awaitStream(t, conn, 9)
	var mine []sight
	for _, s := range found {
		if s.aggregate == id {
			mine = append(mine, s)
		}
	}
	wantEventOrder(t, mine, 5)
}
