package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// long is a ttl that does not end during a test.
const long = time.Hour

func tryAcquire(t *testing.T, l *postgres.Lease, wantHeld bool, wantToken int64) {
	t.Helper()
	held, token, err := l.TryAcquire(t.Context())
	if err != nil || held != wantHeld || token != wantToken {
		t.Fatalf("TryAcquire: got held %v, token %d, error %v; want %v, %d", held, token, err, wantHeld, wantToken)
	}
}

// expire lets the lease end by the database's clock.
func expire(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, `UPDATE lease SET until = clock_timestamp()`)
}

func TestLeaseTokens(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	// The same owner's name in two processes, as after a restart, does not make one holder of them.
	a, b := postgres.NewLease(pool, "sweep", "order-0", long), postgres.NewLease(pool, "sweep", "order-0", long)

	tryAcquire(t, a, true, 1)
	tryAcquire(t, a, true, 1) // renews
	tryAcquire(t, b, false, 0)
	tryAcquire(t, postgres.NewLease(pool, "other", "order-0", long), true, 1)

	if err := b.Release(t.Context()); err != nil { // not b's to give up
		t.Fatalf("Release: %v", err)
	}
	tryAcquire(t, b, false, 0)

	if err := a.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
	tryAcquire(t, b, true, 2) // at once

	expire(t, pool)
	tryAcquire(t, a, true, 3)
	tryAcquire(t, b, false, 0) // b was frozen and wakes

	expire(t, pool)
	tryAcquire(t, a, true, 4) // nobody was between, but a cannot know
}

// Of many that try at once, one gets it.
func TestLeaseRace(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	var holders atomic.Int32
	result := make(chan error)
	const rivals = 8
	for range rivals {
		go func() {
			held, _, err := postgres.NewLease(pool, "sweep", "x", long).TryAcquire(t.Context())
			if held {
				holders.Add(1)
			}
			result <- err
		}()
	}
	for range rivals {
		if err := <-result; err != nil {
			t.Errorf("TryAcquire: %v", err)
		}
	}
	if got := holders.Load(); got != 1 {
		t.Errorf("holders: got %d, want 1", got)
	}
}

// Two run; the one that holds stops, and the other takes over although the lease was good for an hour.
func TestLeaseRunHandsOver(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	first, stopFirst := context.WithCancel(t.Context())
	defer stopFirst()
	tokens, ended := make(chan int64), make(chan error, 2)
	hold := func(ctx context.Context, token int64) error {
		tokens <- token
		<-ctx.Done()
		return ctx.Err()
	}
	go func() { ended <- postgres.NewLease(pool, "sweep", "first", long).Run(first, hold) }()
	if got := <-tokens; got != 1 {
		t.Errorf("token of the first: got %d, want 1", got)
	}
	// Its polls are a third of its ttl apart.
	second, stopSecond := context.WithCancel(t.Context())
	defer stopSecond()
	go func() { ended <- postgres.NewLease(pool, "sweep", "second", 30*time.Millisecond).Run(second, hold) }()
	stopFirst()
	if got := <-tokens; got != 2 {
		t.Errorf("token of the second: got %d, want 2", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run of the first: got %v, want nil", err)
	}
	stopSecond()
	if err := <-ended; err != nil {
		t.Errorf("Run of the second: got %v, want nil", err)
	}
}

func TestLeaseRunReturnsErrorOfWork(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	boom := errors.New("boom")
	l := postgres.NewLease(pool, "sweep", "a", long)
	if err := l.Run(t.Context(), func(context.Context, int64) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("Run: got %v, want %v", err, boom)
	}
	tryAcquire(t, postgres.NewLease(pool, "sweep", "b", long), true, 2) // it was released
}

// Work goes on for several ttls: the lease is renewed. When ctx ends it is renewed on, until the work has ended.
func TestLeaseRunRenews(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	const ttl = 400 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	renewed := func(n int) {
		var last time.Time
		for n > 0 {
			var until time.Time
			if err := pool.QueryRow(context.Background(), `SELECT until FROM lease`).Scan(&until); err != nil {
				t.Errorf("reading lease: %v", err)
				return
			}
			if until.After(last) {
				last = until
				n--
			}
		}
	}
	err := postgres.NewLease(pool, "sweep", "a", ttl).Run(ctx, func(ctx context.Context, token int64) error {
		renewed(5)
		if ctx.Err() != nil {
			t.Errorf("the context of the work ended: %v", context.Cause(ctx))
		}
		stop()
		<-ctx.Done()
		renewed(5)
		tryAcquire(t, postgres.NewLease(pool, "sweep", "b", long), false, 0)
		return nil
	})
	if err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}

// A holder that cannot reach the database stops before the database gives the lease to another, and starts again, with
// a higher token, when it can.
func TestLeaseRunStopsInTime(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	direct := pgtest.Open(t, url)
	p, through := newProxy(t, url)
	pool := pgtest.Open(t, through)
	const ttl = 500 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	tenures := 0
	err := postgres.NewLease(pool, "sweep", "a", ttl).Run(ctx, func(fnCtx context.Context, token int64) error {
		if tenures++; tenures == 2 {
			if token != 2 {
				t.Errorf("token of the second tenure: got %d, want 2", token)
			}
			stop()
			return nil
		}
		p.frozen.Store(true)
		<-fnCtx.Done()
		noticed := time.Now()
		if got := context.Cause(fnCtx); !errors.Is(got, postgres.ErrLeaseLost) {
			t.Errorf("cause: got %v, want %v", got, postgres.ErrLeaseLost)
		}
		var left time.Duration // one clock here: server and test run on one machine
		if err := direct.QueryRow(context.Background(), `SELECT until - $1::timestamptz FROM lease`, noticed).Scan(&left); err != nil {
			t.Errorf("reading lease: %v", err)
		}
		// The timer may fire late by what a busy machine makes of it, never by the time that a renewal hangs.
		if left < -ttl/2 {
			t.Errorf("noticed %v after the lease had ended", -left)
		}
		p.frozen.Store(false)
		p.closeAll()
		return fnCtx.Err()
	})
	if err != nil || tenures != 2 {
		t.Errorf("Run: got %v after %d tenures, want nil after 2", err, tenures)
	}
}
