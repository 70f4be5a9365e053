package inbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
)

// Defaults of [Reaper].
const (
	// DefaultTTL is how long an inbox row lives at least: the fourteen days that streams of events keep a message, and a week.
	DefaultTTL = 21 * 24 * time.Hour
	// DefaultReapInterval is how often the reaper looks. A row that stays for an hour longer is a thousandth of all rows.
	DefaultReapInterval = time.Hour

	// reapBatch bounds one transaction: some tens of milliseconds, so that it delays nobody.
	reapBatch = 1000
	// reapPause is the reaper's rest between batches: it then takes at most a part of one core.
	reapPause = 20 * time.Millisecond
	reapLease = 30 * time.Second
	// clockSkew is how far the clock of a sender may be ahead of the database's.
	clockSkew = time.Hour
)

// Floor says since when a consumer has left nothing unacknowledged: every message that its stream stored before then, and
// that it was to get, is dealt with. An error means that nobody knows, and then nothing expires.
type Floor func(ctx context.Context) (time.Time, error)

// Reaper removes inbox rows that have expired: older than the TTL, and older by the TTL than anything that the consumer has
// not acknowledged. So a consumer that was away for longer than the TTL still knows what it had dealt with before. Every
// instance runs one; one at a time works.
type Reaper struct {
	Pool *pgxpool.Pool
	// Owner names this instance in the lease.
	Owner string
	// TTL must be at least the age of the oldest message that can still arrive; 0 means DefaultTTL.
	TTL time.Duration
	// Floors are the consumers of streams. Rows of any other name expire by their age alone.
	Floors map[string]Floor
	// Interval is how often to look; 0 means DefaultReapInterval.
	Interval time.Duration
	Logger   *slog.Logger
}

// Run removes expired rows until ctx ends. Failures are logged and tried again.
func (r *Reaper) Run(ctx context.Context) error {
	interval := r.Interval
	if interval <= 0 {
		interval = DefaultReapInterval
	}
	lease := postgres.NewLease(r.Pool, "inbox_reaper", r.Owner, reapLease)
	lease.Logger = r.logger()
	err := lease.Run(ctx, func(ctx context.Context, _ int64) error {
		for ctx.Err() == nil {
			n, err := r.Reap(ctx)
			if err != nil && ctx.Err() == nil {
				r.logger().WarnContext(ctx, "inbox rows kept for now", "error", err)
			}
			if n > 0 {
				r.logger().DebugContext(ctx, "expired inbox rows removed", "count", n)
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

const selectConsumers = `
WITH RECURSIVE c AS (
    (SELECT consumer FROM inbox ORDER BY consumer LIMIT 1)
    UNION ALL
    SELECT (SELECT i.consumer FROM inbox i WHERE i.consumer > c.consumer ORDER BY i.consumer LIMIT 1) FROM c WHERE c.consumer IS NOT NULL
)
SELECT consumer FROM c WHERE consumer IS NOT NULL`

// Reap makes one pass over all consumers, and says how many rows went. One whose floor is not known keeps all of its rows.
func (r *Reaper) Reap(ctx context.Context) (total int64, err error) {
	rows, err := r.Pool.Query(ctx, selectConsumers)
	if err != nil {
		return 0, fmt.Errorf("listing the consumers of the inbox: %w", err)
	}
	var consumers []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			rows.Close()
			return 0, fmt.Errorf("listing the consumers of the inbox: %w", err)
		}
		consumers = append(consumers, name)
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("listing the consumers of the inbox: %w", err)
	}
	for _, name := range consumers {
		n, failed := r.reapConsumer(ctx, name)
		total += n
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("removing expired inbox rows of %s: %w", name, failed))
		}
	}
	return total, err
}

const selectCut = `SELECT least(now(), $1::timestamptz) - $2::interval`

func (r *Reaper) reapConsumer(ctx context.Context, consumer string) (total int64, err error) {
	var floor *time.Time
	last := uuid.Max // of ids that may have expired
	ask, ok := r.Floors[consumer]
	if ok {
		at, err := ask(ctx)
		if err != nil {
			return 0, fmt.Errorf("asking for its floor: %w", err)
		}
		floor = &at
	}
	ttl := r.TTL
	if ttl <= 0 {
		ttl = DefaultTTL
	}
	var cut time.Time
	if err := r.Pool.QueryRow(ctx, selectCut, floor, ttl).Scan(&cut); err != nil {
		return 0, fmt.Errorf("asking for the time: %w", err)
	}
	if ok {
		last = idAt(cut.Add(clockSkew)) // messages are written before they are received
	}
	total, err = r.remove(ctx, removeRows, consumer, last, cut)
	if err != nil {
		return total, err
	}
	_, err = r.remove(ctx, removeFailures, consumer, uuid.Max, cut)
	return total, err
}

// removeRows looks at a page of rows, from the oldest message on, and deletes those that have expired. Deleting them is never
// urgent, so the transaction does not wait for the disk.
const removeRows = `
WITH page AS MATERIALIZED (
    SELECT message_id, received_at FROM inbox
     WHERE consumer = $1 AND message_id > $2 AND message_id < $3
     ORDER BY message_id LIMIT $4
), gone AS (
    DELETE FROM inbox i USING page p
     WHERE i.consumer = $1 AND i.message_id = p.message_id AND p.received_at < $5 AND i.received_at < $5
       AND set_config('synchronous_commit', 'off', true) IS NOT NULL
    RETURNING 1
)
SELECT (SELECT message_id FROM page ORDER BY message_id DESC LIMIT 1), (SELECT count(*) FROM page), (SELECT count(*) FROM gone)`

const removeFailures = `
WITH page AS MATERIALIZED (
    SELECT message_id, first_failed_at FROM inbox_failure
     WHERE consumer = $1 AND message_id > $2 AND message_id < $3
     ORDER BY message_id LIMIT $4
), gone AS (
    DELETE FROM inbox_failure i USING page p
     WHERE i.consumer = $1 AND i.message_id = p.message_id AND p.first_failed_at < $5
    RETURNING 1
)
SELECT (SELECT message_id FROM page ORDER BY message_id DESC LIMIT 1), (SELECT count(*) FROM page), (SELECT count(*) FROM gone)`

func (r *Reaper) remove(ctx context.Context, sql, consumer string, last uuid.UUID, cut time.Time) (total int64, err error) {
	var after uuid.UUID
	for {
		var (
			at         *uuid.UUID
			page, gone int64
		)
		if err := r.Pool.QueryRow(ctx, sql, consumer, after, last, reapBatch, cut).Scan(&at, &page, &gone); err != nil {
			return total, err
		}
		total += gone
		if page < reapBatch || at == nil {
			return total, nil
		}
		after = *at
		pause(ctx, reapPause)
	}
}

// idAt is below every UUIDv7 of a later millisecond.
func idAt(t time.Time) (id uuid.UUID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(t.UnixMilli()))
	copy(id[:], ms[2:])
	return id
}

func (r *Reaper) logger() *slog.Logger {
	if r.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return r.Logger
}
