package participant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/throughline/throughline/pkg/telemetry"
)

// instruments tell how steps are performed here.
type instruments struct {
	attempts metric.Int64Counter
	duration metric.Float64Histogram
	lost     metric.Int64Counter
}

func newInstruments(m metric.Meter) (*instruments, error) {
	if m == nil {
		m = noop.Meter{}
	}
	var (
		i    instruments
		errs [3]error
	)
	i.attempts, errs[0] = m.Int64Counter("throughline.step.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Attempts at steps and undos, by outcome: done, refused, waiting, unknown, or blocked where the call did not begin."))
	i.duration, errs[1] = m.Float64Histogram("throughline.step.attempt.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of attempts at steps and undos, with the calls of the outside, by outcome."))
	i.lost, errs[2] = m.Int64Counter("throughline.step.leases_lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Results that were dropped, because the step's lease was lost before they were recorded, or the answer of recording them was."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("making the steps' instruments: %w", err)
	}
	return &i, nil
}

// begin makes the series of the steps, so that rates have a beginning.
func (i *instruments) begin(ctx context.Context, steps []string) {
	for _, s := range steps {
		i.lost.Add(ctx, 0, withStep(s))
		for _, outcome := range []string{"done", "refused", "unknown", "blocked"} {
			i.attempts.Add(ctx, 0, withOutcome(s, outcome))
		}
	}
}

func withStep(step string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(telemetry.Step.String(step)))
}

func withOutcome(step, outcome string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(telemetry.Step.String(step), telemetry.Outcome.String(outcome)))
}

// attempted tells of one attempt.
func (i *instruments) attempted(ctx context.Context, f *finished, took time.Duration) {
	by := withOutcome(f.record.StepName, outcomeName(*f))
	i.attempts.Add(ctx, 1, by)
	if !f.blocked {
		i.duration.Record(ctx, took.Seconds(), by)
	}
}
