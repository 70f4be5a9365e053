package participant

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/telemetry"
)

// learnChecks finds the check of each action that has one.
func (r *Runner) learnChecks() error {
	r.checks = make(map[string]string)
	for _, name := range r.names {
		s := r.steps[name]
		if len(s.Checks) > 0 && len(s.Undoes) > 0 {
			return fmt.Errorf("making a participant: %s is an undo and a check", name)
		}
		for _, action := range s.Checks {
			if checked := r.steps[action]; checked == nil || checked.kind() != KindAction || r.checks[action] != "" {
				return fmt.Errorf("making a participant: %s checks %q, which is no action here, or has another check", name, action)
			}
			r.checks[action] = name
		}
	}
	return nil
}

// inDoubt gives those of the actions of an undo that have a check and an attempt without an answer. An action that cannot be read is
// in doubt.
func (r *Runner) inDoubt(ctx context.Context, order uuid.UUID, actions []string) []string {
	var doubtful []string
	for _, action := range actions {
		if r.checks[action] == "" {
			continue
		}
		rec, ok, err := r.store.Find(ctx, order, action)
		if err != nil || ok && (rec.Attempts > 1 || rec.Attempts == 1 && !rec.State.Finished()) {
			doubtful = append(doubtful, action)
		}
	}
	return doubtful
}

// followUp gives the checks that the end of an attempt begins: of an action that is over after more than one attempt, and of an undo
// of one in doubt.
func (r *Runner) followUp(f *finished) []Follow {
	rec := f.record
	actions := f.follow
	switch f.outcome.(type) {
	case Done:
	case Refused:
	default:
		return nil
	}
	if rec.Kind == KindAction && rec.Attempts > 1 {
		actions = []string{rec.StepName}
	}
	var checks []Follow
	for _, action := range actions {
		name := r.checks[action]
		known := slices.ContainsFunc(checks, func(c Follow) bool { return c.StepName == name })
		if name == "" || known {
			continue
		}
		checks = append(checks, Follow{
			Key: Key{rec.OrderID, name}, After: r.cfg.Settle, IdempotencyKey: rec.IdempotencyKey, Trace: rec.Trace,
		})
	}
	return checks
}

// followSteps begins checks, and wakes those that are on record.
const followSteps = `
INSERT INTO step (order_id, step_name, kind, idempotency_key, traceparent, tracestate, state, due_at)
SELECT order_id, step_name, 'check', idempotency_key, traceparent, tracestate, 'pending', now() + after
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::interval[])
    AS f (order_id, step_name, idempotency_key, traceparent, tracestate, after)
 ORDER BY order_id, step_name
    ON CONFLICT ON CONSTRAINT step_pkey DO UPDATE
   SET state = CASE WHEN step.lease_owner = '' THEN 'pending' ELSE step.state END,
       due_at = CASE WHEN step.lease_owner = '' THEN least(step.due_at, excluded.due_at) ELSE step.due_at END,
       nudged_token = CASE WHEN step.lease_owner <> '' THEN step.token END`

func queueFollow(b *pgx.Batch, follow []Follow) {
	n := len(follow)
	if n == 0 {
		return
	}
	sorted := slices.Clone(follow)
	slices.SortFunc(sorted, func(a, b Follow) int { return compareKeys(a.Key, b.Key) })
	// Of two ends of one order in a batch, either begins the check.
	sorted = slices.CompactFunc(sorted, func(a, b Follow) bool { return a.Key == b.Key })
	n = len(sorted)
	orders, names, keys := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	parents, states, after := make([]string, n), make([]string, n), make([]time.Duration, n)
	for i, f := range sorted {
		orders[i], names[i], keys[i], after[i] = f.OrderID, f.StepName, f.IdempotencyKey, f.After
		parents[i], states[i] = f.Trace.TraceParent, f.Trace.TraceState
	}
	b.Queue(followSteps, orders, names, keys, parents, states, after)
}

