package idempotency

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// DefaultCountInterval is how long a replay may wait to be counted.
	DefaultCountInterval = time.Second
	// maxCounted bounds what is kept between two writes: 10 000 records are under 1 MB, and one statement takes them in some tens of
	// milliseconds.
	maxCounted = 10_000
	// lastCount bounds the write at the end.
	lastCount = 5 * time.Second
)

// Rows are locked in the order of their ids. A lost count harms nobody, so the session does not wait for the disk.
const addReplays = `
WITH counted AS (
    SELECT record_id, replays, mismatches, now() - replayed * interval '1 microsecond' AS replayed_at, now() - mismatched * interval '1 microsecond' AS mismatched_at
      FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS c (record_id, replays, mismatches, replayed, mismatched)
), locked AS MATERIALIZED (
    SELECT r.record_id
      FROM idempotency_record r JOIN counted c ON c.record_id = r.record_id
     ORDER BY r.record_id
       FOR NO KEY UPDATE OF r
)
UPDATE idempotency_record r
   SET replays = r.replays + c.replays,
       last_replay_at = CASE WHEN c.replays > 0 THEN greatest(c.replayed_at, r.last_replay_at) ELSE r.last_replay_at END,
       mismatches = nullif(coalesce(r.mismatches, 0) + c.mismatches, 0),
       last_mismatch_at = CASE WHEN c.mismatches > 0 THEN greatest(c.mismatched_at, r.last_mismatch_at) ELSE r.last_mismatch_at END
  FROM counted c JOIN locked l ON l.record_id = c.record_id
 WHERE r.record_id = c.record_id
   AND set_config('synchronous_commit', 'off', true) IS NOT NULL`

// ReplayCounter counts replays, and requests that were refused because their key was used for another one. It collects them in memory and adds them to their records once in a while, all with one statement, so
// that a replay stays a read and replays of one key never wait for each other. What a process had not written when it died
// was not counted: the number is for people who look into what happened, and decides nothing.
type ReplayCounter struct {
	Pool *pgxpool.Pool
	// Interval is how long a replay may wait to be counted; 0 means DefaultCountInterval.
	Interval time.Duration
	Logger   *slog.Logger

	mu      sync.Mutex
	counted map[uuid.UUID]count // written by Count and Mismatch, taken by Flush
	dropped int64               // what found no room
}

type count struct {
	replays, mismatches  int64
	replayed, mismatched time.Time // the last, by this process's clock
}

func (c count) plus(d count) count {
	return count{c.replays + d.replays, c.mismatches + d.mismatches, later(c.replayed, d.replayed), later(c.mismatched, d.mismatched)}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Count counts one replay of a record. It never waits.
func (c *ReplayCounter) Count(id uuid.UUID) { c.add(id, count{replays: 1, replayed: time.Now()}) }

// Mismatch counts one request that came with the key of a record and was another one. It never waits.
func (c *ReplayCounter) Mismatch(id uuid.UUID) {
	c.add(id, count{mismatches: 1, mismatched: time.Now()})
}

func (c *ReplayCounter) add(id uuid.UUID, n count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted == nil {
		c.counted = make(map[uuid.UUID]count)
	}
	if _, known := c.counted[id]; !known && len(c.counted) >= maxCounted {
		c.dropped += n.replays + n.mismatches
		return
	}
	c.counted[id] = c.counted[id].plus(n)
}

// Run writes what was counted until stop ends, and then once more. Failures of the database are logged; what could not be written
// is kept for the next time.
func (c *ReplayCounter) Run(stop, work context.Context) error {
	log, interval := c.Logger, c.Interval
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if interval <= 0 {
		interval = DefaultCountInterval
	}
	for stop.Err() == nil {
		pause(stop, interval)
		if stop.Err() != nil {
			break
		}
		if err := c.Flush(stop); err != nil && stop.Err() == nil {
			log.WarnContext(stop, "replays not counted, trying again", "error", err)
		}
	}
	last, cancel := context.WithTimeout(work, lastCount)
	defer cancel()
	if err := c.Flush(last); err != nil {
		log.WarnContext(last, "last replays not counted", "error", err)
	}
	return nil
}

// Flush writes what was counted so far.
func (c *ReplayCounter) Flush(ctx context.Context) error {
	c.mu.Lock()
	counted, dropped := c.counted, c.dropped
	c.counted, c.dropped = nil, 0
	c.mu.Unlock()
	if len(counted) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, 0, len(counted))
	for id := range counted {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	replays, mismatches := make([]int64, len(ids)), make([]int64, len(ids))
	// How long ago is told, and not when: the time is the database's.
	replayed, mismatched := make([]int64, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		n := counted[id]
		replays[i], mismatches[i] = n.replays, n.mismatches
		if n.replays > 0 {
			replayed[i] = time.Since(n.replayed).Microseconds()
		}
		if n.mismatches > 0 {
			mismatched[i] = time.Since(n.mismatched).Microseconds()
		}
	}
	if _, err := c.Pool.Exec(ctx, addReplays, ids, replays, mismatches, replayed, mismatched); err != nil {
		c.putBack(counted)
		return fmt.Errorf("counting replays of %d records: %w", len(ids), err)
	}
	if dropped > 0 && c.Logger != nil {
		c.Logger.WarnContext(ctx, "replays of too many records at once, some not counted", "count", dropped)
	}
	return nil
}

func (c *ReplayCounter) putBack(counted map[uuid.UUID]count) {
	for id, n := range counted {
		c.add(id, n)
	}
}
