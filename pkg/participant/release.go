package participant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"github.com/throughline/throughline/pkg/telemetry"
)

const (
	// DefaultRetryRate is how many steps that were attempted before a process claims each second, at most. The payment provider that we
	// know of allows a hundred calls a second, and first attempts go beside it.
	DefaultRetryRate = 100

	// ReleaseTime is how long steps are let go at once after a release.
	ReleaseTime = 10 * time.Minute

	// releaseBatch bounds what one release makes due: it locks that many rows.
	releaseBatch = 10_000
)

const openRelease = `
INSERT INTO step_release AS r (until) VALUES (now() + $1::interval)
    ON CONFLICT ON CONSTRAINT step_release_pkey DO UPDATE SET until = greatest(r.until, excluded.until)`

// pullSteps leaves alone what is being called, what waits for the customer, and what an undo deals with.
const pullSteps = `
WITH due AS (
    SELECT order_id, step_name
      FROM step
     WHERE due_at > now() AND lease_owner = '' AND state = 'pending' AND attempts > 0 AND (kind <> 'action' OR undone_at IS NULL)
     ORDER BY order_id, step_name
     LIMIT $1
       FOR UPDATE SKIP LOCKED
)
UPDATE step s
   SET due_at = now()
  FROM due
 WHERE s.order_id = due.order_id AND s.step_name = due.step_name`

const countDue = `SELECT count(*) FROM step WHERE due_at <= now() AND (kind <> 'action' OR undone_at IS NULL)`

// Release lets steps that were attempted before be attempted at once, for [ReleaseTime], instead of at a limited rate, and makes those due
// now that wait for their next attempt, up to 10,000 of them. It gives how many steps are due now. It may be repeated.
func Release(ctx context.Context, db Executor) (due int64, err error) {
	var b pgx.Batch
	b.Queue(openRelease, ReleaseTime)
	b.Queue(pullSteps, releaseBatch)
	b.Queue(countDue).QueryRow(func(row pgx.Row) error { return row.Scan(&due) })
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return 0, fmt.Errorf("releasing steps: %w", err)
	}
	return due, nil
}

// Executor is a pool, a connection or a transaction.
type Executor interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// newRetries makes the limiter of steps that were attempted before. One claim may take more than is left, and is then made up for.
func newRetries(cfg *Config) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(cfg.RetryRate), max(cfg.RetryRate, cfg.Concurrency))
}

// freshOnly tells whether steps that were attempted before must wait: an outage leaves many of them behind, which must neither come all
// at once nor keep new ones waiting.
func (r *Runner) freshOnly(ctx context.Context) bool {
	if r.retries.TokensAt(r.cfg.Process.Now()) >= 1 {
		return false
	}
	if r.cfg.Pool == nil {
		return true
	}
	var until time.Time
	err := r.cfg.Pool.QueryRow(ctx, `SELECT until FROM step_release WHERE until > now()`).Scan(&until)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) && ctx.Err() == nil {
		r.log.Warn("not known whether steps were released", telemetry.LogError, err)
	}
	return err != nil
}

// spend counts the steps of a claim that were attempted before.
func (r *Runner) spend(claimed []Record) {
	n := 0
	for i := range claimed {
		if claimed[i].Attempts > 1 {
			n++
		}
	}
	if n > 0 {
		r.retries.ReserveN(r.cfg.Process.Now(), min(n, r.retries.Burst()))
	}
}
