package saga

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"github.com/throughline/throughline/pkg/telemetry"
)

// DefaultDueRate is how many sagas an engine looks after each second, at most, whose deadline has passed. Each of them asks a participant
// about each open step, which reads one row. Without failures hardly any saga gets there.
const DefaultDueRate = 200

// ReleaseTime is how long due work is let go at once after a release.
const ReleaseTime = 10 * time.Minute

// Release lets due work go at once, for [ReleaseTime], instead of at a limited rate, and takes back that timers were put off because their
// sagas could not be dealt with. It gives how many timers are due now. It may be repeated. It begins to hold within a second.
func Release(ctx context.Context, db Executor) (due int64, err error) {
	var b pgx.Batch
	QueueRelease(&b, &due)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return 0, fmt.Errorf("releasing due sagas: %w", err)
	}
	return due, nil
}

// QueueRelease adds a [Release] to a batch. due is filled in once the batch has run.
func QueueRelease(b *pgx.Batch, due *int64) {
	b.Queue(openRelease, ReleaseTime)
	b.Queue(pullTimers)
	b.Queue(`SELECT count(*) FROM saga_timer WHERE due_at <= now()`).QueryRow(func(row pgx.Row) error { return row.Scan(due) })
}

// Executor is a pool, a connection or a transaction.
type Executor interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

const openRelease = `
INSERT INTO saga_release AS r (until) VALUES (now() + $1::interval)
    ON CONFLICT ON CONSTRAINT saga_release_pkey DO UPDATE SET until = greatest(r.until, excluded.until)`

const pullTimers = `
WITH put_off AS (
    DELETE FROM saga_timer WHERE failures > 0 AND due_at > now() RETURNING saga_id
)
INSERT INTO saga_timer (due_at, saga_id) SELECT DISTINCT now(), saga_id FROM put_off
    ON CONFLICT DO NOTHING`

const selectRelease = `SELECT until FROM saga_release WHERE until > now()`

// throttle bounds the rate at which due work is let go, unless somebody has released it.
type throttle struct {
	limiter *rate.Limiter
	// released asks whether due work is let go at once.
	released func(ctx context.Context) (bool, error)
}

// allow tells how many of n may go now.
func (t *throttle) allow(ctx context.Context, n int) int {
	if t == nil {
		return n
	}
	now := time.Now()
	if t.limiter.AllowN(now, n) {
		return n
	}
	if open, err := t.released(ctx); err == nil && open {
		return n
	}
	n = min(n, int(t.limiter.TokensAt(now)))
	if n <= 0 || !t.limiter.AllowN(now, n) {
		return 0
	}
	return n
}

func (e *Engine[T]) newThrottle() *throttle {
	perSecond := e.cfg.DueRate
	return &throttle{
		// Some tenths of a second's work at a time, so that others get their turn.
		limiter: rate.NewLimiter(rate.Limit(perSecond), max(perSecond/2, 1)),
		released: func(ctx context.Context) (bool, error) {
			var until time.Time
			err := e.cfg.Pool.QueryRow(ctx, selectRelease).Scan(&until)
			if errors.Is(err, pgx.ErrNoRows) {
				return false, nil
			}
			if err != nil {
				e.log.Warn("not known whether due sagas were released", telemetry.LogError, err)
			}
			return err == nil, err
		},
	}
}
