package order_test

import (
	"fmt"
	"testing"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// atCommit makes the commit of each order with a note of that text do something, which is a statement of PL/pgSQL, and gives what takes
// it away again.
func (w *world) atCommit(note, statement string) (remove func()) {
	w.t.Helper()
	w.exec(fmt.Sprintf(`
		CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF position(convert_to('%s', 'UTF8') in NEW.request) > 0 THEN %s; END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON customer_order DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION at_commit()`, note, statement))
	return func() { w.exec(`DROP TRIGGER at_commit ON customer_order; DROP FUNCTION at_commit()`) }
}

func (w *world) exec(sql string) {
	w.t.Helper()
	if _, err := w.db.Exec(w.t.Context(), sql); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// Whatever a commit fails with, nothing is pinned to the key: the retry is the first execution, and orders beside it are placed.
func TestFailingCommits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, code string
		want       grpcx.Reason
	}{
		{"serialization failure", "40001", grpcx.KeyInProgress},
		{"deadlock", "40P01", grpcx.KeyInProgress},
		{"disk full", "53100", grpcx.Unavailable},
		{"read-only", "25006", grpcx.Unavailable},
		{"shutting down", "57P01", grpcx.Unavailable},
		{"broken", "XX000", grpcx.Internal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.start(w.url)
			remove := w.atCommit("marked", fmt.Sprintf("RAISE EXCEPTION 'injected' USING ERRCODE = '%s'", tc.code))
			marked := request()
			marked.Note = "marked"
			for range 2 {
				c.wantReason(c.create("storefront", "k", marked), tc.want)
			}
			if r := c.must(c.create("storefront", "other", request())); r.replayed {
				t.Error("an order beside it: got a replay, want a first order")
			}
			if n := w.count(`SELECT count(*) FROM customer_order WHERE idempotency_key = 'k'`); n != 0 {
				t.Errorf("got %d orders under the key, want none", n)
			}
			remove()
			placed := c.must(c.create("storefront", "k", marked))
			if again := c.must(c.create("storefront", "k", marked)); placed.replayed || !again.replayed || again.body != placed.body {
				t.Errorf("got replayed %v and then %v, want a first answer and its replay", placed.replayed, again.replayed)
			}
		})
	}
}

// A database that has become read-only, sessions included: 503 until it takes writes again, and then the same key is the first.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, databaseURL := newProxy(t, w.url)
	c := w.start(databaseURL)
	c.must(c.create("storefront", "before", request()))
	w.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	p.setDown(true) // new sessions from now on
	p.setDown(false)
	for range 2 {
		c.wantReason(c.create("storefront", "k", request()), grpcx.Unavailable)
	}
	w.exec(`SET default_transaction_read_only = off`)
	w.exec(`DO $$ BEGIN
		SET LOCAL transaction_read_only = off;
		EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only', current_database());
	END $$`)
	placed := c.create("storefront", "k", request())
	for ; placed.err != nil; placed = c.create("storefront", "k", request()) {
		c.wantReason(placed, grpcx.Unavailable)
	}
	if placed.replayed {
		t.Error("got a replay, want the first order of the key")
	}
}

// The connection breaks while the commit is still under way at the server: nobody knows, so nothing is run again. The retry waits for
// the commit, is told that it runs, or replays; there is one order.
func TestCommitUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, databaseURL := newProxy(t, w.url)
	c := w.start(databaseURL)
	c.must(c.create("storefront", "before", request()))
	// The commit holds until the test lets it go on, so that no time is guessed.
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(7)`); err != nil {
		t.Fatal(err)
	}
	// Nor can it be cancelled, as a commit that has begun to write cannot: the driver tries when it loses a connection.
	w.atCommit("marked", `SET LOCAL lock_timeout = 0;
		LOOP
			BEGIN
				PERFORM pg_advisory_xact_lock(7);
				EXIT;
			EXCEPTION WHEN query_canceled THEN
			END;
		END LOOP`)
	marked := request()
	marked.Note = "marked"
	first := make(chan reply, 1)
	go func() { first <- c.create("storefront", "k", marked) }()
	w.eventually(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`, 1)
	p.setDown(true)
	p.setDown(false)
	// The pool finds its broken connections one by one, so that either is said.
	unsettled := func(r reply) {
		t.Helper()
		if got := grpcx.ReasonOf(r.err); got != grpcx.Unavailable && got != grpcx.KeyInProgress {
			t.Errorf("got %v, %v, want that it is not known, or that it runs", r.order, r.err)
		}
	}
	unsettled(<-first)
	for r := c.create("storefront", "k", marked); grpcx.ReasonOf(r.err) != grpcx.KeyInProgress && !t.Failed(); r = c.create("storefront", "k", marked) {
		unsettled(r)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	var placed reply
	for placed = c.create("storefront", "k", marked); placed.err != nil; placed = c.create("storefront", "k", marked) {
		unsettled(placed)
	}
	if placed.order.GetOrderId() != keys.OrderID("storefront", "k").String() || !placed.replayed {
		t.Errorf("got %v, replayed %v, want a replay of the commit that nobody heard of", placed.order, placed.replayed)
	}
	if n := w.count(`SELECT count(*) FROM customer_order WHERE idempotency_key = 'k'`); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
}

// eventually waits until a count has a value.
func (w *world) eventually(sql string, want int) {
	w.t.Helper()
	for w.t.Context().Err() == nil {
		if w.count(sql) == want {
			return
		}
	}
}
