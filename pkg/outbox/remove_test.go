package outbox

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func TestAckedRowsWaitForTheHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAcked()
		one, two, three := uuid.New(), uuid.New(), uuid.New()
		due := func(session uint64) (ids []uuid.UUID) {
			for _, row := range a.due(session, time.Second, 10) {
				ids = append(ids, row.id)
			}
			return ids
		}
		at := func(ids ...uuid.UUID) (rows []sent) {
			for _, id := range ids {
				rows = append(rows, sent{id: id})
			}
			return rows
		}
		a.add(1, at(one))
		time.Sleep(time.Second - 1)
		a.add(1, at(two))
		if got := due(1); got != nil {
			t.Errorf("got %v due before the horizon, want none", got)
		}
		time.Sleep(time.Nanosecond)
		if got := due(1); !slices.Equal(got, []uuid.UUID{one}) {
			t.Errorf("got %v due at the horizon, want %s", got, one)
		}
		if !a.in(1, one) {
			t.Error("a row that is being removed is not known to be acknowledged")
		}
		a.removed([]ackedRow{{sent: sent{id: one}, session: 1}})
		if a.in(1, one) || !a.in(1, two) {
			t.Errorf("got %v after the removal, want %s", a.ids, two)
		}
		// Acknowledged again in the next session: the first acknowledgement says nothing any more.
		a.add(2, at(two, three))
		time.Sleep(time.Second - 1)
		if got := due(2); got != nil || !a.in(2, two) {
			t.Errorf("got %v due by an acknowledgement of the session before, want none", got)
		}
		a.forget(1)
		time.Sleep(time.Nanosecond)
		if got := due(2); !slices.Equal(got, []uuid.UUID{two, three}) {
			t.Errorf("got %v due, want %v", got, []uuid.UUID{two, three})
		}
		a.add(3, at(one))
		a.forget(3)
		if a.in(3, one) || len(a.queue) != 0 {
			t.Errorf("got %v and %v, want nothing", a.ids, a.queue)
		}
	})
}

// A row whose acknowledgement came in a session that has ended must stay, for the broker may have lost it.
func TestRowsOfAnEndedSessionAreKept(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, server := pgtest.New(t, Migrations()), messagingtest.New(t)
	conn, err := messaging.Connect(messaging.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	all := messaging.Stream{Name: "ALL", Subjects: []string{"evt.>"}}
	if err := conn.EnsureStreams(ctx, all); err != nil {
		t.Fatal(err)
	}
	a := Aggregate{ID: uuid.New()}
	chains := []Chain{a.Begin(uuid.Nil)}
	a.Append(&chains[0], messaging.Message{Kind: messaging.Event, Subject: "evt.thing.changed"})
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(ctx, tx, chains); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	// The relay does not run: each of its moves is made here.
	r := NewRelay(pool, conn, Config{FlushHorizon: 1})
	rows := func() (n int) {
		if err := pool.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	publish := func() {
		if f := r.publish(ctx, conn.Session(), chains, handOff); f != nil {
			t.Fatalf("publishing: %v", f[0].err)
		}
	}
	publish()
	before := conn.Session()
	messagingtest.Stop(t, server)
	<-before.Changed
	if n, err := r.removeOnce(ctx); err == nil || rows() != 1 {
		t.Errorf("while the broker is away: got %d removed, %v and %d rows, want an error and the row kept", n, err, rows())
	}
	reconnect := func() {
		messagingtest.Restart(t, server)
		wait, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := conn.WaitConnected(wait); err != nil {
			t.Fatal(err)
		}
	}
	r.noteAcked(before.Number, []sent{{id: a.LastMessageID}})
	reconnect()
	if n, err := r.removeOnce(ctx); n != 0 || err != nil || rows() != 1 {
		t.Errorf("in the next session: got %d removed, %v and %d rows, want the row kept", n, err, rows())
	}
	publish()
	if n, err := r.removeOnce(ctx); n != 1 || err != nil || rows() != 0 {
		t.Errorf("after another acknowledgement: got %d removed, %v and %d rows, want the row gone", n, err, rows())
	}
}

// While the broker is away, rows are in the database and nowhere else: memory does not grow with the outage.
func TestNothingIsHeldWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	r := NewRelay(nil, nil, Config{}) // it has no session
	for range 10_000 {
		a := Aggregate{ID: uuid.New()}
		chains := []Chain{a.Begin(uuid.Nil)}
		a.Append(&chains[0], messaging.Message{Kind: messaging.Event, Subject: "evt.thing.changed"})
		r.HandOff(chains)
	}
	r.flying.Wait()
	if r.inFlight != 0 || len(r.acked.ids) != 0 || len(r.acked.queue) != 0 {
		t.Errorf("got %d rows in flight and %d acknowledged, want none", r.inFlight, len(r.acked.queue))
	}
}

func TestStopCutsHandOffsShortOnlyWhenTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRelay(nil, nil, Config{}) // it is stopped before it does anything
		r.flying.Add(1)
		stop, cancel := context.WithCancel(t.Context())
		cancel()
		work, cut := context.WithCancel(t.Context())
		defer cut()
		done := make(chan error, 1)
		go func() { done <- r.Run(stop, work) }()
		synctest.Wait()
		if len(done) > 0 || r.ctx.Err() != nil {
			t.Fatalf("got Run returned %t, hand-off cut short %t, want neither", len(done) > 0, r.ctx.Err() != nil)
		}
		cut()
		synctest.Wait()
		if len(done) > 0 || r.ctx.Err() == nil {
			t.Fatalf("after the end of work: got Run returned %t, hand-off cut short %t, want only that", len(done) > 0, r.ctx.Err() != nil)
		}
		r.flying.Done()
		if err := <-done; err != nil {
			t.Errorf("got error %v, want none", err)
		}
	})
}