// nudgeSteps locks rows in the one order. A step that is being called is not disturbed, but looks again when its call has ended.
const nudgeSteps = `
WITH due AS (
    SELECT order_id, step_name,
           step_name = ANY ($2::text[]) AND due_at IS NOT NULL AND (kind <> 'action' OR undone_at IS NULL) AS nudged
      FROM step
     WHERE order_id = $1
       AND (step_name = ANY ($2::text[]) AND due_at IS NOT NULL AND (kind <> 'action' OR undone_at IS NULL) OR step_name = $3)
     ORDER BY order_id, step_name
       FOR UPDATE
)
UPDATE step s
   SET due_at = CASE WHEN nudged AND s.lease_owner = '' THEN least(s.due_at, now()) ELSE s.due_at END,
       nudged_token = CASE WHEN NOT nudged THEN s.nudged_token WHEN s.lease_owner <> '' THEN s.token END,
       history = CASE WHEN s.step_name = $3
                      THEN step_history(s.history, json_build_object('w', $4::text, 'id', $5::text, 'at', now())::text || E'\n')
                      ELSE s.history END
  FROM due
 WHERE s.order_id = due.order_id AND s.step_name = due.step_name
RETURNING s.step_name, s.traceparent, s.tracestate, s.idempotency_key`

// QueueNudge adds to a batch the hint that something has changed outside for steps of an order: those that have no outcome become
// due now, or when the call that is under way has ended. Steps that are finished or not there are left alone. It may be repeated.
// [Runner.Wake] after the commit saves this instance the wait for its next look.
func QueueNudge(b *pgx.Batch, order uuid.UUID, steps ...string) {
	b.Queue(nudgeSteps, order, steps, "", "", "")
}

// Noticed is what a notice was found to be about; zero if there is no such step.
type Noticed struct {
	IdempotencyKey string
	Trace          telemetry.Carrier
}

// QueueNotice is [QueueNudge] on a notice of the outside with the given id and type, which is put on record in the history of the
// action on, if there is such a step. What it gives is filled in when the batch has run.
func QueueNotice(b *pgx.Batch, order uuid.UUID, on, id, noticeType string, steps ...string) *Noticed {
	n := new(Noticed)
	b.Queue(nudgeSteps, order, steps, on, brief(noticeType), brief(id)).Query(func(rows pgx.Rows) error {
		var step string
		var of Noticed
		_, err := pgx.ForEachRow(rows, []any{&step, &of.Trace.TraceParent, &of.Trace.TraceState, &of.IdempotencyKey}, func() error {
			if step == on {
				*n = of
			}
			return nil
		})
		return err
	})
	return n
}

const retryStep = `
UPDATE step
   SET state = CASE state WHEN 'refused' THEN 'pending' ELSE state END, reason = '',
       due_at = CASE WHEN lease_owner = '' THEN now() ELSE due_at END,
       nudged_token = CASE WHEN lease_owner <> '' THEN token END, updated_at = now()
 WHERE order_id = $1 AND step_name = $2
   AND (due_at IS NOT NULL AND (kind <> 'action' OR undone_at IS NULL) OR kind = 'undo' AND state = 'refused')
RETURNING ` + recordColumns

// Retry lets a step that has no outcome be attempted now, and an undo that was refused be attempted once more; its outcome is then
// told by a new reply. Anything else is left alone, since a person cannot take back what was answered. It gives the step as it is
// afterwards; false if there is nothing to attempt. It may be repeated.
func Retry(ctx context.Context, db Querier, order uuid.UUID, step string) (Record, bool, error) {
	rows, err := db.Query(ctx, retryStep, order, step)
	if err != nil {
		return Record{}, false, fmt.Errorf("retrying step %s of %s: %w", step, order, err)
	}
	found, err := pgx.CollectRows(rows, scanRecord)
	if err != nil {
		return Record{}, false, fmt.Errorf("retrying step %s of %s: %w", step, order, err)
	}
	if len(found) == 0 {
		return Record{}, false, nil
	}
	return found[0], true, nil
}
