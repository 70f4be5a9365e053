package saga

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/telemetry"
)

// instruments tell what becomes of sagas. Each transition is told once, by the instance that committed it; one whose commit was not answered is
// not told.
type instruments struct {
	started      metric.Int64Counter
	ended        metric.Int64Counter
	undone       metric.Int64Counter
	duration     metric.Float64Histogram
	steps        metric.Int64Counter
	stepDuration metric.Float64Histogram
}

func newInstruments(m metric.Meter) (*instruments, error) {
	if m == nil {
		m = noop.Meter{}
	}
	var (
		i    instruments
		errs [6]error
	)
	i.started, errs[0] = m.Int64Counter("throughline.saga.started", metric.WithUnit("{saga}"),
		metric.WithDescription("Sagas that began."))
	i.ended, errs[1] = m.Int64Counter("throughline.saga.ended", metric.WithUnit("{saga}"),
		metric.WithDescription("Sagas that came to an end, by outcome: completed or compensated."))
	i.undone, errs[2] = m.Int64Counter("throughline.saga.turned_back", metric.WithUnit("{saga}"),
		metric.WithDescription("Sagas whose steps began to be undone."))
	i.duration, errs[3] = m.Float64Histogram("throughline.saga.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from a saga's beginning to its end, by outcome."))
	i.steps, errs[4] = m.Int64Counter("throughline.saga.step.outcomes", metric.WithUnit("{step}"),
		metric.WithDescription("Steps and undos that came to an outcome: done, refused, undone, undo_refused or given_up."))
	i.stepDuration, errs[5] = m.Float64Histogram("throughline.saga.step.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from a step's command, or its undo's, to the outcome, by step and outcome."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("making the sagas' instruments: %w", err)
	}
	return &i, nil
}

// begin makes the series of a definition, so that rates have a beginning.
func (i *instruments) begin(ctx context.Context, name string, steps, undos []string) {
	i.started.Add(ctx, 0, withSaga(name))
	i.undone.Add(ctx, 0, withSaga(name))
	for _, outcome := range []Status{Completed, Compensated} {
		i.ended.Add(ctx, 0, withOutcome(name, string(outcome)))
	}
	for _, s := range steps {
		i.steps.Add(ctx, 0, withStep(name, s, Done))
		i.steps.Add(ctx, 0, withStep(name, s, Refused))
	}
	for _, s := range undos {
		i.steps.Add(ctx, 0, withStep(name, s, Undone))
		i.steps.Add(ctx, 0, withStep(name, s, UndoRefused))
	}
}

func withSaga(name string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(telemetry.Saga.String(name)))
}

func withOutcome(name, outcome string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(telemetry.Saga.String(name), telemetry.Outcome.String(outcome)))
}

func withStep(name, step string, outcome Phase) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(telemetry.Saga.String(name), telemetry.Step.String(step), telemetry.Outcome.String(string(outcome))))
}

// committed tells what a transaction that has committed did: to the log, to the instruments, and to the owner.
func (w *work[T]) committed(ctx context.Context) {
	for _, it := range w.sagas {
		if !it.changed {
			continue
		}
		ctx := telemetry.WithAttributes(telemetry.Extract(ctx, it.trace), it.record.identity()...)
		within, end := w.engine.show(ctx, it.record, it.transitions, it.definition.Undoes, w.began)
		for _, t := range it.transitions {
			if t.Step == "" {
				w.tellSaga(ctx, it, t)
			} else {
				w.tellStep(ctx, it, t)
			}
		}
		if observe := w.engine.cfg.Observe; observe != nil {
			observe(within, Change[T]{Before: it.before, After: it.record.Instance, Data: it.data, At: w.now})
		}
		end()
	}
}

// show makes the spans of transitions that have been committed, in the trace of ctx: each from when it was begun to be decided about until now. The
// context that it gives has the span of the saga as a whole, if that has changed, which is open until end is called.
func (e *Engine[T]) show(ctx context.Context, r *Record, transitions []Transition, undoes func(string) string, began time.Time) (
	within context.Context, end func(),
) {
	within, end = ctx, func() {}
	if e.tracer == nil {
		return within, end
	}
	ended := trace.WithTimestamp(time.Now())
	for i, t := range transitions {
		// A microsecond apart, so that those of one transaction are shown in their order.
		at := trace.WithTimestamp(began.Add(time.Duration(i) * time.Microsecond))
		of, span := e.tracer.Start(ctx, t.Title(undoes(t.Step)), at)
		t.describe(span, r)
		if t.Step != "" {
			span.End(ended)
			continue
		}
		end() // the one before
		within, end = of, func() { span.End(ended) }
	}
	return within, end
}

