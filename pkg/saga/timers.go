package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

// timerRetry is how long a saga waits whose deadline could not be dealt with.
const timerRetry = 5 * time.Second

const selectTimers = `
SELECT due_at, saga_id
  FROM saga_timer
 WHERE due_at <= now()
 ORDER BY due_at
 LIMIT $1`

// fireTimers takes a batch of timers that are due, asks about the steps that are overdue, and applies the answers. It
// reports how many timers it took. Sagas are asked about side by side and written one by one, so that one that fails costs
// only itself; it is looked at again after the others.
func (e *Engine[T]) fireTimers(ctx context.Context) (int, error) {
	rows, err := e.cfg.Pool.Query(ctx, selectTimers, timerBatch)
	if err != nil {
		return 0, fmt.Errorf("reading timers: %w", err)
	}
	timers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (timer, error) {
		var t timer
		err := row.Scan(&t.due, &t.id)
		return t, err
	})
	if err != nil || len(timers) == 0 {
		return 0, err
	}
	fired := make(map[uuid.UUID][]timer)
	ids := make([]uuid.UUID, 0, len(timers))
	for _, t := range timers {
		if fired[t.id] == nil {
			ids = append(ids, t.id)
		}
		fired[t.id] = append(fired[t.id], t)
	}
	records := make(map[uuid.UUID]*record)
	var now time.Time
	var read pgx.Batch
	queueLoad(&read, ids, records, &now)
	if err := e.cfg.Pool.SendBatch(ctx, &read).Close(); err != nil {
		return 0, fmt.Errorf("reading sagas whose timers are due: %w", err)
	}
	var idle []timer // timers that nothing depends on any more
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(askers)
	for _, id := range ids {
		r, ok := records[id]
		if !ok || r.due().IsZero() {
			idle = append(idle, fired[id]...)
			continue
		}
		g.Go(func() error {
			err := e.fire(gctx, r, now, fired[id])
			if err == nil || isRace(err) || ctx.Err() != nil {
				return nil // after a race the timer is still there, and is due
			}
			e.log.Warn("saga's deadline could not be dealt with, trying again", telemetry.LogOrderID, r.ID, telemetry.LogError, err)
			return e.rearm(gctx, fired[id], timer{now.Add(timerRetry), r.ID})
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if len(idle) > 0 {
		var b pgx.Batch
		queueTimers(&b, deleteTimers, idle)
		if err := postgres.SendAtomic(ctx, e.cfg.Pool, &b); err != nil {
			return 0, fmt.Errorf("deleting timers: %w", err)
		}
	}
	return len(timers), nil
}

// fire asks about the overdue steps of one saga and applies the answers. A saga that changed meanwhile is left to its next
// timer, which is due at once.
func (e *Engine[T]) fire(ctx context.Context, r *record, now time.Time, fired []timer) error {
	w := &work[T]{engine: e, now: now, sagas: make(map[uuid.UUID]*item[T])}
	it, err := w.item(r)
	if err != nil {
		return err
	}
	r.Armed = time.Time{} // all timers of this saga that we know of have fired
	questions := it.definition.Overdue(r.Instance, now)
	for _, q := range questions {
		answer := e.ask(ctx, r.ID, q)
		if err := w.advance(it, Asked{Step: q.Step, Answer: answer}, uuid.Nil, telemetry.Carrier{}); err != nil {
			return err
		}
	}
	if len(questions) == 0 {
		// The deadline has moved since the timer was set: set it anew, and leave the saga alone.
		return e.rearm(ctx, fired, timer{r.due(), r.ID})
	}
	var b pgx.Batch
	chains, err := w.queue(&b)
	if err != nil {
		return err
	}
	queueTimers(&b, deleteTimers, fired)
	if err := postgres.SendAtomic(ctx, e.cfg.Pool, &b); err != nil {
		return fmt.Errorf("applying answers to saga %s: %w", r.ID, err)
	}
	e.cfg.Relay.HandOff(chains)
	return nil
}

// rearm replaces timers. The saga's own idea of when it is armed is a hint and stays: at worst it is armed twice.
func (e *Engine[T]) rearm(ctx context.Context, fired []timer, next timer) error {
	var b pgx.Batch
	queueTimers(&b, deleteTimers, fired)
	queueTimers(&b, insertTimers, []timer{next})
	if err := postgres.SendAtomic(ctx, e.cfg.Pool, &b); err != nil {
		return fmt.Errorf("setting the timer of saga %s anew: %w", next.id, err)
	}
	return nil
}

// ask asks a participant. An error is silence.
func (e *Engine[T]) ask(ctx context.Context, id uuid.UUID, q Question) Answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := e.cfg.Asker.Ask(ctx, q.Participant, id, q.Step, keys.StepKey(id, q.Step))
	if err != nil {
		e.log.Warn("participant did not answer", telemetry.LogOrderID, id, telemetry.LogStep, q.Step, telemetry.LogError, err)
		return Answer{Finding: Silent}
	}
	return answer
}
