package participant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

const (
	// recordBatch bounds the results that are recorded in one transaction.
	recordBatch = 100
	// recordConflicts bounds how often a batch of results is repeated before it is split. A result that stands alone has
	// more tries: each time somebody else has changed the order's row, and they are few.
	recordConflicts      = 3
	recordConflictsAlone = 20
	recordRetry          = 100 * time.Millisecond
	// gatePatience is some times what a batch of another writer takes.
	gatePatience   = 25 * time.Millisecond
	recordRetryMax = 2 * time.Second

	// maxError bounds the text of an error on record, in bytes. Providers answer whole pages.
	maxError = 1000

	// typeOfNothing is the type of a reply without a result. Its payload is empty.
	typeOfNothing = "google.protobuf.Empty"
)

// recordLoop records results as they come, as many at a time as are there, until the channel is closed and empty.
func (r *Runner) recordLoop(work context.Context) {
	batch := make([]finished, 0, recordBatch)
	for first := range r.results {
		leave := r.cfg.Gate.Enter(work, gatePatience)
		r.recordAll(work, r.waiting(append(batch[:0], first)))
		leave()
	}
}

// waiting adds the results that are there to a batch.
func (r *Runner) waiting(batch []finished) []finished {
	for len(batch) < recordBatch {
		select {
		case f, ok := <-r.results:
			if !ok {
				return batch
			}
			batch = append(batch, f)
		default:
			return batch
		}
	}
	return batch
}

// recordAll records a batch, however long the database takes. A result whose lease is lost meanwhile is dropped: its step is
// due again, and the next owner finds out. The same holds when work ends.
func (r *Runner) recordAll(work context.Context, batch []finished) {
	wait, conflicts := recordRetry, 0
	stale := false // what was read before the calls is old
	for {
		err := r.recordOnce(work, &batch, stale)
		switch blame := inbox.Blame(err); {
		case err == nil, errors.Is(err, postgres.ErrCommitted), len(batch) == 0, work.Err() != nil:
			return
		case blame == inbox.Ourselves:
			r.log.Error("results wait: the database does not answer", "in", wait, telemetry.LogError, err)
			r.cfg.Process.Pause(work, wait)
			wait, stale = min(2*wait, recordRetryMax), true
		case blame == inbox.Race && (conflicts < recordConflicts || len(batch) == 1 && conflicts < recordConflictsAlone):
			if conflicts++; conflicts > recordConflicts {
				r.cfg.Process.Pause(work, recordRetry)
			}
			stale = true
		case len(batch) > 1:
			half := len(batch) / 2
			r.recordAll(work, batch[:half])
			r.recordAll(work, batch[half:])
			return
		default:
			f := &batch[0]
			r.log.ErrorContext(f.record.context(work), "result can not be recorded", telemetry.LogOrderID, f.record.OrderID, telemetry.LogStep, f.record.StepName,
				telemetry.LogOutcome, outcomeName(*f), telemetry.LogError, err)
			if _, ok := f.outcome.(Unknown); ok {
				return // its step is due again when its lease ends
			}
			// The next attempt finds out what happened; that there was a failure, and why, is on record.
			f.outcome = Unknown{Err: fmt.Errorf("recording the outcome %q: %w", outcomeName(*f), err), Reference: referenceOf(f.outcome)}
			conflicts = 0
		}
	}
}

// recordOnce records a batch, less the results whose lease turns out to be lost. It reads business rows again if they are
// stale, or if results of one order have different ones.
func (r *Runner) recordOnce(ctx context.Context, batch *[]finished, stale bool) (err error) {
	defer func() {
		// The Projector is the service's. Were one result to end the process, it would do so after every start.
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: projector panicked: %v\n%s", inbox.ErrPermanent, p, debug.Stack())
		}
	}()
	revisions := make(map[uuid.UUID]int64)
	for _, f := range *batch {
		if known, ok := revisions[f.record.OrderID]; ok && known != f.row.Revision {
			stale = true
		}
		revisions[f.record.OrderID] = f.row.Revision
	}
	if stale {
		if *batch, err = r.refresh(ctx, *batch); err != nil || len(*batch) == 0 {
			return err
		}
	}
	return r.record(ctx, *batch)
}

// refresh reads the business rows again, and drops the results whose token has moved on.
func (r *Runner) refresh(ctx context.Context, batch []finished) ([]finished, error) {
	orders := make([]uuid.UUID, 0, len(batch))
	for _, f := range batch {
		orders = append(orders, f.record.OrderID)
	}
	slices.SortFunc(orders, compareIDs)
	orders = slices.Compact(orders)
	rows, tokens, err := r.store.Reload(ctx, orders)
	if err != nil {
		return batch, err
	}
	kept := make([]finished, 0, len(batch))
	for _, f := range batch {
		if token := tokens[f.record.Key()]; token != f.record.Token {
			// The token also moves when a result is recorded; so this is also what follows a commit whose answer was lost.
			r.told.lost.Add(ctx, 1, withStep(f.record.StepName))
			r.log.WarnContext(f.record.context(ctx), "result dropped", telemetry.LogOrderID, f.record.OrderID, telemetry.LogStep, f.record.StepName,
				telemetry.LogOutcome, outcomeName(f), telemetry.LogError, fmt.Errorf("%w: token %d, now %d", ErrLeaseLost, f.record.Token, token))
			continue
		}
		if row := rows[f.record.OrderID]; row != nil {
			f.row = *row
			f.row.ID = f.record.OrderID
		}
		kept = append(kept, f)
	}
	return kept, nil
}

