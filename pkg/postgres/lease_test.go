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

// tries is how often a test of a lease that ends by itself is played. A machine that stalls for longer than the lease
// lasts loses it as it should, which shows nothing; a lease that is not renewed is lost each time.
const tries = 20

// Work goes on for several ttls: the lease is renewed. When ctx ends it is renewed on, until the work has ended.
func TestLeaseRunRenews(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for range tries {
		if renewsUntilTheEnd(t, pool) {
			return
		}
	}
	t.Errorf("no tenure of %d outlived its ttl", tries)
}

// renewsUntilTheEnd reports whether a lease was held for several ttls, both before and after its context had ended.
func renewsUntilTheEnd(t *testing.T, pool *pgxpool.Pool) (held bool) {
	t.Helper()
	const ttl = 400 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	// renewed waits for n changes of the lease's end, and for less where the lease ends before.
	renewed := func(n int) bool {
		var last time.Time
		for n > 0 {
			var until time.Time
			var valid bool
			if err := pool.QueryRow(context.Background(), `SELECT until, until > clock_timestamp() FROM lease`).Scan(&until, &valid); err != nil {
				t.Errorf("reading lease: %v", err)
				return false
			}
			if !valid {
				return false
			}
			if until.After(last) {
				last = until
				n--
			}
		}
		return true
	}
	err := postgres.NewLease(pool, "sweep", "a", ttl).Run(ctx, func(ctx context.Context, token int64) error {
		defer stop() // one tenure is enough
		if !renewed(5) {
			return nil
		}
		if ctx.Err() != nil {
			return nil // lost by its own clock, which is earlier
		}
		stop()
		<-ctx.Done()
		if !renewed(5) {
			return nil
		}
		rival, _, err := postgres.NewLease(pool, "sweep", "b", long).TryAcquire(t.Context())
		if err != nil {
			t.Errorf("TryAcquire: %v", err)
		}
		held = !rival
		return nil
	})
	if err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	if !held { // by now it has been released, or the rival holds it
		expire(t, pool)
	}
	return held
}

// A holder that cannot reach the database stops before the database gives the lease to another, and starts again, with
// a higher token, when it can.
func TestLeaseRunStopsInTime(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	direct := pgtest.Open(t, url)
	p, through := newProxy(t, url)
	for range tries {
		if stopsInTime(t, p, pgtest.Open(t, through), direct) {
			return
		}
	}
	t.Errorf("no holder of %d noticed in time that it could not renew", tries)
}

// stopsInTime reports whether a holder whose connection froze had noticed when the lease ended by the database's clock.
func stopsInTime(t *testing.T, p *proxy, pool, direct *pgxpool.Pool) (inTime bool) {
	t.Helper()
	const ttl = 500 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var tokens []int64
	err := postgres.NewLease(pool, "sweep", "a", ttl).Run(ctx, func(fnCtx context.Context, token int64) error {
		if tokens = append(tokens, token); len(tokens) == 2 {
			stop()
			return nil
		}
		p.frozen.Store(true)
		<-fnCtx.Done()
		noticed := time.Now()
		if got := context.Cause(fnCtx); !errors.Is(got, postgres.ErrLeaseLost) {
			t.Errorf("cause: got %v, want %v", got, postgres.ErrLeaseLost)
		}
		// One clock: server and test run on one machine.
		if err := direct.QueryRow(context.Background(), `SELECT until > $1 FROM lease`, noticed).Scan(&inTime); err != nil {
			t.Errorf("reading lease: %v", err)
		}
		p.frozen.Store(false)
		p.closeAll()
		return fnCtx.Err()
	})
	if err != nil || len(tokens) != 2 {
		t.Fatalf("Run: got %v after %d tenures, want nil after 2", err, len(tokens))
	}
	if tokens[1] <= tokens[0] {
		t.Errorf("tokens of the tenures: got %v, want them to grow", tokens)
	}
	return inTime
}
