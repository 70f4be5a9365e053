package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/postgres"
)

const (
	upkeepLease    = 30 * time.Second
	upkeepInterval = time.Hour
	// partitionsAhead is how many days have their partition: today, and two that a service may be away from its upkeep.
	partitionsAhead = 3
	// upkeepLockWait bounds how long dropping a day may keep writers waiting. Who does not get the lock tries in an hour.
	upkeepLockWait = `SELECT set_config('lock_timeout', '1s', true)`
)

const addPartitions = `SELECT outbox_add_partitions($1)`

const dropPartitions = `SELECT outbox_drop_partitions(now() - $1::interval)`

// upkeep makes the partitions of days to come and drops those that are past the retention. One instance does it.
func (r *Relay) upkeep(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // there is no time left, which is no failure
	}
	lease := postgres.NewLease(r.pool, "outbox_upkeep", r.cfg.Owner, upkeepLease)
	lease.Logger = r.log
	err := lease.Run(ctx, func(ctx context.Context, _ int64) error {
		for ctx.Err() == nil {
			wait := upkeepInterval
			if err := r.upkeepOnce(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("upkeep of what was sent failed, trying again", "error", err)
				wait = time.Minute
			}
			pause(ctx, wait)
		}
		return ctx.Err()
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (r *Relay) upkeepOnce(ctx context.Context) error {
	var made, dropped int
	var b pgx.Batch
	b.Queue(upkeepLockWait)
	b.Queue(addPartitions, partitionsAhead).QueryRow(func(row pgx.Row) error { return row.Scan(&made) })
	if err := postgres.SendAtomic(ctx, r.pool, &b); err != nil {
		return fmt.Errorf("making partitions: %w", err)
	}
	b = pgx.Batch{}
	b.Queue(upkeepLockWait)
	b.Queue(dropPartitions, r.cfg.Retention).QueryRow(func(row pgx.Row) error { return row.Scan(&dropped) })
	if err := postgres.SendAtomic(ctx, r.pool, &b); err != nil {
		return fmt.Errorf("dropping partitions: %w", err)
	}
	if made+dropped > 0 {
		r.log.Info("partitions of what was sent", "made", made, "dropped", dropped)
	}
	return nil
}
