package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

const (
	// recordBatch bounds the results that are recorded in one transaction.
	recordBatch = 100
	// recordConflicts bounds how often a batch of results is repeated before it is split.
	recordConflicts = 3
	recordRetry     = 100 * time.Millisecond
	recordRetryMax  = 2 * time.Second
)

// settleActions closes the actions that an undo has dealt with. The token grows, so that an owner who wakes after all
// can not record over it.
const settleActions = `
UPDATE step
   SET state = 'refused', reason = '` + ReasonUndone + `', due_at = NULL, lease_owner = '', token = token + 1, updated_at = now()
 WHERE order_id = ANY ($1::uuid[]) AND step_name = ANY ($2::text[]) AND undone_at IS NOT NULL AND state IN ('pending', 'waiting')`

// recordLoop records results as they come, as many at a time as are there, until the channel is closed and empty.
func (r *Runner) recordLoop(work context.Context) {
	batch := make([]finished, 0, recordBatch)
	for first := range r.results {
		batch = append(batch[:0], first)
		for len(batch) < recordBatch {
			select {
			case f, ok := <-r.results:
				if ok {
					batch = append(batch, f)
					continue
				}
			default:
			}
			break
		}
		r.recordAll(work, batch)
	}
}

// recordAll records a batch, however long the database takes. A result whose lease is lost meanwhile is dropped: its step is
// due again, and the next owner finds out. The same holds when work ends.
func (r *Runner) recordAll(work context.Context, batch []finished) {
	wait, conflicts := recordRetry, 0
	fresh := false // business rows were read again
	for {
		err := r.record(work, batch, fresh)
		switch blame := inbox.Blame(err); {
		case err == nil:
			return
		case work.Err() != nil:
			return
		case blame == inbox.Ourselves:
			r.log.Error("results wait: the database does not answer", "in", wait, telemetry.LogError, err)
			pause(work, wait)
			wait, fresh = min(2*wait, recordRetryMax), true
		case blame == inbox.Race && conflicts < recordConflicts:
			conflicts++
			fresh = true
		case len(batch) > 1:
			half := len(batch) / 2
			r.recordAll(work, batch[:half])
			r.recordAll(work, batch[half:])
			return
		default:
			f := batch[0]
			r.log.Warn("result not recorded, the step will be looked at again", telemetry.LogOrderID, f.record.OrderID,
				telemetry.LogStep, f.record.StepName, telemetry.LogOutcome, outcomeName(f), telemetry.LogError, errors.Join(ErrLeaseLost, err))
			return
		}
	}
}

// record writes a batch of results in one transaction.
func (r *Runner) record(ctx context.Context, batch []finished, fresh bool) error {
	if err := r.refresh(ctx, batch, fresh); err != nil {
		return err
	}
	changes := make(map[uuid.UUID]*change)
	var steps recordColumnsOf
	var undone, undoneActions = []uuid.UUID(nil), []string(nil)
	sorted := slices.Clone(batch)
	slices.SortFunc(sorted, func(a, b finished) int { return compareKeys(a.claim.record.key(), b.claim.record.key()) })
	for i := range sorted {
		f := &sorted[i]
		replyID, resultType, result, err := r.conclude(f, changes)
		if err != nil {
			return err
		}
		steps.add(f, replyID, resultType, result)
		if _, ok := f.outcome.(Done); ok && len(f.step.Undoes) > 0 {
			undone = append(undone, f.record.OrderID)
			undoneActions = append(undoneActions, f.step.Undoes...)
		}
	}
	var b pgx.Batch
	list, chains := collect(changes)
	if len(list) > 0 {
		if err := r.cfg.Projector.QueueStore(&b, list); err != nil {
			return fmt.Errorf("storing business rows: %w", err)
		}
	}
	steps.queue(&b)
	if len(undone) > 0 {
		slices.Sort(undoneActions)
		b.Queue(settleActions, undone, slices.Compact(undoneActions))
	}
	if err := outbox.Queue(&b, chains); err != nil {
		return err
	}
	if err := postgres.SendAtomic(ctx, r.cfg.Pool, &b); err != nil {
		return fmt.Errorf("recording results: %w", err)
	}
	r.cfg.Relay.HandOff(chains)
	return nil
}

// refresh reads the business rows again, if the ones at hand turned out to be old, or if results of one order have
// different ones.
func (r *Runner) refresh(ctx context.Context, batch []finished, fresh bool) error {
	revisions := make(map[uuid.UUID]int64)
	for _, f := range batch {
		if known, ok := revisions[f.record.OrderID]; ok && known != f.row.Revision {
			fresh = true
		}
		revisions[f.record.OrderID] = f.row.Revision
	}
	if !fresh {
		return nil
	}
	orders := make([]uuid.UUID, 0, len(batch))
	for _, f := range batch {
		orders = append(orders, f.record.OrderID)
	}
	rows := make(map[uuid.UUID]*Row)
	var b pgx.Batch
	r.cfg.Projector.QueueLoad(&b, orders, rows)
	if err := r.cfg.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("reading business rows: %w", err)
	}
	for _, f := range batch {
		if row := rows[f.record.OrderID]; row != nil {
			f.row = *row
		}
	}
	return nil
}

