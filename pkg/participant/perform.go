package participant

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/telemetry"
)

// perform makes one attempt at a claimed step.
func (r *Runner) perform(ctx context.Context, c *claim) (f finished) {
	rec := c.record
	f = finished{claim: c, trace: rec.Trace}
	ctx = rec.context(ctx)
	began := r.cfg.Process.Now()
	var span trace.Span = noop.Span{}
	if r.cfg.Tracer != nil {
		ctx, span = r.cfg.Tracer.Start(ctx, "perform "+rec.StepName, trace.WithTimestamp(began))
		span.SetAttributes(telemetry.Attempt.Int(rec.Attempts))
		if len(c.step.Undoes) > 0 {
			span.SetAttributes(telemetry.Undo.Bool(true))
		}
		f.trace = telemetry.Inject(ctx)
	}
	var book *ledger // nil until the attempt has begun
	defer func() {
		ended := r.cfg.Process.Now()
		if book != nil {
			f.history = r.historyOf(&f, book, ended)
			if said := book.settled(); said != "" {
				span.SetAttributes(telemetry.Settled.String(said))
			}
		}
		r.told.attempted(ctx, &f, ended.Sub(began))
		f.tell(span)
		span.End(trace.WithTimestamp(ended))
	}()
	defer func() {
		if p := recover(); p != nil {
			r.log.ErrorContext(ctx, "step panicked", telemetry.LogOrderID, rec.OrderID, telemetry.LogStep, rec.StepName, "panic", p, "stack", string(debug.Stack()))
			f.outcome = Unknown{Err: fmt.Errorf("step panicked: %v", p)}
		}
	}()
	if len(c.step.Undoes) > 0 {
		blocked, err := r.store.InFlight(ctx, rec.OrderID, c.step.Undoes, r.cfg.Settle)
		if blocked || err != nil {
			f.blocked, f.outcome = true, Unknown{Err: errors.Join(errInFlight, err), RetryAfter: r.blockedRetry()}
			return f
		}
	}
	if err := context.Cause(ctx); err != nil {
		// This process stood still since the claim, or is stopping. What has not begun is no attempt.
		f.blocked, f.outcome = true, Unknown{Err: err}
		return f
	}
	call := &Call{
		OrderID: rec.OrderID, StepName: rec.StepName, StepKey: stepKey(rec.OrderID, rec.StepName), IdempotencyKey: rec.IdempotencyKey,
		Payload: rec.Payload, Attempt: rec.Attempts, Now: c.now, Reference: rec.Reference, FirstAttemptAt: c.now,
		siblings: func(ctx context.Context, step string) (Record, bool, error) {
			// What is done stays as it is, unless it is undone; and an undo waits for this call, whenever it comes.
			if known := c.around[Key{rec.OrderID, step}]; known != nil && known.State == StateDone && !known.Undone() {
				return *known, true, nil
			}
			return r.store.Find(ctx, rec.OrderID, step)
		},
	}
	if rec.FirstAttemptAt != nil {
		call.FirstAttemptAt = *rec.FirstAttemptAt
	}
	fault.At(fault.StepClaimed, rec.OrderID, rec.StepName)
	f.follow = r.inDoubt(ctx, rec.OrderID, c.step.Undoes)
	book = &ledger{began: began}
	f.outcome = outcomeOf(c.step.Perform(context.WithValue(ctx, ledgerKey{}, book), call))
	fault.At(fault.StepCalled, rec.OrderID, rec.StepName)
	return f
}

// tell puts on the span of an attempt what came of it.
func (f *finished) tell(span trace.Span) {
	span.SetAttributes(telemetry.Outcome.String(outcomeName(*f)))
	switch o := f.outcome.(type) {
	case Refused:
		span.SetAttributes(telemetry.Reason.String(brief(o.Reason)))
	case Unknown:
		if !f.blocked {
			telemetry.Fail(span, o.failure())
		}
	}
}

// context gives a context in the trace that the step belongs to, under which every span and every line of the log says what it is about.
func (r *Record) context(ctx context.Context) context.Context {
	return telemetry.WithAttributes(telemetry.Extract(ctx, r.Trace), telemetry.OrderID.String(r.OrderID.String()),
		telemetry.IdempotencyKey.String(r.IdempotencyKey), telemetry.Step.String(r.StepName),
		telemetry.StepKey.String(stepKey(r.OrderID, r.StepName).String()))
}

func (r *Runner) blockedRetry() time.Duration {
	return min(max(r.cfg.Settle/4, blockedRetryMin), blockedRetryMax)
}

func outcomeName(f finished) string {
	switch {
	case f.blocked:
		return "blocked"
	case f.outcome == nil:
		return "unknown"
	}
	switch f.outcome.(type) {
	case Done:
		return messaging.OutcomeDone
	case Refused:
		return messaging.OutcomeRefused
	case Waiting:
		return messaging.OutcomeWaiting
	default:
		return "unknown"
	}
}
