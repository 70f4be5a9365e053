package messaging

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/telemetry"
)

// Ack says where a message was stored.
type Ack struct {
	Stream   string
	Sequence uint64
	// Duplicate says that the stream had the message already, within its duplicate window.
	Duplicate bool
}

// Pending is a publish that waits for its acknowledgement.
type Pending struct {
	session Session
	future  jetstream.PubAckFuture
	span    trace.Span // nil without tracing
	err     error
}

// Publish sends a message in the current session; see [Session.Publish].
func (c *Conn) Publish(ctx context.Context, m *Message) *Pending { return c.Session().Publish(ctx, m) }

// Publish sends a message without waiting for its acknowledgement; [Pending.Wait] does, and must be called. Messages that
// are published one after another reach the broker in that order, but are stored or refused each for itself: who needs
// an order waits for one acknowledgement before the next message. In a session that has ended nothing is sent.
//
// It blocks only while more than the publish window wait for their acknowledgement, and no longer than the publish timeout.
func (s Session) Publish(ctx context.Context, m *Message) *Pending {
	return s.PublishUnder(ctx, m, m.Carrier())
}

// PublishUnder is [Session.Publish] with another parent of its span than the one that the message carries.
func (s Session) PublishUnder(ctx context.Context, m *Message, parent telemetry.Carrier) *Pending {
	return s.publish(ctx, &parent, m, m.toNATS())
}

// Republish sends a message that was sent before, on purpose. The stream would take it for a repeat and store nothing, so it
// gets an id of its own for the broker; consumers know it by its message id, which stays. Its span is in the trace of ctx, and links to the message's own.
func (s Session) Republish(ctx context.Context, m *Message, deliveryID uuid.UUID) *Pending {
	msg := m.toNATS()
	msg.Header.Set(HeaderMessageID, deliveryID.String())
	var opts []trace.SpanStartOption
	if link, ok := telemetry.LinkFrom(m.Carrier()); ok {
		link.Attributes = []attribute.KeyValue{telemetry.Relation.String(telemetry.RelationReplay)}
		opts = append(opts, trace.WithLinks(link))
	}
	return s.publish(ctx, nil, m, msg, opts...)
}

// publish sends; parent is what its span belongs under, in the place of the context's own.
func (s Session) publish(ctx context.Context, parent *telemetry.Carrier, m *Message, msg *nats.Msg, opts ...trace.SpanStartOption) *Pending {
	if s.link == nil {
		return &Pending{session: s, err: nats.ErrConnectionClosed}
	}
	span := s.startPublish(ctx, parent, m, msg, opts...)
	future, err := s.link.js.PublishMsgAsync(msg, jetstream.WithStallWait(s.conn.cfg.PublishTimeout))
	return &Pending{session: s, future: future, span: span, err: err}
}

// Wait waits for the acknowledgement, at most for the publish timeout and the end of the session. The error wraps
// [ErrNeverAccepted] when sending again is of no use, else [ErrUnavailable], after which the message may have been stored
// or not.
func (p *Pending) Wait(ctx context.Context) (Ack, error) {
	ack, err := p.wait(ctx)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
		p.session.conn.noteMissing()
	}
	if p.span != nil {
		if err != nil {
			telemetry.Fail(p.span, err)
		}
		p.span.End()
	}
	return ack, err
}

func (p *Pending) wait(ctx context.Context) (Ack, error) {
	if p.err != nil {
		return Ack{}, classify(p.err)
	}
	select {
	case a := <-p.future.Ok():
		return Ack{Stream: a.Stream, Sequence: a.Sequence, Duplicate: a.Duplicate}, nil
	case err := <-p.future.Err():
		return Ack{}, classify(err)
	case <-p.session.link.closed:
		return Ack{}, classify(nats.ErrConnectionClosed)
	case <-ctx.Done():
		return Ack{}, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}

// classify gives publish errors their class.
func classify(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject):
		return fmt.Errorf("%w: %w", ErrNeverAccepted, err)
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %w", ErrNeverAccepted, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}
