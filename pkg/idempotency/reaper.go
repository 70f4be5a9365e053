package idempotency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
)

const (
	// reapBatch bounds one transaction of the reaper: some tens of milliseconds, so that it delays nobody.
	reapBatch = 1000
	// DefaultReapInterval is how often the reaper looks. A record that stays a minute longer harms nobody.
	DefaultReapInterval = time.Minute
	reapLease           = 30 * time.Second
	// reapPause is the reaper's rest between full batches: it then takes at most a part of one core.
	reapPause = 50 * time.Millisecond
)

// Deleting them is never urgent, so the session does not wait for the disk: a lost delete is made again.
const deleteExpired = `
WITH expired AS (
    SELECT record_id
      FROM idempotency_record
     WHERE expires_at <= now()
     ORDER BY expires_at
     LIMIT $1
       FOR UPDATE SKIP LOCKED
)
DELETE FROM idempotency_record r
 USING expired e
 WHERE r.record_id = e.record_id
   AND set_config('synchronous_commit', 'off', true) IS NOT NULL`

// Reaper removes expired records. Every instance runs one; one at a time works.
type Reaper struct {
	Pool *pgxpool.Pool
	// Owner names this instance in the lease.
	Owner string
	// Interval is how often to look; 0 means DefaultReapInterval.
	Interval time.Duration
	Logger   *slog.Logger
}

// Run removes expired records until ctx ends. Failures of the database are logged and tried again.
func (r *Reaper) Run(ctx context.Context) error {
	log, interval := r.Logger, r.Interval
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if interval <= 0 {
		interval = DefaultReapInterval
	}
	lease := postgres.NewLease(r.Pool, "idempotency_reaper", r.Owner, reapLease)
	lease.Logger = log
	err := lease.Run(ctx, func(ctx context.Context, _ int64) error {
		for ctx.Err() == nil {
			n, err := Reap(ctx, r.Pool)
			if err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "expired idempotency records not removed, trying again", "error", err)
			}
			if n > 0 {
				log.DebugContext(ctx, "expired idempotency records removed", "count", n)
			}
			pause(ctx, interval)
		}
		return ctx.Err()
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Reap removes all records that have expired, batch by batch, and says how many. It may run at any number of places.
func Reap(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	var total int64
	for {
		tag, err := pool.Exec(ctx, deleteExpired, reapBatch)
		if err != nil {
			return total, fmt.Errorf("removing expired idempotency records: %w", err)
		}
		total += tag.RowsAffected()
		if tag.RowsAffected() < reapBatch {
			return total, nil
		}
		pause(ctx, reapPause)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
