package idempotency_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func replays(t *testing.T, pool *pgxpool.Pool, id uuid.UUID) int64 {
	t.Helper()
	found, err := idempotency.Find(t.Context(), pool, id)
	if err != nil {
		t.Fatal(err)
	}
	return found[id].Replays
}

// Replays that are counted at many places at once are all counted, and counting touches no index.
func TestReplayCounter(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, idempotency.Migrations())
	a, b := record("a"), record("b")
	if err := insert(t.Context(), pool, a, b); err != nil {
		t.Fatal(err)
	}
	const instances, each = 4, 250
	var wg sync.WaitGroup
	for range instances {
		c := &idempotency.ReplayCounter{Pool: pool}
		wg.Go(func() {
			for i := range each {
				c.Count(a.ID)
				if i%2 == 0 {
					c.Count(b.ID)
				}
				if i%50 != 49 {
					continue
				}
				c.Count(uuid.New()) // a record that is not there is passed over
				if err := c.Flush(t.Context()); err != nil {
					t.Errorf("counting: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if got := replays(t, pool, a.ID); got != instances*each {
		t.Errorf("got %d replays of a, want %d", got, instances*each)
	}
	if got := replays(t, pool, b.ID); got != instances*each/2 {
		t.Errorf("got %d replays of b, want %d", got, instances*each/2)
	}
}

// What the database did not take is counted later, and what is left at the end is counted then.
func TestReplayCounterKeeps(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, idempotency.Migrations())
	a := record("a")
	if err := insert(t.Context(), pool, a); err != nil {
		t.Fatal(err)
	}
	c := &idempotency.ReplayCounter{Pool: pool, Interval: time.Hour}
	c.Count(a.ID)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Flush(ended); err == nil {
		t.Fatal("got no error from a context that has ended: the test proves nothing")
	}
	c.Count(a.ID)
	if err := c.Run(ended, t.Context()); err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	if got := replays(t, pool, a.ID); got != 2 {
		t.Errorf("got %d replays, want 2", got)
	}
}

// Requests that were refused because their key was used for another one are counted beside the replays, each with its last time.
func TestMismatches(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, idempotency.Migrations())
	a, b := record("a"), record("b")
	if err := insert(t.Context(), pool, a, b); err != nil {
		t.Fatal(err)
	}
	c := &idempotency.ReplayCounter{Pool: pool}
	c.Count(a.ID)
	c.Mismatch(a.ID)
	c.Mismatch(a.ID)
	c.Count(b.ID)
	for range 2 { // the second time there is nothing to add
		if err := c.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	found, err := idempotency.Find(t.Context(), pool, a.ID, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if r := found[a.ID]; r.Replays != 1 || r.Mismatches != 2 || r.LastReplayAt == nil || r.LastMismatchAt == nil || r.Instance != t.Name() {
		t.Errorf("record of a: got %d replays (last %v), %d mismatches (last %v), instance %q, want 1, 2, both times, and %q",
			r.Replays, r.LastReplayAt, r.Mismatches, r.LastMismatchAt, r.Instance, t.Name())
	}
	if r := found[b.ID]; r.Replays != 1 || r.Mismatches != 0 || r.LastReplayAt == nil || r.LastMismatchAt != nil {
		t.Errorf("record of b: got %d replays (last %v), %d mismatches (last %v), want 1, a time, 0 and none",
			r.Replays, r.LastReplayAt, r.Mismatches, r.LastMismatchAt)
	}
}