// record writes a batch of results in one transaction.
func (r *Runner) record(ctx context.Context, batch []finished) error {
	changes := make(map[uuid.UUID]*change)
	var unit Findings
	sorted := slices.Clone(batch)
	slices.SortFunc(sorted, func(a, b finished) int { return compareKeys(a.record.Key(), b.record.Key()) })
	for i := range sorted {
		f := &sorted[i]
		replyID, resultType, result, err := r.conclude(f, changes)
		if err != nil {
			return err
		}
		unit.Ends = append(unit.Ends, endOf(f, replyID, resultType, result))
		unit.Follow = append(unit.Follow, r.followUp(f)...)
		if _, ok := f.outcome.(Done); ok {
			for _, action := range f.step.Undoes {
				unit.Undone = append(unit.Undone, Key{f.record.OrderID, action})
			}
		}
	}
	unit.Changes, unit.Chains = collect(changes)
	for _, f := range sorted {
		fault.At(fault.StepRecording, f.record.OrderID, f.record.StepName)
	}
	if err := r.store.Record(ctx, &unit); err != nil {
		return fmt.Errorf("recording results: %w", err)
	}
	for _, f := range sorted {
		fault.At(fault.StepRecorded, f.record.OrderID, f.record.StepName)
	}
	r.cfg.Relay.HandOff(unit.Chains)
	return nil
}

// conclude appends the events and the reply of a result to its order's chain.
func (r *Runner) conclude(f *finished, changes map[uuid.UUID]*change) (replyID uuid.UUID, resultType string, result []byte, err error) {
	rec := f.record
	outcome, reason := outcomeName(*f), ""
	if rec.Kind == KindCheck {
		return uuid.Nil, "", nil, nil // nobody has asked for it
	}
	switch o := f.outcome.(type) {
	case Done:
		resultType, result, err = encode(o.Result)
	case Refused:
		resultType, reason = typeOfNothing, clean(o.Reason)
	case Waiting:
		resultType, result, err = encode(o.Result)
		if rec.State == StateWaiting && rec.ResultType == resultType && bytes.Equal(rec.Result, result) {
			return uuid.Nil, resultType, result, nil // it has been said
		}
	default:
		return uuid.Nil, rec.ResultType, rec.Result, nil // what it waits for, if it does
	}
	if err != nil {
		return uuid.Nil, "", nil, fmt.Errorf("%w: encoding the result of %s: %w", inbox.ErrPermanent, rec.StepName, err)
	}
	ch, ok := changes[rec.OrderID]
	if !ok {
		ch = &change{Change: Change{Row: f.row}}
		changes[rec.OrderID] = ch
	}
	if !ch.began {
		ch.chain, ch.began = ch.Row.Begin(rec.LastSeen), true
	}
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
	reply := r.reply(rec.OrderID, rec.StepName, rec.IdempotencyKey, outcome, reason)
	reply.Type, reply.Payload, reply.LastSeen = resultType, result, rec.CommandID
	reply.TraceParent, reply.TraceState = f.trace.TraceParent, f.trace.TraceState
	reply = ch.Row.Append(&ch.chain, reply)
	return reply.ID, resultType, result, nil
}

// encode gives the type and the bytes of a result, which may be nil.
func encode(m proto.Message) (resultType string, result []byte, err error) {
	if m == nil {
		return typeOfNothing, nil, nil
	}
	result, err = proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return string(m.ProtoReflect().Descriptor().FullName()), result, err
}

// endOf gives what is recorded about an attempt.
func endOf(f *finished, replyID uuid.UUID, resultType string, result []byte) End {
	e := End{
		Key: f.record.Key(), Token: f.record.Token, State: f.record.State, Reference: clean(referenceOf(f.outcome)),
		ResultType: resultType, Result: result, ReplyID: replyID, Deferred: f.blocked, History: f.history,
	}
	switch o := f.outcome.(type) {
	case Done:
		e.State = StateDone
	case Refused:
		e.State, e.Reason = StateRefused, clean(o.Reason)
	case Waiting:
		e.State = StateWaiting
		wait := max(o.Ask, recordRetry)
		e.Again = &wait
	case Unknown:
		wait := o.RetryAfter
		if wait <= 0 {
			wait = retryDelay(f.record)
		}
		e.Again = &wait
		if o.Err != nil {
			failure := clean(o.Err.Error())
			e.LastError = strings.ToValidUTF8(failure[:min(len(failure), maxError)], "")
		}
	}
	return e
}

// clean makes a text from outside one that the database can hold.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
