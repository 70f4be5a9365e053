package outbox

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/telemetry"
)

// failure is a row that could not be published. The rows after it in its chain were not tried.
type failure struct {
	id  uuid.UUID
	of  *messaging.Message
	err error
}

// publish sends chains side by side, and the rows of each one after another, each after the acknowledgement of the one
// before, all over one connection. It gives the failure of each chain that failed.
func (r *Relay) publish(ctx context.Context, session messaging.Session, chains []Chain, by publisher) []failure {
	var failures []failure
	active := make([]*Chain, len(chains))
	for i := range chains {
		active[i] = &chains[i]
	}
	pending := make([]*messaging.Pending, 0, len(chains))
	done := make([]sent, 0, len(chains))
	for at := 0; len(active) > 0; at++ {
		pending, done = pending[:0], done[:0]
		began := time.Now()
		for _, c := range active {
			m := &c.Messages[at]
			fault.At(fault.OutboxPublishing, m.AggregateID, concern(m))
			pending = append(pending, session.PublishUnder(ctx, m, r.waited(ctx, m, by)))
		}
		still := active[:0]
		for i, c := range active {
			m := &c.Messages[at]
			ack, err := pending[i].Wait(ctx)
			if err != nil {
				failures = append(failures, failure{m.ID, m, fmt.Errorf("publishing %s %s: %w", m.Subject, m.ID, err)})
				continue
			}
			fault.At(fault.OutboxPublished, m.AggregateID, concern(m))
			done = append(done, sent{m.ID, ack.Stream, ack.Sequence, began})
			r.told.sent(ctx, m, by, r.conn.Tracer() != nil)
			if at+1 < len(c.Messages) {
				still = append(still, c)
			}
		}
		active = still
		r.noteAcked(session.Number, done)
	}
	return failures
}

// concern tells what a message is about: a step, or for an event its subject.
func concern(m *messaging.Message) string { return cmp.Or(m.StepName, m.Subject) }

// waited makes the span of a message's wait in the outbox, from when it was written to now, and gives what the span of its publishing belongs under.
func (r *Relay) waited(ctx context.Context, m *messaging.Message, by publisher) telemetry.Carrier {
	tracer := r.conn.Tracer()
	if tracer == nil {
		return m.Carrier()
	}
	now := time.Now()
	ctx, span := tracer.Start(telemetry.Extract(ctx, m.Carrier()), "outbox "+m.Subject, trace.WithTimestamp(writtenAt(m, now)))
	if span.IsRecording() {
		span.SetAttributes(m.Identity()...)
		span.SetAttributes(telemetry.PublishedBy.String(string(by)), telemetry.MessagingMessageID.String(m.ID.String()),
			telemetry.OutboxWaitMS.Int64(now.Sub(writtenAt(m, now)).Milliseconds()))
	}
	span.End(trace.WithTimestamp(now))
	return telemetry.Inject(ctx)
}

// writtenAt is about when a message was written to the outbox. Its id tells, to the millisecond, by the clock of who wrote it.
func writtenAt(m *messaging.Message, now time.Time) time.Time {
	if m.CreatedAt.IsZero() || m.CreatedAt.After(now) {
		return now
	}
	return m.CreatedAt
}
