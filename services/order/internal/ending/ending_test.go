package ending_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/services/order/internal/ending"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

const patience = 30 * time.Second

// Two who wait for one order, and one who waits for another that goes on: the two learn of the end, by the query alone.
func TestWait(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, postgres.Migrations())
	ended, running := uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{ended, running} {
		_, err := pool.Exec(t.Context(), `
			INSERT INTO customer_order (order_id, client_id, idempotency_key, status, currency, total, request, request_hash, request_version, created_at, updated_at)
			VALUES ($1, 'storefront', 'k', 'PENDING', 'EUR', 1, '', '', 1, now(), now())`, id)
		if err != nil {
			t.Fatal(err)
		}
	}
	w := ending.NewWatcher(pool, slog.New(slog.DiscardHandler))
	stop, cancel := context.WithCancel(t.Context())
	runs := make(chan error, 1)
	go func() { runs <- w.Run(stop, t.Context()) }()

	waits := func(id uuid.UUID) <-chan struct{} {
		done := make(chan struct{})
		go func() { defer close(done); w.Wait(t.Context(), id, time.Hour) }()
		return done
	}
	first, second, other := waits(ended), waits(ended), waits(running)
	if _, err := pool.Exec(t.Context(), `UPDATE customer_order SET status = 'CONFIRMED' WHERE order_id = $1`, ended); err != nil {
		t.Fatal(err)
	}
	w.Nudge(ended)
	w.Nudge(uuid.New())
	within(t, "the first", first)
	within(t, "the second", second)
	select {
	case <-other:
		t.Error("the order that goes on: got an end, want none")
	default:
	}
	// Ended before anybody waited: noticed by the first query.
	within(t, "one who comes late", waits(ended))
	cancel()
	within(t, "the other, at the stop", other)
	if err := <-runs; err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
	within(t, "one who comes after the stop", waits(running))
}

func within(t *testing.T, who string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s still waits", who)
	}
}

func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := ending.NewWatcher(nil, slog.New(slog.DiscardHandler))
		began := time.Now()
		w.Wait(t.Context(), uuid.New(), 20*time.Second)
		if got := time.Since(began); got != 20*time.Second {
			t.Errorf("waited for %s, want 20s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		w.Wait(ctx, uuid.New(), 20*time.Second)
		if got := time.Since(began); got != time.Second {
			t.Errorf("waited for %s, want 1s, when the caller went away", got)
		}
	})
}
