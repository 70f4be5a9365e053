package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
)

// requestFullSweep asks for everything pending to be published again.
const requestFullSweep = `UPDATE outbox_sweep SET requested = requested + 1 RETURNING requested`

const selectSweep = `SELECT requested, completed FROM outbox_sweep`

const completeSweep = `UPDATE outbox_sweep SET completed = greatest(completed, $1)`

// held tells of row o that an earlier event of its aggregate was set aside: then it waits, if it is an event.
const held = `EXISTS (SELECT FROM outbox s
                     WHERE s.refusals > 0 AND s.set_aside_at IS NOT NULL
                       AND s.aggregate_id = o.aggregate_id AND s.aggregate_seq > 0 AND s.aggregate_seq < o.aggregate_seq)`

// selectDue finds what only the sweep may publish, and what was left behind.
const selectDue = `
SELECT message_id, aggregate_id
  FROM outbox o
 WHERE set_aside_at IS NULL AND (left_to_sweep OR created_at < now() - $1::interval) AND NOT ` + held + `
 ORDER BY message_id
 LIMIT $2`

// selectPending gives the pending rows of some aggregates. There is no index that finds them: it looks at all rows, by their ids,
// so that it does not read what a backlog has left of the table.
const selectPending = `
SELECT ` + messageColumns + `
  FROM outbox o
  JOIN outbox_message m ON m.message_id = o.message_id AND m.created_at = o.created_at
 WHERE o.aggregate_id = ANY ($1::uuid[]) AND o.set_aside_at IS NULL AND NOT ` + held + `
 ORDER BY o.message_id`

// selectKeys pages through all pending rows, by aggregate. It looks at each row of a narrow table once for each page, and a
// page is large, so that a backlog of millions costs dozens of looks and no index.
const selectKeys = `
SELECT message_id, created_at, aggregate_id
  FROM outbox o
 WHERE set_aside_at IS NULL AND aggregate_id > $1 AND NOT ` + held + `
 ORDER BY aggregate_id
 LIMIT $2`

// selectMessages gives the messages of some pending rows.
const selectMessages = `
SELECT ` + messageColumns + `
  FROM unnest($1::uuid[], $2::timestamptz[]) AS o (message_id, created_at)
  JOIN outbox_message m ON m.message_id = o.message_id AND m.created_at = o.created_at`

// refuseRow counts a refusal for good, and sets the row aside when there were enough.
const refuseRow = `
UPDATE outbox
   SET refusals = refusals + 1,
       set_aside_at = CASE WHEN refusals + 1 >= $2 THEN now() END,
       set_aside_reason = $3
 WHERE message_id = $1
RETURNING set_aside_at IS NOT NULL`

// How often a process looks whether the full sweep it asked for has ended: soon at first, since most are short.
const (
	sweepPoll    = 10 * time.Millisecond
	sweepPollMax = 320 * time.Millisecond
)