// describe puts on the span of a transition what it was.
func (t Transition) describe(span trace.Span, r *Record) {
	if !span.IsRecording() {
		return
	}
	attrs := []attribute.KeyValue{telemetry.From.String(t.From), telemetry.Outcome.String(t.To), telemetry.Cause.String(t.Cause)}
	if t.Undoing() {
		attrs = append(attrs, telemetry.Undo.Bool(true))
	}
	if t.Step != "" {
		attrs = append(attrs, telemetry.Step.String(t.Step), telemetry.StepKey.String(keys.StepKey(r.ID, t.Step).String()))
	} else {
		attrs = append(attrs, telemetry.SagaState.String(t.To))
		if r.Reason != "" {
			attrs = append(attrs, telemetry.Reason.String(r.Reason))
		}
		if r.Attention != "" {
			attrs = append(attrs, telemetry.Attention.String(r.Attention))
		}
	}
	span.SetAttributes(attrs...)
}

// tellSaga tells of a transition of a saga as a whole.
func (w *work[T]) tellSaga(ctx context.Context, it *item[T], t Transition) {
	r, told := it.record, w.engine.told
	switch Status(t.To) {
	case Completed, Compensated:
		told.ended.Add(ctx, 1, withOutcome(r.Definition, t.To))
		told.duration.Record(ctx, max(w.now.Sub(r.CreatedAt), 0).Seconds(), withOutcome(r.Definition, t.To))
	case Compensating:
		told.undone.Add(ctx, 1, withSaga(r.Definition))
	case Running:
	}
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String(telemetry.LogSaga, r.Definition), slog.String("from", t.From), slog.String(telemetry.LogState, t.To), slog.String("cause", t.Cause),
	}
	if r.Reason != "" {
		attrs = append(attrs, slog.String(telemetry.LogReason, r.Reason))
	}
	if t.To == NeedsAttention {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("why", r.Attention))
	}
	w.engine.log.LogAttrs(ctx, level, "saga changed", attrs...)
}

// tellStep tells of a transition of a step. Those that only send a command are per message, and so is the usual outcome.
func (w *work[T]) tellStep(ctx context.Context, it *item[T], t Transition) {
	level := slog.LevelDebug
	switch outcome := Phase(t.To); outcome {
	case Refused, Undone, UndoRefused, GivenUp:
		level = slog.LevelInfo
		fallthrough
	case Done:
		by := withStep(it.record.Definition, t.Step, outcome)
		w.engine.told.steps.Add(ctx, 1, by)
		if since := it.since(t.Step); !since.IsZero() {
			w.engine.told.stepDuration.Record(ctx, max(w.now.Sub(since), 0).Seconds(), by)
		}
	case Idle, Sent, Waiting, Undoing:
	}
	w.engine.log.LogAttrs(ctx, level, "step changed", slog.String(telemetry.LogSaga, it.record.Definition), slog.String(telemetry.LogStep, t.Step),
		slog.String("from", t.From), slog.String(telemetry.LogState, t.To), slog.String("cause", t.Cause), slog.Int(telemetry.LogAttempt, t.Attempt))
}

// since is when a step, or its undo, had entered the phase that the transaction ended; zero if it was not awaited.
func (it *item[T]) since(name string) time.Time {
	i, _, ok := it.definition.find(name)
	if !ok {
		return time.Time{}
	}
	switch s := it.before.Steps[i]; s.Phase {
	case Sent, Waiting, Undoing:
		return s.Since
	default:
		return time.Time{}
	}
}

// identity is what spans and log lines about a saga carry.
func (r *Record) identity() []attribute.KeyValue {
	return []attribute.KeyValue{
		telemetry.OrderID.String(r.ID.String()), telemetry.IdempotencyKey.String(r.IdempotencyKey), telemetry.Saga.String(r.Definition),
	}
}

// mark puts where a saga has got to on a span. Collectors keep traces by it.
func mark(span trace.Span, r *Record) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.Saga.String(r.Definition), telemetry.SagaState.String(string(r.Status)))
	if r.Attention != "" {
		span.SetAttributes(telemetry.Attention.String(r.Attention))
	}
}

// within starts a span in the saga's own trace, for what did not come with a message: a deadline, or somebody's wish, in whose trace
// ctx is then. The two spans link to each other. Everything under the returned context is in the saga's trace.
func (e *Engine[T]) within(ctx context.Context, r *Record, name string) (context.Context, trace.Span) {
	asking := trace.SpanFromContext(ctx)
	ctx = telemetry.WithAttributes(telemetry.Extract(ctx, r.Trace), r.identity()...)
	if e.tracer == nil {
		return ctx, nooptrace.Span{}
	}
	opts := []trace.SpanStartOption{}
	foreign := asking.SpanContext().IsValid() && asking.SpanContext().TraceID() != trace.SpanContextFromContext(ctx).TraceID()
	relation := []attribute.KeyValue{telemetry.Relation.String(telemetry.RelationRequest)}
	if foreign {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: asking.SpanContext(), Attributes: relation}))
	}
	ctx, span := e.tracer.Start(ctx, name+" "+r.Definition, opts...)
	if foreign {
		asking.AddLink(trace.Link{SpanContext: span.SpanContext(), Attributes: relation})
	}
	return ctx, span
}
