package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// Each error is provoked on a real server.
func TestClassify(t *testing.T) {
	t.Parallel()
	type provoke func(t *testing.T, ctx context.Context, pool *pgxpool.Pool, url string) error
	exec := func(sql string) provoke {
		return func(_ *testing.T, ctx context.Context, pool *pgxpool.Pool, _ string) error {
			_, err := pool.Exec(ctx, sql)
			return err
		}
	}
	cases := []struct {
		name    string
		provoke provoke
		want    postgres.Class
	}{
		{"none", exec(`SELECT 1`), postgres.Other},
		{"compare and set", exec(`SELECT throughline_require(NULL, 1, 'version')`), postgres.Conflict},
		{"serialization failure", serializationFailure, postgres.Conflict},
		{"deadlock", deadlock, postgres.Conflict},
		{"lock timeout", lockTimeout, postgres.LockTimeout},
		{"unique violation", exec(`INSERT INTO item (id) VALUES (1), (1)`), postgres.Invalid},
		{"value out of range", exec(`SELECT 300::"char"::int + 2147483647`), postgres.Invalid},
		{"division by zero", exec(`SELECT 1/0`), postgres.Invalid},
		{"syntax error", exec(`SELEC`), postgres.Other},
		{"no such table", exec(`SELECT FROM nothing`), postgres.Other},
		{"read-only session", exec(`SET TRANSACTION READ ONLY; INSERT INTO item (id) VALUES (1)`), postgres.Unavailable},
		{"statement timeout", exec(`SET LOCAL statement_timeout = '1ms'; SELECT pg_sleep(60)`), postgres.Unavailable},
		{"session ended by an operator", exec(`SELECT pg_terminate_backend(pg_backend_pid())`), postgres.Unavailable},
		{"connection cut", connectionCut, postgres.Unavailable},
		{"connection refused", connectionRefused, postgres.Unavailable},
		{"no such database", noSuchDatabase, postgres.Unavailable},
		{"closed pool", closedPool, postgres.Unavailable},
		{"no connection in time", noConnectionInTime, postgres.Unavailable},
		{"caller stopped", callerStopped, postgres.Other},
		{"not of the database", func(*testing.T, context.Context, *pgxpool.Pool, string) error { return errors.New("x") }, postgres.Other},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool, url := newTestTable(t)
			err := c.provoke(t, t.Context(), pool, url)
			if (err == nil) != (c.name == "none") {
				t.Fatalf("provoking: got %v", err)
			}
			if got := postgres.Classify(err); got != c.want {
				t.Errorf("class of %v: got %v, want %v", err, got, c.want)
			}
		})
	}
}

func serializationFailure(t *testing.T, ctx context.Context, pool *pgxpool.Pool, _ string) error {
	mustExec(t, pool, `INSERT INTO item (id) VALUES (1)`)
	return postgres.InTx(ctx, pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT FROM item`); err != nil {
			return err
		}
		mustExec(t, pool, `UPDATE item SET name = 'other'`)
		_, err := tx.Exec(ctx, `UPDATE item SET name = 'mine'`)
		return err
	})
}

// deadlock lets two transactions lock two rows in opposite order. Postgres ends one of them.
func deadlock(t *testing.T, ctx context.Context, pool *pgxpool.Pool, _ string) error {
	mustExec(t, pool, `INSERT INTO item (id) VALUES (1), (2)`)
	locked := make(chan struct{}, 2)
	both := make(chan struct{})
	run := func(first, second int) error {
		return postgres.InTx(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
			const lock = `SELECT FROM item WHERE id = $1 FOR UPDATE`
			_, err := tx.Exec(ctx, lock, first)
			locked <- struct{}{}
			<-both
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, lock, second)
			return err
		})
	}
	result := make(chan error, 2)
	go func() { result <- run(1, 2) }()
	go func() { result <- run(2, 1) }()
	<-locked
	<-locked
	close(both)
	return errors.Join(<-result, <-result)
}

func lockTimeout(t *testing.T, ctx context.Context, pool *pgxpool.Pool, _ string) error {
	mustExec(t, pool, `INSERT INTO item (id) VALUES (1)`)
	return postgres.InTx(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT FROM item FOR UPDATE`); err != nil {
			return err
		}
		return postgres.InTx(ctx, pool, pgx.TxOptions{}, func(other pgx.Tx) error {
			_, err := other.Exec(ctx, `SET LOCAL lock_timeout = '1ms'; SELECT FROM item FOR UPDATE`)
			return err
		})
	})
}

func connectionCut(t *testing.T, ctx context.Context, _ *pgxpool.Pool, url string) error {
	p, through := newProxy(t, url)
	pool := pgtest.Open(t, through)
	p.loseAnswerTo("generate_series")
	_, err := pool.Exec(ctx, `SELECT FROM generate_series(1, $1)`, 3)
	return err
}

func connectionRefused(t *testing.T, ctx context.Context, _ *pgxpool.Pool, url string) error {
	p, through := newProxy(t, url)
	pool := pgtest.Open(t, through)
	_ = p.listener.Close()
	p.closeAll()
	pool.Reset()
	_, err := pool.Exec(ctx, `SELECT 1`)
	return err
}

func noSuchDatabase(_ *testing.T, ctx context.Context, pool *pgxpool.Pool, _ string) error {
	cfg := pool.Config().ConnConfig.Copy()
	cfg.Database = "no_such_database"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err == nil {
		_ = conn.Close(ctx)
	}
	return err
}

func closedPool(_ *testing.T, ctx context.Context, pool *pgxpool.Pool, _ string) error {
	pool.Close()
	_, err := pool.Exec(ctx, `SELECT 1`)
	return err
}

func noConnectionInTime(t *testing.T, ctx context.Context, pool *pgxpool.Pool, _ string) error {
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			t.Fatalf("acquiring: %v", err)
		}
		defer conn.Release()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	return postgres.InTx(ctx, pool, pgx.TxOptions{}, func(pgx.Tx) error { return nil })
}

func callerStopped(_ *testing.T, ctx context.Context, pool *pgxpool.Pool, _ string) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return postgres.InTx(ctx, pool, pgx.TxOptions{}, func(pgx.Tx) error { return nil })
}

func TestIsUniqueViolation(t *testing.T) {
	t.Parallel()
	pool, _ := newTestTable(t)
	_, err := pool.Exec(t.Context(), `INSERT INTO item (id, name) VALUES (1, 'a'), (2, 'a')`)
	cases := []struct {
		name        string
		constraints []string
		want        bool
	}{
		{"any", nil, true},
		{"the one", []string{"item_name_key"}, true},
		{"one of two", []string{"item_pkey", "item_name_key"}, true},
		{"another", []string{"item_pkey"}, false},
	}
	for _, c := range cases {
		if got := postgres.IsUniqueViolation(err, c.constraints...); got != c.want {
			t.Errorf("%s: IsUniqueViolation(%v, %q): got %v, want %v", c.name, err, c.constraints, got, c.want)
		}
	}
	_, err = pool.Exec(t.Context(), `INSERT INTO item (id, parent) VALUES (3, 4)`)
	if err == nil || postgres.IsUniqueViolation(err) {
		t.Errorf("a foreign key violation: got %v, want an error that is not a unique violation", err)
	}
}