// conclude appends the events and the reply of a result to its order's chain.
func (r *Runner) conclude(f *finished, changes map[uuid.UUID]*change) (replyID uuid.UUID, resultType string, result []byte, err error) {
	rec := f.record
	outcome, reason := outcomeName(*f), ""
	switch o := f.outcome.(type) {
	case Done:
		resultType = string(o.Result.ProtoReflect().Descriptor().FullName())
		if result, err = (proto.MarshalOptions{Deterministic: true}).Marshal(o.Result); err != nil {
			return uuid.Nil, "", nil, fmt.Errorf("%w: encoding the result of %s: %w", inbox.ErrPermanent, rec.StepName, err)
		}
	case Refused:
		reason = o.Reason
	case Waiting:
		if rec.State == StateWaiting {
			return uuid.Nil, "", nil, nil // it has been said
		}
	default:
		return uuid.Nil, "", nil, nil
	}
	ch, ok := changes[rec.OrderID]
	if !ok {
		ch = &change{Change: Change{Row: f.row}}
		changes[rec.OrderID] = ch
	}
	if !ch.began {
		ch.chain, ch.began = ch.Row.Begin(rec.LastSeen), true
	}
	if _, waiting := f.outcome.(Waiting); !waiting {
		res := Result{OrderID: rec.OrderID, StepName: rec.StepName, Payload: rec.Payload, Outcome: f.outcome}
		ch.Results = append(ch.Results, res)
		events, err := r.cfg.Projector.Events(res)
		if err != nil {
			return uuid.Nil, "", nil, fmt.Errorf("%w: making the events of %s: %w", inbox.ErrPermanent, rec.StepName, err)
		}
		for _, m := range events {
			m.Kind, m.IdempotencyKey = messaging.Event, rec.IdempotencyKey
			m.TraceParent, m.TraceState = f.trace.TraceParent, f.trace.TraceState
			ch.Row.Append(&ch.chain, m)
		}
	}
	reply := r.reply(rec.OrderID, rec.StepName, rec.IdempotencyKey, outcome, reason)
	reply.Type, reply.Payload, reply.LastSeen = resultType, result, rec.CommandID
	reply.TraceParent, reply.TraceState = f.trace.TraceParent, f.trace.TraceState
	reply = ch.Row.Append(&ch.chain, reply)
	return reply.ID, resultType, result, nil
}

// recordColumnsOf collects the columns of recordSteps.
type recordColumnsOf struct {
	orders                                    []uuid.UUID
	names, states, reasons, references, types []string
	tokens                                    []int64
	results                                   [][]byte
	replies                                   []*uuid.UUID
	errors                                    []string
	again                                     []*time.Duration
	deferred                                  []bool
}

func (c *recordColumnsOf) add(f *finished, replyID uuid.UUID, resultType string, result []byte) {
	state, reason, reference, failure := f.record.State, "", "", ""
	var again *time.Duration
	switch o := f.outcome.(type) {
	case Done:
		state, reference = StateDone, o.Reference
	case Refused:
		state, reason, reference = StateRefused, o.Reason, o.Reference
	case Waiting:
		state, reference = StateWaiting, o.Reference
		wait := max(o.Ask, recordRetry)
		again = &wait
	case Unknown:
		reference = o.Reference
		wait := o.RetryAfter
		if wait <= 0 {
			wait = retryDelay(f.record.Attempts)
		}
		again = &wait
		if o.Err != nil {
			failure = o.Err.Error()
		}
	}
	c.orders, c.names, c.tokens = append(c.orders, f.record.OrderID), append(c.names, f.record.StepName), append(c.tokens, f.record.Token)
	c.states, c.reasons, c.references = append(c.states, string(state)), append(c.reasons, reason), append(c.references, reference)
	c.types, c.results, c.replies = append(c.types, resultType), append(c.results, nonNil(result)), append(c.replies, orNil(replyID))
	c.errors, c.again, c.deferred = append(c.errors, failure), append(c.again, again), append(c.deferred, f.blocked)
}

func (c *recordColumnsOf) queue(b *pgx.Batch) {
	b.Queue(recordSteps, c.orders, c.names, c.tokens, c.states, c.reasons, c.references, c.types, c.results, c.replies,
		c.errors, c.again, c.deferred, len(c.orders))
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
