package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

const insertNamed = `INSERT INTO item (id, name, parent) VALUES ($1, $2, $3)`

func TestSendAtomicReturnsResults(t *testing.T) {
	t.Parallel()
	pool, _ := newTestTable(t)
	var b pgx.Batch
	var tag string
	b.Queue(insertNamed, 1, "a", nil).Exec(func(ct pgconn.CommandTag) error { tag = ct.String(); return nil })
	b.Queue(insertNamed, 2, "b", 1)
	var ids []int64
	b.Queue(`SELECT id FROM item ORDER BY id`).Query(func(rows pgx.Rows) (err error) {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	type item struct {
		ID   int64
		Name string
	}
	var items []item
	b.Queue(`SELECT id, name FROM item ORDER BY id`).Query(func(rows pgx.Rows) (err error) {
		items, err = pgx.CollectRows(rows, pgx.RowToStructByName[item])
		return err
	})
	var name string
	b.Queue(`SELECT name FROM item WHERE id = $1`, 2).QueryRow(func(row pgx.Row) error { return row.Scan(&name) })
	if err := postgres.SendAtomic(t.Context(), pool, &b); err != nil {
		t.Fatalf("SendAtomic: %v", err)
	}
	got := fmt.Sprintf("%v; %v; %v; %v; %d rows", tag, ids, items, name, count(t, pool))
	if want := "INSERT 0 1; [1 2]; [{1 a} {2 b}]; b; 2 rows"; got != want {
		t.Errorf("results: got %s, want %s", got, want)
	}
}

// Whatever fails, in whichever place, nothing of the batch stays, and the connection can be used again.
func TestSendAtomicAllOrNothing(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		queue func(b *pgx.Batch)
		code  string // SQLSTATE
		text  string // in the error
	}{
		{"third statement", func(b *pgx.Batch) { b.Queue(insertNamed, 3, "a", nil) }, "23505", "statement 3 of 4 (INSERT INTO item"},
		{"compare and set", func(b *pgx.Batch) { b.Queue(`SELECT throughline_require(1, 2, 'version of item 7')`) }, "TL001", "version of item 7: expected 2, found 1"},
		{"deferred constraint", func(b *pgx.Batch) { b.Queue(insertNamed, 3, "c", 99) }, "23503", "committing batch"},
		{"unknown table", func(b *pgx.Batch) { b.Queue(`SELECT FROM no_such_table`) }, "42P01", "SELECT FROM no_such_table"},
		{"argument that cannot be encoded", func(b *pgx.Batch) { b.Queue(insertNamed, struct{}{}, "c", nil) }, "", "build"},
		{"server ends the session", func(b *pgx.Batch) { b.Queue(`SELECT pg_terminate_backend(pg_backend_pid())`) }, "57P01", "statement 3 of 4"},
		{"error while rows are read", func(b *pgx.Batch) {
			b.Queue(`SELECT 1/(3-g) FROM generate_series(1, 5) g`).Query(func(rows pgx.Rows) error {
				for rows.Next() {
				}
				return nil // forgets rows.Err
			})
		}, "22012", "statement 3 of 4"},
	}
	for _, c := range cases {
		for _, temperature := range []string{"cold", "warm"} { // statements prepared now, or known to the connection
			t.Run(c.name+"/"+temperature, func(t *testing.T) {
				t.Parallel()
				pool, _ := newTestTable(t)
				if temperature == "warm" {
					var b pgx.Batch
					b.Queue(insertNamed, 100, "warm", nil)
					b.Queue(`DELETE FROM item`)
					if err := postgres.SendAtomic(t.Context(), pool, &b); err != nil {
						t.Fatalf("warming up: %v", err)
					}
				}
				var b pgx.Batch
				b.Queue(insertNamed, 1, "a", nil)
				b.Queue(insertNamed, 2, "b", 1)
				c.queue(&b)
				b.Queue(insertNamed, 4, "d", nil)
				err := postgres.SendAtomic(t.Context(), pool, &b)
				if err == nil || errors.Is(err, postgres.ErrCommitUnknown) || errors.Is(err, postgres.ErrCommitted) {
					t.Fatalf("error: got %v, want one that says that nothing was committed", err)
				}
				if pgErr, ok := errors.AsType[*pgconn.PgError](err); c.code != "" && (!ok || pgErr.Code != c.code) {
					t.Errorf("SQLSTATE of %v: want %s", err, c.code)
				}
				if !strings.Contains(err.Error(), c.text) {
					t.Errorf("error: got %q, want it to contain %q", err, c.text)
				}
				if got := count(t, pool); got != 0 {
					t.Errorf("rows: got %d, want 0", got)
				}
				var again pgx.Batch
				again.Queue(insertNamed, 1, "a", nil)
				again.Queue(insertNamed, 2, "b", 1)
				if err := postgres.SendAtomic(t.Context(), pool, &again); err != nil {
					t.Errorf("the next batch: %v", err)
				}
			})
		}
	}
}

// A result function cannot undo the batch, and its error must not read as if it had.
func TestSendAtomicResultFunctionFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	cases := []struct {
		name string
		fn   func(q *pgx.QueuedQuery)
		want error // nil: any
	}{
		{"own error", func(q *pgx.QueuedQuery) { q.Query(func(pgx.Rows) error { return boom }) }, boom},
		{"no rows", func(q *pgx.QueuedQuery) { q.QueryRow(func(row pgx.Row) error { var n int; return row.Scan(&n) }) }, pgx.ErrNoRows},
		{"scan into another type", func(q *pgx.QueuedQuery) {
			q.Query(func(rows pgx.Rows) error { _, err := pgx.CollectRows(rows, pgx.RowTo[time.Time]); return err })
		}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, _ := newTestTable(t)
			var b pgx.Batch
			b.Queue(insertNamed, 1, "a", nil)
			query := `SELECT id FROM item`
			if errors.Is(c.want, pgx.ErrNoRows) {
				query += ` WHERE false`
			}
			c.fn(b.Queue(query))
			b.Queue(insertNamed, 2, "b", nil)
			err := postgres.SendAtomic(t.Context(), pool, &b)
			if !errors.Is(err, postgres.ErrCommitted) || (c.want != nil && !errors.Is(err, c.want)) {
				t.Errorf("error: got %v, want %v with %v", err, postgres.ErrCommitted, c.want)
			}
			if got := count(t, pool); got != 2 {
				t.Errorf("rows: got %d, want 2", got)
			}

			var failing pgx.Batch
			failing.Queue(insertNamed, 3, "c", nil)
			c.fn(failing.Queue(query))
			failing.Queue(insertNamed, 1, "again", nil)
			err = postgres.SendAtomic(t.Context(), pool, &failing)
			if !postgres.IsUniqueViolation(err, "item_pkey") || errors.Is(err, postgres.ErrCommitted) {
				t.Errorf("error of a batch that fails later: got %v, want the unique violation", err)
			}
			if got := count(t, pool); got != 2 {
				t.Errorf("rows: got %d, want 2", got)
			}
		})
	}
}

