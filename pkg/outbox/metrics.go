package outbox

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// countedRows bounds what a look at the metrics may cost: more pending rows are told as this many.
const countedRows = 100_000

const selectBacklog = `
SELECT (SELECT count(*) FROM (SELECT FROM outbox LIMIT $1) AS bounded),
       (SELECT count(*) FROM outbox WHERE refusals > 0 AND set_aside_at IS NOT NULL),
       coalesce((SELECT extract(epoch FROM now() - created_at) FROM outbox WHERE set_aside_at IS NULL ORDER BY message_id LIMIT 1), 0)::float8`

// Values of the attribute by of the counter of published messages.
var (
	byHandOff = metric.WithAttributeSet(attribute.NewSet(attribute.String("by", "hand_off")))
	bySweep   = metric.WithAttributeSet(attribute.NewSet(attribute.String("by", "sweep")))
)

// instruments tell how the relay does. Every instance of a service tells the same of the database they share.
type instruments struct {
	published    metric.Int64Counter
	registration metric.Registration
}

func newInstruments(r *Relay, m metric.Meter) (*instruments, error) {
	if m == nil {
		m = noop.Meter{}
	}
	var (
		i    instruments
		errs [4]error
	)
	i.published, errs[0] = m.Int64Counter("throughline.outbox.published", metric.WithUnit("{message}"),
		metric.WithDescription("Messages acknowledged by their stream, by who published them: hand_off or sweep."))
	pending, err := m.Int64ObservableGauge("throughline.outbox.pending", metric.WithUnit("{message}"),
		metric.WithDescription("Rows that are not known to be safe at the broker, up to 100,000."))
	errs[1] = err
	aside, err := m.Int64ObservableGauge("throughline.outbox.set_aside", metric.WithUnit("{message}"),
		metric.WithDescription("Rows that the broker will never take and a person must look at."))
	errs[2] = err
	age, err := m.Float64ObservableGauge("throughline.outbox.oldest_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest pending row; 0 when there is none."))
	errs[3] = err
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("making the outbox's instruments: %w", err)
		}
	}
	i.registration, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		var rows, asides int64
		var oldest float64
		if err := r.pool.QueryRow(ctx, selectBacklog, countedRows).Scan(&rows, &asides, &oldest); err != nil {
			return fmt.Errorf("measuring the outbox: %w", err)
		}
		o.ObserveInt64(pending, rows)
		o.ObserveInt64(aside, asides)
		o.ObserveFloat64(age, oldest)
		return nil
	}, pending, aside, age)
	if err != nil {
		return nil, fmt.Errorf("observing the outbox: %w", err)
	}
	return &i, nil
}
