package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
)

// requestFullSweep asks for everything pending to be published again.
const requestFullSweep = `UPDATE outbox_sweep SET requested = requested + 1 RETURNING requested`

const selectSweep = `SELECT requested, completed FROM outbox_sweep`

const completeSweep = `UPDATE outbox_sweep SET completed = greatest(completed, $1)`

// selectDue finds what only the sweep may publish, and what was left behind.
const selectDue = `
SELECT message_id, aggregate_id
  FROM outbox
 WHERE set_aside_at IS NULL AND (left_to_sweep OR created_at < now() - $1::interval)
 ORDER BY message_id
 LIMIT $2`

// selectPending gives the pending rows of some aggregates. An event that was set aside holds back the later events of its
// aggregate, and nothing else.
const selectPending = `
SELECT ` + messageColumns + `
  FROM outbox o
 WHERE aggregate_id = ANY ($1::uuid[]) AND set_aside_at IS NULL
   AND NOT EXISTS (SELECT FROM outbox s
                    WHERE s.set_aside_at IS NOT NULL AND s.aggregate_id = o.aggregate_id AND s.aggregate_seq < o.aggregate_seq
                      AND s.aggregate_seq > 0)`

// selectAggregates pages through all aggregates that have pending rows.
const selectAggregates = `
SELECT DISTINCT aggregate_id
  FROM outbox
 WHERE set_aside_at IS NULL AND aggregate_id > $1
 ORDER BY aggregate_id
 LIMIT $2`

// refuseRow counts a refusal for good, and sets the row aside when there were enough.
const refuseRow = `
UPDATE outbox
   SET refusals = refusals + 1,
       set_aside_at = CASE WHEN refusals + 1 >= $2 THEN now() END,
       set_aside_reason = $3
 WHERE message_id = $1
RETURNING set_aside_at IS NOT NULL`

// awaitFullSweep asks for a full sweep, and waits until one that began after that has ended. It fails when the session
// ends first.
func (r *Relay) awaitFullSweep(ctx context.Context, session messaging.Session) error {
	var wanted int64
	if err := r.pool.QueryRow(ctx, requestFullSweep).Scan(&wanted); err != nil {
		return fmt.Errorf("asking for a full sweep: %w", err)
	}
	r.wakeSweep()
	tick := time.NewTicker(sweepPoll)
	defer tick.Stop()
	for {
		var requested, completed int64
		if err := r.pool.QueryRow(ctx, selectSweep).Scan(&requested, &completed); err != nil {
			return fmt.Errorf("waiting for a full sweep: %w", err)
		}
		if completed >= wanted {
			return nil
		}
		select {
		case <-tick.C:
		case <-session.Changed:
			return errSessionEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sweepPoll is how often a process looks whether the full sweep it asked for has ended.
const sweepPoll = 20 * time.Millisecond

// sweepUnderLease sweeps while this instance holds the lease. The others stand by.
func (r *Relay) sweepUnderLease(ctx context.Context) error {
	lease := postgres.NewLease(r.pool, "outbox_sweep", r.cfg.Owner, sweepLease)
	return lease.Run(ctx, func(ctx context.Context, _ int64) error {
		r.log.Info("sweeping the outbox")
		for ctx.Err() == nil {
			if err := r.conn.WaitConnected(ctx); err != nil {
				return err
			}
			more, err := r.sweep(ctx, r.conn.Session())
			switch {
			case err != nil && ctx.Err() == nil:
				r.log.Warn("sweep failed, trying again", "error", err)
				pause(ctx, retryWait)
			case more:
			default:
				r.awaitWork(ctx)
			}
		}
		return ctx.Err()
	})
}

func (r *Relay) awaitWork(ctx context.Context) {
	timer := time.NewTimer(r.cfg.SweepInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.nudge:
	case <-ctx.Done():
	}
}

// sweep makes one pass: everything if a full sweep was asked for, else what is due.
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
	if _, err := r.pool.Exec(ctx, completeSweep, requested); err != nil {
		return false, fmt.Errorf("completing the full sweep: %w", err)
	}
	return true, nil
}

func (r *Relay) sweepDue(ctx context.Context, session messaging.Session) (more bool, err error) {
	rows, err := r.pool.Query(ctx, selectDue, r.cfg.SweepAge, sweepBatch)
	if err != nil {
		return false, fmt.Errorf("looking for rows to sweep: %w", err)
	}
	type due struct{ Message, Aggregate uuid.UUID }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[due])
	if err != nil {
		return false, fmt.Errorf("looking for rows to sweep: %w", err)
	}
	var aggregates []uuid.UUID
	seen := make(map[uuid.UUID]bool)
	r.mu.Lock()
	for _, d := range found {
		if _, ok := r.acked.ids[d.Message]; !ok && !seen[d.Aggregate] {
			seen[d.Aggregate] = true
			aggregates = append(aggregates, d.Aggregate)
		}
	}
	r.mu.Unlock()
	if len(aggregates) == 0 {
		return false, nil
	}
	return len(found) == sweepBatch, r.sweepAggregates(ctx, session, aggregates, false)
}

func (r *Relay) sweepAll(ctx context.Context, session messaging.Session) error {
	var last uuid.UUID
	for {
		rows, err := r.pool.Query(ctx, selectAggregates, last, sweepBatch)
		if err != nil {
			return fmt.Errorf("listing aggregates to sweep: %w", err)
		}
		aggregates, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return fmt.Errorf("listing aggregates to sweep: %w", err)
		}
		if len(aggregates) == 0 {
			return nil
		}
		if err := r.sweepAggregates(ctx, session, aggregates, true); err != nil {
			return err
		}
		last = aggregates[len(aggregates)-1]
	}
}

// sweepAggregates publishes all pending rows of the aggregates. Unless again is set, it spares those that this process has
// published in this session.
func (r *Relay) sweepAggregates(ctx context.Context, session messaging.Session, aggregates []uuid.UUID, again bool) error {
	rows, err := r.pool.Query(ctx, selectPending, aggregates)
	if err != nil {
		return fmt.Errorf("reading rows to sweep: %w", err)
	}
	messages, err := scanMessages(rows)
	if err != nil {
		return err
	}
	if !again {
		messages = r.withoutAcked(messages)
	}
	chains := chainsOf(messages)
	for _, f := range r.publish(ctx, session.Number, chains) {
		if !errors.Is(f.err, messaging.ErrNeverAccepted) {
			err = f.err
			continue
		}
		if refused := r.refuse(ctx, f); refused != nil {
			err = refused
		}
	}
	return err
}

func (r *Relay) withoutAcked(messages []messaging.Message) []messaging.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := messages[:0]
	for _, m := range messages {
		if _, ok := r.acked.ids[m.ID]; !ok {
			kept = append(kept, m)
		}
	}
	return kept
}

// refuse counts a refusal of a row that the broker will never take.
func (r *Relay) refuse(ctx context.Context, f failure) error {
	var aside bool
	if err := r.pool.QueryRow(ctx, refuseRow, f.id, maxRefusals, f.err.Error()).Scan(&aside); err != nil {
		return fmt.Errorf("counting the refusal of outbox row %s: %w", f.id, err)
	}
	if aside {
		r.log.Error("outbox row set aside", "message_id", f.id, "error", f.err)
	}
	return nil
}
