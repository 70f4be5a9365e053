package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// testTable is the table of the tests of this package. Its last constraint is checked at the commit.
const testTable = `
CREATE TABLE item (
    id     bigint CONSTRAINT item_pkey PRIMARY KEY,
    name   text CONSTRAINT item_name_key UNIQUE,
    parent bigint CONSTRAINT item_parent_fkey REFERENCES item DEFERRABLE INITIALLY DEFERRED
)`

func newTestTable(tb testing.TB) (pool *pgxpool.Pool, url string) {
	tb.Helper()
	url = pgtest.URL(tb)
	pool = pgtest.Open(tb, url)
	mustExec(tb, pool, testTable)
	return pool, url
}

func mustExec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

func count(tb testing.TB, pool *pgxpool.Pool) int {
	tb.Helper()
	var n int
	if err := pool.QueryRow(context.Background(), `SELECT count(*) FROM item`).Scan(&n); err != nil {
		tb.Fatalf("counting: %v", err)
	}
	return n
}

func insertItem(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO item (id) VALUES (1)`)
	return err
}

func TestInTxCommits(t *testing.T) {
	t.Parallel()
	pool, _ := newTestTable(t)
	err := postgres.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error { return insertItem(t.Context(), tx) })
	if err != nil {
		t.Fatalf("InTx: %v", err)
	}
	if got := count(t, pool); got != 1 {
		t.Errorf("rows after commit: got %d, want 1", got)
	}
}

func TestInTxRollsBack(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	cases := []struct {
		name string
		fn   func(ctx context.Context, cancel func(), tx pgx.Tx) error
		want error
	}{
		{"fn fails", func(context.Context, func(), pgx.Tx) error { return boom }, boom},
		{"context ends in fn", func(ctx context.Context, cancel func(), _ pgx.Tx) error { cancel(); return ctx.Err() }, context.Canceled},
		{"context ends before the commit", func(_ context.Context, cancel func(), _ pgx.Tx) error { cancel(); return nil }, context.Canceled},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, _ := newTestTable(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := postgres.InTx(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
				if err := insertItem(ctx, tx); err != nil {
					return err
				}
				return c.fn(ctx, cancel, tx)
			})
			if !errors.Is(err, c.want) || errors.Is(err, postgres.ErrCommitUnknown) {
				t.Errorf("error: got %v, want %v", err, c.want)
			}
			if got := count(t, pool); got != 0 {
				t.Errorf("rows after rollback: got %d, want 0", got)
			}
			if got := pool.Stat().AcquiredConns(); got != 0 {
				t.Errorf("connections in use: got %d, want 0", got)
			}
		})
	}
}

func TestInTxReturnsConnectionAfterPanic(t *testing.T) {
	t.Parallel()
	pool, _ := newTestTable(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not pass through")
			}
		}()
		_ = postgres.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
			if err := insertItem(t.Context(), tx); err != nil {
				t.Errorf("inserting: %v", err)
			}
			panic("boom")
		})
	}()
	if got := count(t, pool); got != 0 {
		t.Errorf("rows: got %d, want 0", got)
	}
	if got := pool.Stat().AcquiredConns(); got != 0 {
		t.Errorf("connections in use: got %d, want 0", got)
	}
}

func TestInTxReportsErrorOfCommit(t *testing.T) {
	t.Parallel()
	pool, _ := newTestTable(t)
	err := postgres.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO item (id, parent) VALUES (1, 99)`)
		return err
	})
	if got := postgres.Classify(err); got != postgres.Invalid {
		t.Errorf("class of %v: got %v, want %v", err, got, postgres.Invalid)
	}
	if errors.Is(err, postgres.ErrCommitUnknown) {
		t.Errorf("got %v, but the server has answered", err)
	}
}

// A commit whose answer is lost has happened, and InTx must not claim otherwise.
func TestInTxCommitAnswerLost(t *testing.T) {
	t.Parallel()
	direct, url := newTestTable(t)
	p, through := newProxy(t, url)
	pool := pgtest.Open(t, through)
	lost := p.loseAnswerTo("commit")
	err := postgres.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error { return insertItem(t.Context(), tx) })
	<-lost
	if !errors.Is(err, postgres.ErrCommitUnknown) {
		t.Errorf("error: got %v, want %v", err, postgres.ErrCommitUnknown)
	}
	if got := postgres.Classify(err); got != postgres.Unavailable {
		t.Errorf("class: got %v, want %v", got, postgres.Unavailable)
	}
	if got := count(t, direct); got != 1 {
		t.Errorf("rows: got %d, want 1", got)
	}
}

// A connection that fails before the commit is sent leaves no doubt.
func TestInTxConnectionLostBeforeCommit(t *testing.T) {
	t.Parallel()
	direct, url := newTestTable(t)
	p, through := newProxy(t, url)
	pool := pgtest.Open(t, through)
	err := postgres.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := insertItem(t.Context(), tx); err != nil {
			return err
		}
		p.closeAll()
		return insertItem(t.Context(), tx)
	})
	if err == nil || errors.Is(err, postgres.ErrCommitUnknown) {
		t.Errorf("error: got %v, want one that is not %v", err, postgres.ErrCommitUnknown)
	}
	if got := postgres.Classify(err); got != postgres.Unavailable {
		t.Errorf("class of %v: got %v, want %v", err, got, postgres.Unavailable)
	}
	if got := count(t, direct); got != 0 {
		t.Errorf("rows: got %d, want 0", got)
	}
}
