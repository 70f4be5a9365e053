package saga

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

// ApplyReplies deals with a batch of replies in one transaction. It is an inbox.Apply.
func (e *Engine[T]) ApplyReplies(ctx context.Context, batch []messaging.Delivery) (err error) {
	ids, sagaIDs := make([]uuid.UUID, len(batch)), make([]uuid.UUID, 0, len(batch))
	for i, d := range batch {
		ids[i] = d.ID
		sagaIDs = append(sagaIDs, d.AggregateID)
	}
	l, err := e.store.Load(ctx, distinct(sagaIDs), ids)
	if err != nil {
		return fmt.Errorf("reading sagas for replies: %w", err)
	}
	w := e.work(l.Now)

	var marks []uuid.UUID
	committing := ctx
	spans := make([]trace.Span, 0, len(batch))
	defer func() {
		for _, span := range spans {
			telemetry.Fail(span, err) // of the message that is to blame, or of all
			span.End()
		}
	}()
	for i := range batch {
		d := &batch[i]
		if l.Seen[d.ID] {
			d.Repeat(ctx, e.tracer)
			continue
		}
		processing, span := messaging.StartProcess(ctx, e.tracer, d)
		if err := e.applyReply(processing, span, w, l.Sagas, d); err != nil {
			telemetry.Fail(span, err)
			span.End()
			return err
		}
		spans = append(spans, span)
		if len(batch) == 1 {
			committing = processing // a transaction of one message is in its trace; one of many is in none
		}
		l.Seen[d.ID] = true // a copy in the same batch
		marks = append(marks, d.ID)
	}
	if len(marks) == 0 {
		return nil
	}
	u := w.unit()
	u.Marks = marks
	for i := range batch {
		fault.At(fault.SagaCommitting, batch[i].AggregateID, batch[i].StepName)
	}
	if err := e.store.Commit(committing, u); err != nil {
		return fmt.Errorf("advancing sagas: %w", err)
	}
	for i := range batch {
		fault.At(fault.SagaCommitted, batch[i].AggregateID, batch[i].StepName)
	}
	e.cfg.Relay.HandOff(u.Chains)
	w.committed(ctx)
	return nil
}

func (e *Engine[T]) applyReply(ctx context.Context, span trace.Span, w *work[T], records map[uuid.UUID]*Record, d *messaging.Delivery) error {
	r, ok := records[d.AggregateID]
	if !ok {
		return fmt.Errorf("%w: reply %s to %s: %w: %s", inbox.ErrPermanent, d.ID, d.StepName, ErrNotFound, d.AggregateID)
	}
	if want := keys.StepKey(r.ID, d.StepName); d.StepKey != want {
		return fmt.Errorf("%w: reply %s to %s of saga %s has the step key %s instead of %s", inbox.ErrPermanent, d.ID, d.StepName, r.ID, d.StepKey, want)
	}
	outcome := Outcome(d.Outcome)
	if outcome != OutcomeDone && outcome != OutcomeRefused && outcome != OutcomeWaiting {
		return fmt.Errorf("%w: reply %s to %s has the outcome %q", inbox.ErrPermanent, d.ID, d.StepName, d.Outcome)
	}
	it, err := w.item(r)
	if errors.Is(err, ErrUnknownDefinition) {
		return fmt.Errorf("%w: reply %s to %s: %w", inbox.ErrElsewhere, d.ID, d.StepName, err)
	}
	if err != nil {
		return err
	}
	if _, _, ok := it.definition.find(d.StepName); !ok {
		return fmt.Errorf("%w: reply %s to %s: saga %s has no such step", inbox.ErrPermanent, d.ID, d.StepName, r.ID)
	}
	input := Replied{Step: d.StepName, Outcome: outcome, Reason: d.Reason, MessageID: d.ID}
	if outcome == OutcomeWaiting {
		input.Detail = d.Payload
	}
	defer mark(span, r)
	return w.advance(it, input, d.LastSeen, carrierOf(ctx, span, d))
}

// carrierOf gives the trace context for what a delivery leads to.
func carrierOf(ctx context.Context, span trace.Span, d *messaging.Delivery) telemetry.Carrier {
	if !span.IsRecording() {
		return d.Carrier()
	}
	return telemetry.Inject(ctx)
}

// carrier gives the trace context for what is done under a context of [Engine.within]; nothing, which stands for the saga's own, without a tracer.
func (e *Engine[T]) carrier(ctx context.Context) telemetry.Carrier {
	if e.tracer == nil {
		return telemetry.Carrier{}
	}
	return telemetry.Inject(ctx)
}

func distinct(ids []uuid.UUID) []uuid.UUID {
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

func sortItems[T proto.Message](items []*item[T]) {
	slices.SortFunc(items, func(a, b *item[T]) int { return byID(a.record, b.record) })
}

const (
	timerLease    = 3 * time.Second
	timerInterval = 250 * time.Millisecond
	timerBatch    = 200
	// askers bounds how many participants are asked at one time.
	askers = 16
)

// RunTimers looks at sagas whose deadline has passed, until ctx ends. Of the engines that know the same plans one does at a time; the others
// stand by. What has come due together, as after an outage, is looked at no faster than Config.DueRate says. Sagas whose plan is
// not known here are left alone, and it is said how many they are, at the beginning and every minute.
func (e *Engine[T]) RunTimers(ctx context.Context) error {
	var reporting sync.WaitGroup
	defer reporting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reporting.Go(func() { e.reportUnknown(ctx) })

	lease := postgres.NewLease(e.cfg.Pool, e.leaseName(), e.cfg.Owner, timerLease)
	lease.Logger = e.log
	limit := e.newThrottle()
	err := lease.Run(ctx, func(ctx context.Context, _ int64) error {
		for ctx.Err() == nil {
			n, err := e.fireTimers(ctx, limit)
			if err != nil && ctx.Err() == nil {
				e.log.Warn("timers failed, trying again", telemetry.LogError, err)
			}
			if n < timerBatch || err != nil {
				pause(ctx, timerInterval)
			}
		}
		return ctx.Err()
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// leaseName is the same for engines that know the same plans. A release that knows others must not keep the timers of those waiting. What
// two of them fire at once is settled by the sagas' revisions.
func (e *Engine[T]) leaseName() string {
	h := sha256.New()
	for _, p := range e.plans {
		fmt.Fprintf(h, "%q %d %x\n", p.Name, p.Version, p.Hash)
	}
	return "saga_timer/" + hex.EncodeToString(h.Sum(nil)[:8])
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