// awaitFullSweep asks for a full sweep, and waits until one that began after that has ended. It fails when the session
// ends first.
func (r *Relay) awaitFullSweep(ctx context.Context, session messaging.Session) error {
	var wanted int64
	if err := r.pool.QueryRow(ctx, requestFullSweep).Scan(&wanted); err != nil {
		return fmt.Errorf("asking for a full sweep: %w", err)
	}
	r.wakeSweep()
	for wait := sweepPoll; ; wait = min(2*wait, sweepPollMax) {
		var requested, completed int64
		if err := r.pool.QueryRow(ctx, selectSweep).Scan(&requested, &completed); err != nil {
			return fmt.Errorf("waiting for a full sweep: %w", err)
		}
		if completed >= wanted {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-session.Changed:
			return errSessionEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sweepUnderLease sweeps while this instance holds the lease. The others stand by. A holder without a broker gives the
// lease up: another may have one.
func (r *Relay) sweepUnderLease(ctx context.Context) error {
	lease := postgres.NewLease(r.pool, "outbox_sweep", r.cfg.Owner, sweepLease)
	lease.Logger = r.log
	for ctx.Err() == nil {
		if err := r.conn.WaitConnected(ctx); err != nil {
			return err
		}
		if err := lease.Run(ctx, func(ctx context.Context, _ int64) error { return r.sweepSession(ctx, r.conn.Session()) }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// sweepSession sweeps until the session or ctx ends.
func (r *Relay) sweepSession(ctx context.Context, session messaging.Session) error {
	for session.Connected && !ended(session) && ctx.Err() == nil {
		more, err := r.sweep(ctx, session)
		switch {
		case err != nil && ctx.Err() == nil:
			r.log.Warn("sweep failed, trying again", "error", err)
			pause(ctx, retryWait)
		case more:
		default:
			r.awaitWork(ctx, session)
		}
	}
	return ctx.Err()
}

func (r *Relay) awaitWork(ctx context.Context, session messaging.Session) {
	timer := time.NewTimer(r.cfg.SweepInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.nudge:
	case <-session.Changed:
	case <-ctx.Done():
	}
}

// sweep makes one pass: everything if a full sweep was asked for, else what is due. It reports whether there may be more to
// do at once.
func (r *Relay) sweep(ctx context.Context, session messaging.Session) (more bool, err error) {
	var requested, completed int64
	if err := r.pool.QueryRow(ctx, selectSweep).Scan(&requested, &completed); err != nil {
		return false, fmt.Errorf("reading the state of the sweep: %w", err)
	}
	if requested == completed {
		return r.sweepDue(ctx, session)
	}
	if err := r.sweepAll(ctx, session); err != nil {
		return false, err
	}
	// A request that came since then is counted higher, and leads to another full sweep.
	if _, err := r.pool.Exec(ctx, completeSweep, requested); err != nil {
		return false, fmt.Errorf("completing the full sweep: %w", err)
	}
	return true, nil
}

func (r *Relay) sweepDue(ctx context.Context, session messaging.Session) (more bool, err error) {
	type due struct{ Message, Aggregate uuid.UUID }
	var found []due
	err = r.look(ctx, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[due])
		return err
	}, selectDue, r.cfg.SweepAge, sweepRows)
	if err != nil {
		return false, fmt.Errorf("looking for rows to sweep: %w", err)
	}
	var aggregates []uuid.UUID
	seen := make(map[uuid.UUID]bool)
	r.mu.Lock()
	for _, d := range found {
		if !seen[d.Aggregate] && !r.acked.in(session.Number, d.Message) {
			seen[d.Aggregate] = true
			aggregates = append(aggregates, d.Aggregate)
		}
	}
	r.mu.Unlock()
	more = len(found) == sweepRows && len(aggregates) > 0
	return more, r.sweepPages(ctx, session, aggregates)
}

// byIndex lets a statement go by an index. A backlog of millions leaves a table of empty pages, which new rows keep from being cut
// off, and so does its index, for which it is priced; but only the pages of rows that are pending are read of the index, and all
// of the table.
const byIndex = `SELECT set_config('enable_seqscan', 'off', true)`

// look runs a query by index.
func (r *Relay) look(ctx context.Context, collect func(pgx.Rows) error, sql string, args ...any) error {
	var b pgx.Batch
	b.Queue(byIndex)
	b.Queue(sql, args...).Query(collect)
	return postgres.SendAtomic(ctx, r.pool, &b)
}

// sweepPages publishes what is pending of the aggregates and was not acknowledged to this process in this session. An
// aggregate that fails does not stop the others; the error is the last one.
func (r *Relay) sweepPages(ctx context.Context, session messaging.Session, aggregates []uuid.UUID) (err error) {
	for len(aggregates) > 0 {
		n := min(len(aggregates), sweepPage)
		if failed := r.sweepAggregates(ctx, session, aggregates[:n]); failed != nil {
			if ended(session) || ctx.Err() != nil {
				return failed
			}
			err = failed
		}
		aggregates = aggregates[n:]
	}
	return err
}

// key is a pending row.
type key struct {
	Message   uuid.UUID
	CreatedAt time.Time
	Aggregate uuid.UUID
}

// sweepAll publishes everything that is pending. An aggregate that fails does not stop the others, but the sweep has then
// failed.
func (r *Relay) sweepAll(ctx context.Context, session messaging.Session) (err error) {
	var last uuid.UUID
	for size := r.pageKeys; ; {
		rows, failed := r.pool.Query(ctx, selectKeys, last, size)
		if failed != nil {
			return fmt.Errorf("listing rows to sweep: %w", failed)
		}
		keys, failed := pgx.CollectRows(rows, pgx.RowToStructByPos[key])
		if failed != nil {
			return fmt.Errorf("listing rows to sweep: %w", failed)
		}
		if len(keys) == 0 {
			return err
		}
		if len(keys) == size {
			// The last aggregate may have more rows than fit.
			whole := keys[:startOfLast(keys)]
			if len(whole) == 0 {
				size *= 2
				continue
			}
			keys = whole
		}
		last, size = keys[len(keys)-1].Aggregate, r.pageKeys
		for len(keys) > 0 {
			n := endOfPage(keys)
			if failed := r.sweepRows(ctx, session, keys[:n]); failed != nil {
				if ended(session) || ctx.Err() != nil {
					return failed
				}
				err = failed
			}
			keys = keys[n:]
		}
	}
}

// startOfLast tells where the last aggregate begins in keys, which are sorted by it.
func startOfLast(keys []key) int {
	i := len(keys) - 1
	for i > 0 && keys[i-1].Aggregate == keys[i].Aggregate {
		i--
	}
	return i
}

// endOfPage tells where the first sweepPage aggregates end.
func endOfPage(keys []key) int {
	aggregates := 0
	for i := range keys {
		if i == 0 || keys[i].Aggregate != keys[i-1].Aggregate {
			if aggregates == sweepPage {
				return i
			}
			aggregates++
		}
	}
	return len(keys)
}

// sweepRows publishes rows, which are all that is pending of their aggregates. One that has left the outbox meanwhile is
// only repeated.
func (r *Relay) sweepRows(ctx context.Context, session messaging.Session, keys []key) error {
	ids, times := make([]uuid.UUID, len(keys)), make([]time.Time, len(keys))
	for i, k := range keys {
		ids[i], times[i] = k.Message, k.CreatedAt
	}
	rows, err := r.pool.Query(ctx, selectMessages, ids, times)
	if err != nil {
		return fmt.Errorf("reading rows to sweep: %w", err)
	}
	messages, err := scanMessages(rows)
	if err != nil {
		return err
	}
	return r.sweepMessages(ctx, session, messages)
}

// sweepAggregates publishes the pending rows of the aggregates, but spares those that were acknowledged to this process in
// this session.
func (r *Relay) sweepAggregates(ctx context.Context, session messaging.Session, aggregates []uuid.UUID) error {
	var messages []messaging.Message
	err := r.look(ctx, func(rows pgx.Rows) (err error) {
		messages, err = scanMessages(rows)
		return err
	}, selectPending, aggregates)
	if err != nil {
		return fmt.Errorf("reading rows to sweep: %w", err)
	}
	return r.sweepMessages(ctx, session, r.withoutAcked(session.Number, messages))
}

// sweepMessages publishes messages at the sweep's rate, and counts refusals.
func (r *Relay) sweepMessages(ctx context.Context, session messaging.Session, messages []messaging.Message) (err error) {
	for n := len(messages); n > 0; n -= r.drain.Burst() {
		if err := r.drain.WaitN(ctx, min(n, r.drain.Burst())); err != nil {
			return fmt.Errorf("waiting for the sweep's turn: %w", err)
		}
	}
	for i := range messages {
		fault.At(fault.OutboxSwept, messages[i].AggregateID, concern(&messages[i]))
	}
	chains := chainsOf(messages)
	failures := r.publish(ctx, session, chains, swept)
	for _, f := range failures {
		if !errors.Is(f.err, messaging.ErrNeverAccepted) {
			err = f.err
			continue
		}
		if failed := r.refuse(ctx, f); failed != nil {
			err = failed
		}
	}
	return err
}

func (r *Relay) withoutAcked(session uint64, messages []messaging.Message) []messaging.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := messages[:0]
	for _, m := range messages {
		if !r.acked.in(session, m.ID) {
			kept = append(kept, m)
		}
	}
	return kept
}

// refuse counts a refusal of a row that the broker will never take.
func (r *Relay) refuse(ctx context.Context, f failure) error {
	var aside bool
	if err := r.pool.QueryRow(ctx, refuseRow, f.id, maxRefusals, f.err.Error()).Scan(&aside); err != nil && !postgres.IsNoRows(err) {
		return fmt.Errorf("counting the refusal of outbox row %s: %w", f.id, err)
	}
	if aside {
		r.log.ErrorContext(f.of.About(ctx), "outbox row set aside", "message_id", f.id, "subject", f.of.Subject, "error", f.err)
	}
	return nil
}
