package saga

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/throughline/throughline/pkg/telemetry"
)

// countedTimers bounds what a look at the metrics may cost: more timers that are due are told as this many.
const countedTimers = 100_000

const selectTroubled = `
SELECT (SELECT count(*) FROM saga_instance WHERE attention <> ''),
       (SELECT count(*) FROM (SELECT FROM saga_timer WHERE due_at <= now() LIMIT $1) AS bounded),
       coalesce((SELECT extract(epoch FROM now() - min(due_at)) FROM saga_timer WHERE due_at <= now() AND failures = 0), 0)::float8`

// observe makes the gauges. Every instance of a service tells the same of the database they share, but for what is not known here.
func (e *Engine[T]) observe() error {
	m := e.cfg.Meter
	if m == nil || e.cfg.Pool == nil {
		return nil
	}
	attention, err := m.Int64ObservableGauge("throughline.saga.attention", metric.WithUnit("{saga}"),
		metric.WithDescription("Sagas that need a person."))
	if err != nil {
		return fmt.Errorf("making a gauge: %w", err)
	}
	due, err := m.Int64ObservableGauge("throughline.saga.due", metric.WithUnit("{timer}"),
		metric.WithDescription("Timers that are due and not dealt with, up to 100,000."))
	if err != nil {
		return fmt.Errorf("making a gauge: %w", err)
	}
	age, err := m.Float64ObservableGauge("throughline.saga.due_age", metric.WithUnit("s"),
		metric.WithDescription("How long the first of the due timers waits; 0 when there is none."))
	if err != nil {
		return fmt.Errorf("making a gauge: %w", err)
	}
	unknown, err := m.Int64ObservableGauge("throughline.saga.unknown", metric.WithUnit("{saga}"),
		metric.WithDescription("Unfinished sagas that this instance leaves alone, because it lacks their definition."))
	if err != nil {
		return fmt.Errorf("making a gauge: %w", err)
	}
	unfinished, err := m.Int64ObservableGauge("throughline.saga.unfinished", metric.WithUnit("{saga}"),
		metric.WithDescription("Sagas that have not ended and go on by themselves, by state."))
	if err != nil {
		return fmt.Errorf("making a gauge: %w", err)
	}
	oldestAge, err := m.Float64ObservableGauge("throughline.saga.oldest_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest of the unfinished sagas; 0 when there is none."))
	if err != nil {
		return fmt.Errorf("making a gauge: %w", err)
	}
	_, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		var troubled, timers int64
		var oldest float64
		if err := e.cfg.Pool.QueryRow(ctx, selectTroubled, countedTimers).Scan(&troubled, &timers, &oldest); err != nil {
			return fmt.Errorf("measuring sagas: %w", err)
		}
		o.ObserveInt64(attention, troubled)
		o.ObserveInt64(due, timers)
		o.ObserveFloat64(age, oldest)
		open, err := CountUnfinished(ctx, e.cfg.Pool)
		if err != nil {
			return err
		}
		o.ObserveInt64(unfinished, open.Running, metric.WithAttributes(telemetry.SagaState.String(string(Running))))
		o.ObserveInt64(unfinished, open.Compensating, metric.WithAttributes(telemetry.SagaState.String(string(Compensating))))
		age := 0.0
		if !open.Oldest.IsZero() {
			age = max(time.Since(open.Oldest), 0).Seconds()
		}
		o.ObserveFloat64(oldestAge, age)
		found, err := e.CountUnknown(ctx)
		if err != nil {
			return err
		}
		for _, p := range e.plans { // rules have something to look at
			o.ObserveInt64(unknown, 0, metric.WithAttributes(attribute.String("saga", p.Name), attribute.Int("version", p.Version)))
		}
		for _, u := range found {
			o.ObserveInt64(unknown, u.Sagas, metric.WithAttributes(attribute.String("saga", u.Name), attribute.Int("version", u.Version)))
		}
		return nil
	}, attention, due, age, unknown, unfinished, oldestAge)
	if err != nil {
		return fmt.Errorf("observing sagas: %w", err)
	}
	return nil
}