func TestSendAtomicAnswerLost(t *testing.T) {
	t.Parallel()
	direct, url := newTestTable(t)
	p, through := newProxy(t, url)
	pool := pgtest.Open(t, through)
	for i, warm := range []bool{false, true} {
		if warm {
			var b pgx.Batch
			b.Queue(`SELECT 1`)
			b.Queue(insertNamed, 100, "warm", nil)
			if err := postgres.SendAtomic(t.Context(), pool, &b); err != nil {
				t.Fatalf("warming up: %v", err)
			}
		}
		var b pgx.Batch
		b.Queue(insertNamed, i, "lost answer"+fmt.Sprint(i), nil)
		lost := p.loseAnswerTo("lost answer")
		err := postgres.SendAtomic(t.Context(), pool, &b)
		<-lost
		if !errors.Is(err, postgres.ErrCommitUnknown) {
			t.Errorf("warm=%v: error: got %v, want %v", warm, err, postgres.ErrCommitUnknown)
		}
		if got := postgres.Classify(err); got != postgres.Unavailable {
			t.Errorf("warm=%v: class of %v: got %v, want %v", warm, err, got, postgres.Unavailable)
		}
	}
	if got := count(t, direct); got != 3 {
		t.Errorf("rows: got %d, want 3", got)
	}
}

