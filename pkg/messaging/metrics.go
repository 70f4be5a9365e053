package messaging

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/throughline/throughline/pkg/telemetry"
)

// lagTimeout bounds what asking the broker about one consumer may cost those who read the metrics.
const lagTimeout = time.Second

// lag tells how far behind the consumers are that this process takes part in. Every instance tells the same of the ones they share.
type lag struct {
	registration metric.Registration // nil tells nobody

	mu        sync.Mutex // guards consumers; written by Consume, read when metrics are
	consumers map[string]jetstream.Consumer
}

// add lists a consumer until the returned function is called.
func (l *lag) add(name string, consumer jetstream.Consumer) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.consumers == nil {
		l.consumers = make(map[string]jetstream.Consumer)
	}
	l.consumers[name] = consumer
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.consumers[name] == consumer {
			delete(l.consumers, name)
		}
	}
}

func (l *lag) listed() map[string]jetstream.Consumer {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make(map[string]jetstream.Consumer, len(l.consumers))
	for name, consumer := range l.consumers {
		list[name] = consumer
	}
	return list
}

func (l *lag) observe(c *Conn, m metric.Meter) error {
	if m == nil {
		return nil
	}
	var errs [3]error
	waiting, err := m.Int64ObservableGauge("throughline.consumer.lag", metric.WithUnit("{message}"),
		metric.WithDescription("Messages in the stream that a consumer has not been given yet."))
	errs[0] = err
	unacked, err := m.Int64ObservableGauge("throughline.consumer.unacknowledged", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that a consumer was given and has not acknowledged."))
	errs[1] = err
	again, err := m.Int64ObservableGauge("throughline.consumer.redelivering", metric.WithUnit("{message}"),
		metric.WithDescription("Messages among the unacknowledged that were delivered more than once."))
	errs[2] = err
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("making the consumers' instruments: %w", err)
	}
	l.registration, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		if !c.Session().Connected {
			return nil // nothing is known of them, and what was known is not true any more
		}
		for name, consumer := range l.listed() {
			bounded, cancel := context.WithTimeout(ctx, lagTimeout)
			info, err := consumer.Info(bounded)
			cancel()
			if err != nil {
				c.log.DebugContext(ctx, "consumer not measured", telemetry.LogConsumer, name, telemetry.LogError, err)
				continue
			}
			by := metric.WithAttributeSet(attribute.NewSet(telemetry.Consumer.String(name)))
			o.ObserveInt64(waiting, int64(min(info.NumPending, 1<<62)), by) //nolint:gosec // bounded
			o.ObserveInt64(unacked, int64(info.NumAckPending), by)
			o.ObserveInt64(again, int64(info.NumRedelivered), by)
		}
		return nil
	}, waiting, unacked, again)
	if err != nil {
		return fmt.Errorf("observing the consumers: %w", err)
	}
	return nil
}

// end tells nothing any more.
func (l *lag) end() {
	if l.registration != nil {
		_ = l.registration.Unregister() // it only fails for a registration of another provider
	}
}
