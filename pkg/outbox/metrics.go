package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/telemetry"
)

// countedRows bounds what a look at the metrics may cost: more pending rows are told as this many.
const countedRows = 100_000

const selectBacklog = `
SELECT (SELECT count(*) FROM (SELECT FROM outbox ORDER BY message_id LIMIT $1) AS bounded),
       (SELECT count(*) FROM outbox WHERE refusals > 0 AND set_aside_at IS NOT NULL),
       coalesce((SELECT extract(epoch FROM now() - created_at) FROM outbox WHERE set_aside_at IS NULL ORDER BY message_id LIMIT 1), 0)::float8`

// publisher says which part of the relay has published a message.
type publisher string

const (
	handOff publisher = "hand_off"
	swept   publisher = "sweep"
)

// The attribute by of what is told of published messages.
var (
	byHandOff = metric.WithAttributeSet(attribute.NewSet(attribute.String("by", string(handOff))))
	bySweep   = metric.WithAttributeSet(attribute.NewSet(attribute.String("by", string(swept))))
)

func (p publisher) attribute() metric.MeasurementOption {
	if p == swept {
		return bySweep
	}
	return byHandOff
}

// instruments tell how the relay does. Every instance of a service tells the same of the database they share.
type instruments struct {
	published    metric.Int64Counter
	delay        metric.Float64Histogram
	registration metric.Registration
}

func newInstruments(r *Relay, m metric.Meter) (*instruments, error) {
	if m == nil {
		m = noop.Meter{}
	}
	var (
		i    instruments
		errs [5]error
	)
	i.published, errs[0] = m.Int64Counter("throughline.outbox.published", metric.WithUnit("{message}"),
		metric.WithDescription("Messages acknowledged by their stream, by who published them: hand_off or sweep."))
	i.published.Add(context.Background(), 0, byHandOff)
	i.published.Add(context.Background(), 0, bySweep)
	i.delay, errs[4] = m.Float64Histogram("throughline.outbox.publish_delay", metric.WithUnit("s"),
		metric.WithDescription("Time from the writing of a message to the acknowledgement of its stream, by who published it."))
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
		err := r.look(ctx, func(found pgx.Rows) error {
			_, err := pgx.ForEachRow(found, []any{&rows, &asides, &oldest}, func() error { return nil })
			return err
		}, selectBacklog, countedRows)
		if err != nil {
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

// sent tells of a message that its stream has acknowledged. Its trace is the measurement's example.
func (i *instruments) sent(ctx context.Context, m *messaging.Message, by publisher, traced bool) {
	now := time.Now()
	if traced {
		ctx = telemetry.Extract(ctx, m.Carrier())
	}
	i.published.Add(ctx, 1, by.attribute())
	i.delay.Record(ctx, now.Sub(writtenAt(m, now)).Seconds(), by.attribute())
}