// When the caller's context ends during a batch the server is asked to stop, and its answer tells the outcome.
func TestSendAtomicContextEnds(t *testing.T) {
	t.Parallel()
	pool, _ := newTestTable(t)
	holder, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("beginning: %v", err)
	}
	defer holder.Rollback(context.Background())
	if err := insertItem(t.Context(), holder); err != nil {
		t.Fatalf("inserting: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		var b pgx.Batch
		b.Queue(insertNamed, 2, "b", nil)
		b.Queue(insertNamed, 1, "blocked", nil)
		result <- postgres.SendAtomic(ctx, pool, &b)
	}()
	waitFor(t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	cancel()
	err = <-result
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "57014" || errors.Is(err, postgres.ErrCommitUnknown) {
		t.Errorf("error: got %v, want the server's answer that it has canceled", err)
	}
	if got := count(t, pool); got != 0 {
		t.Errorf("rows: got %d, want 0", got)
	}
}

func TestSendAtomicEmpty(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	before := pool.Stat().AcquireCount()
	if err := postgres.SendAtomic(t.Context(), pool, &pgx.Batch{}); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if got := pool.Stat().AcquireCount(); got != before {
		t.Errorf("connections acquired: got %d, want %d", got, before)
	}
}

func TestSendAtomicIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	_, url := newTestTable(t)
	p, through := newProxy(t, url)
	pool := pgtest.Open(t, through)
	for i := range 3 {
		before := p.trips.Load()
		if err := postgres.SendAtomic(t.Context(), pool, threeInserts(int64(3*i))); err != nil {
			t.Fatalf("SendAtomic: %v", err)
		}
		want := int64(1)
		if i == 0 {
			want = 2 // prepares
		}
		if got := p.trips.Load() - before; got != want {
			t.Errorf("batch %d: got %d round trips, want %d", i, got, want)
		}
	}
}

func threeInserts(base int64) *pgx.Batch {
	b := &pgx.Batch{}
	for i := range int64(3) {
		b.Queue(`INSERT INTO item (id) VALUES ($1)`, base+i)
	}
	return b
}

// The same three statements over a network with 1 ms to and fro: a batch, and a transaction.
func BenchmarkRoundTrips(b *testing.B) {
	for _, c := range []struct {
		name string
		send func(ctx context.Context, pool *pgxpool.Pool, base int64) error
	}{
		{"SendAtomic", func(ctx context.Context, pool *pgxpool.Pool, base int64) error {
			return postgres.SendAtomic(ctx, pool, threeInserts(base))
		}},
		{"InTx", func(ctx context.Context, pool *pgxpool.Pool, base int64) error {
			return postgres.InTx(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
				for i := range int64(3) {
					if _, err := tx.Exec(ctx, `INSERT INTO item (id) VALUES ($1)`, base+i); err != nil {
						return err
					}
				}
				return nil
			})
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, url := newTestTable(b)
			p, through := newProxy(b, url)
			p.delay = time.Millisecond
			pool := pgtest.Open(b, through)
			ctx := context.Background()
			if err := c.send(ctx, pool, -3); err != nil {
				b.Fatal(err)
			}
			before, n := p.trips.Load(), int64(0)
			for b.Loop() {
				if err := c.send(ctx, pool, 3*n); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(p.trips.Load()-before)/float64(n), "roundtrips/op")
		})
	}
}

// waitFor polls until a query for a bool says true.
func waitFor(tb testing.TB, pool *pgxpool.Pool, query string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		var ok bool
		if err := pool.QueryRow(ctx, query).Scan(&ok); err != nil {
			tb.Fatalf("waiting for %s: %v", query, err)
		}
		if ok {
			return
		}
	}
}
