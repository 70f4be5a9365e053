package messaging

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
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
	conn   *Conn
	future jetstream.PubAckFuture
	span   trace.Span
	err    error
}

// Publish sends a message without waiting for its acknowledgement; [Pending.Wait] does. Messages that are published
// one after another reach the broker in that order, but are stored or refused each for itself: who needs an order waits
// for one acknowledgement before the next message.
//
// It blocks only while more than the publish window wait for their acknowledgement.
func (c *Conn) Publish(ctx context.Context, m *Message) *Pending {
	msg := m.toNATS()
	span := c.startPublish(ctx, m, msg)
	future, err := c.js.PublishMsgAsync(msg)
	return &Pending{conn: c, future: future, span: span, err: err}
}

// Wait waits for the acknowledgement, at most for the publish timeout. The error wraps [ErrNeverAccepted] when sending
// again is of no use, else [ErrUnavailable], after which the message may have been stored or not.
func (p *Pending) Wait(ctx context.Context) (Ack, error) {
	ack, err := p.wait(ctx)
	if p.span != nil {
		if err != nil {
			p.span.SetStatus(codes.Error, err.Error())
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
	case <-ctx.Done():
		return Ack{}, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
}
