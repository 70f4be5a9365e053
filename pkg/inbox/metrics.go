package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/telemetry"
)

const selectOpenLetters = `SELECT consumer, count(*) FROM dead_letter WHERE settled_at IS NULL GROUP BY consumer`

// Instruments tell how the consumers of one service do. nil tells nobody.
type Instruments struct {
	handled     metric.Int64Counter
	duration    metric.Float64Histogram
	duplicates  metric.Int64Counter
	redelivered metric.Int64Counter
	failed      metric.Int64Counter
	deadLetters metric.Int64Counter
}

// NewInstruments makes the instruments of some consumers, whose dead letters are in the database.
func NewInstruments(pool *pgxpool.Pool, m metric.Meter, consumers ...string) (*Instruments, error) {
	var (
		i    Instruments
		errs [7]error
	)
	i.handled, errs[0] = m.Int64Counter("throughline.inbox.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that were dealt with, duplicates and dead letters included."))
	i.duration, errs[1] = m.Float64Histogram("messaging.process.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of processing operation."))
	i.duplicates, errs[2] = m.Int64Counter("throughline.inbox.duplicates", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that were dealt with before, and changed nothing."))
	i.redelivered, errs[3] = m.Int64Counter("throughline.inbox.redeliveries", metric.WithUnit("{message}"),
		metric.WithDescription("Deliveries that were not the first of their message."))
	i.failed, errs[4] = m.Int64Counter("throughline.inbox.failures", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that failed alone, and were given back or given up."))
	i.deadLetters, errs[5] = m.Int64Counter("throughline.inbox.dead_letters", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that were given up and kept as dead letters."))
	open, err := m.Int64ObservableGauge("throughline.inbox.dead_letters.open", metric.WithUnit("{message}"),
		metric.WithDescription("Dead letters that nobody has settled, and events that wait behind them."))
	errs[6] = err
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("making the consumers' instruments: %w", err)
	}
	for _, name := range consumers { // rates have a beginning
		for _, c := range []metric.Int64Counter{i.handled, i.duplicates, i.redelivered, i.failed, i.deadLetters} {
			c.Add(context.Background(), 0, withConsumer(name))
		}
	}
	_, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		rows, err := pool.Query(ctx, selectOpenLetters)
		if err != nil {
			return fmt.Errorf("counting dead letters: %w", err)
		}
		counts := make(map[string]int64, len(consumers))
		for _, name := range consumers {
			counts[name] = 0
		}
		var name string
		var n int64
		if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { counts[name] = n; return nil }); err != nil {
			return fmt.Errorf("counting dead letters: %w", err)
		}
		for name, n := range counts {
			o.ObserveInt64(open, n, withConsumer(name))
		}
		return nil
	}, open)
	if err != nil {
		return nil, fmt.Errorf("observing dead letters: %w", err)
	}
	return &i, nil
}

func withConsumer(name string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(telemetry.Consumer.String(name)))
}

// done tells of a batch that was dealt with, after its commit.
func (i *Instruments) done(ctx context.Context, consumer string, batch []messaging.Delivery, began time.Time, traced bool) {
	if i == nil || len(batch) == 0 {
		return
	}
	var duplicates, redelivered int64
	for n := range batch {
		if batch[n].Duplicate {
			duplicates++
		}
		if batch[n].Attempt > 1 {
			redelivered++
		}
	}
	by := withConsumer(consumer)
	i.handled.Add(ctx, int64(len(batch)), by)
	i.duplicates.Add(ctx, duplicates, by)
	i.redelivered.Add(ctx, redelivered, by)
	// Of each message, though they share a transaction: that is how long each of them took.
	seconds := time.Since(began).Seconds()
	processed := metric.WithAttributeSet(attribute.NewSet(
		telemetry.MessagingSystem.String(telemetry.SystemNATS), telemetry.MessagingOperationName.String(telemetry.OperationProcess),
		telemetry.MessagingConsumerGroup.String(consumer)))
	for n := range batch {
		example := ctx
		if traced {
			example = telemetry.Extract(ctx, batch[n].Carrier())
		}
		i.duration.Record(example, seconds, processed)
	}
}

// count tells of a message that failed, or was given up.
func (i *Instruments) count(ctx context.Context, consumer string, dead bool) {
	switch {
	case i == nil:
	case dead:
		i.deadLetters.Add(ctx, 1, withConsumer(consumer))
		i.handled.Add(ctx, 1, withConsumer(consumer))
	default:
		i.failed.Add(ctx, 1, withConsumer(consumer))
	}
}

// tellDead makes the span of giving a message up, in the message's trace, and gives the context for what is logged about it.
func (p *Processor) tellDead(ctx context.Context, d *messaging.Delivery, cause error) context.Context {
	ctx = d.About(ctx)
	p.Told.count(ctx, p.Consumer, true)
	if p.Tracer == nil {
		return ctx
	}
	ctx, span := p.Tracer.Start(ctx, "dead-letter "+d.Subject, trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(telemetry.DeadLetter.Bool(true), telemetry.MessagingMessageID.String(d.ID.String()),
			telemetry.MessagingConsumerGroup.String(p.Consumer)))
	telemetry.Fail(span, cause)
	span.End()
	return ctx
}
