package messaging

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/throughline/throughline/pkg/telemetry"
)

// LateAfter is how long after a message was stored its handling begins a trace of its own that links to the sender's,
// where it is a child of it otherwise. What is this late waited for a consumer that was away: a trace that was looked at, sampled and
// closed long ago would get a tail, and its duration would be that of the outage. It is far above the time that collectors
// keep a trace open for, which is a minute or so.
const LateAfter = 10 * time.Minute

// Carrier gives the trace context that the message belongs to.
func (m *Message) Carrier() telemetry.Carrier {
	return telemetry.Carrier{TraceParent: m.TraceParent, TraceState: m.TraceState}
}

// About gives a context in the trace that the message belongs to, under which every span and every line of the log says what it is about.
func (m *Message) About(ctx context.Context) context.Context {
	return telemetry.WithAttributes(telemetry.Extract(ctx, m.Carrier()), m.Identity()...)
}

// Identity are the attributes of what the message is about, which every span on its way carries.
func (m *Message) Identity() []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		telemetry.OrderID.String(m.AggregateID.String()),
		telemetry.IdempotencyKey.String(m.IdempotencyKey),
	}
	if m.StepName != "" {
		attrs = append(attrs, telemetry.Step.String(m.StepName))
	}
	if m.StepKey != uuid.Nil {
		attrs = append(attrs, telemetry.StepKey.String(m.StepKey.String()))
	}
	return attrs
}

// Attributes are what a span about the message carries. The name of an operation is its type, as NATS has no names of its own.
func (m *Message) Attributes(operation string) []attribute.KeyValue {
	attrs := append(m.Identity(),
		telemetry.MessagingSystem.String(telemetry.SystemNATS),
		telemetry.MessagingDestination.String(m.Subject),
		telemetry.MessagingOperationName.String(operation),
		telemetry.MessagingOperationType.String(operation),
		telemetry.MessagingMessageID.String(m.ID.String()),
	)
	if m.Outcome != "" {
		attrs = append(attrs, telemetry.Outcome.String(m.Outcome))
	}
	if m.Reason != "" {
		attrs = append(attrs, telemetry.Reason.String(m.Reason))
	}
	return attrs
}

// startPublish starts the span of a publish as a child of parent, and lets the wire form carry that span on. Without tracing, the message's own
// trace context goes on unchanged.
func (s Session) startPublish(ctx context.Context, parent *telemetry.Carrier, m *Message, msg *nats.Msg, opts ...trace.SpanStartOption) trace.Span {
	if s.conn.tracer == nil {
		return nil
	}
	if parent != nil {
		ctx = telemetry.Extract(ctx, *parent)
	}
	ctx, span := s.conn.tracer.Start(ctx, telemetry.OperationSend+" "+m.Subject, append(opts, trace.WithSpanKind(trace.SpanKindProducer))...)
	if span.IsRecording() {
		span.SetAttributes(m.Attributes(telemetry.OperationSend)...)
		span.SetAttributes(s.link.server...)
	}
	carrier := telemetry.Inject(ctx)
	msg.Header[HeaderTraceParent] = []string{carrier.TraceParent}
	delete(msg.Header, HeaderTraceState)
	if carrier.TraceState != "" {
		msg.Header[HeaderTraceState] = []string{carrier.TraceState}
	}
	return span
}

// serverOf says which broker a connection goes to.
func serverOf(nc *nats.Conn) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(nc.ConnectedAddr())
	if err != nil {
		return nil // in process: there is no address
	}
	attrs := []attribute.KeyValue{semconv.ServerAddress(host)}
	if n, err := strconv.Atoi(port); err == nil {
		attrs = append(attrs, semconv.ServerPort(n))
	}
	return attrs
}

// StartProcess starts the span of handling a delivery, and at the first call that of its receipt, which reaches from its arrival in this process
// to here. Both are in the trace of the span that published the message; a redelivery also links to it. A delivery that is late by
// [LateAfter], and one that did not come from the broker, as a replay does, only link to it: they begin a trace of their own, or go on in the
// one that ctx has. Everything that is started under the returned context carries the message's identity. Without a tracer, which is nil then,
// the context only carries the message's trace on.
func StartProcess(ctx context.Context, tracer trace.Tracer, d *Delivery) (context.Context, trace.Span) {
	if tracer == nil {
		return d.About(ctx), noop.Span{}
	}
	if !d.received.IsValid() {
		d.received = d.receive(ctx, tracer)
	}
	ctx = telemetry.WithAttributes(trace.ContextWithSpanContext(ctx, d.received), d.Identity()...)
	ctx, span := tracer.Start(ctx, telemetry.OperationProcess+" "+d.Subject, trace.WithSpanKind(trace.SpanKindConsumer))
	d.describe(span, telemetry.OperationProcess)
	return ctx, span
}

// receive makes the span of the receipt and gives its context.
func (d *Delivery) receive(ctx context.Context, tracer trace.Tracer) trace.SpanContext {
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	link, linked := telemetry.LinkFrom(d.Carrier())
	relation := ""
	switch {
	case d.raw == nil:
		relation = telemetry.RelationReplay
	case d.late():
		relation = telemetry.RelationLate
		opts = append(opts, trace.WithNewRoot())
	default:
		if d.Attempt > 1 {
			relation = telemetry.RelationRedelivery
		}
		ctx = telemetry.Extract(ctx, d.Carrier())
	}
	if linked && relation != "" {
		link.Attributes = []attribute.KeyValue{telemetry.Relation.String(relation)}
		opts = append(opts, trace.WithLinks(link))
	}
	if !d.arrived.IsZero() {
		opts = append(opts, trace.WithTimestamp(d.arrived))
	}
	_, span := tracer.Start(ctx, telemetry.OperationReceive+" "+d.Subject, opts...)
	d.describe(span, telemetry.OperationReceive)
	span.End()
	return span.SpanContext()
}

// late tells whether the message had lain in its stream for long.
func (d *Delivery) late() bool { return !d.StoredAt.IsZero() && d.arrived.Sub(d.StoredAt) > LateAfter }

// describe puts on a span what is known of a delivery and its message. Attributes are only made for a span that is recorded, as everywhere
// here: most traces are not, where a part of them is sampled, and they would cost nearly as much as those that are.
func (d *Delivery) describe(span trace.Span, operation string) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(d.Attributes(operation)...)
	if d.consumer != "" {
		span.SetAttributes(telemetry.MessagingConsumerGroup.String(d.consumer))
	}
	if d.Attempt > 1 {
		span.SetAttributes(telemetry.Delivery.Int64(int64(min(d.Attempt, 1<<31)))) //nolint:gosec // bounded
	}
}

// Repeat notes that a message was dealt with before, and makes the span that says so.
func (d *Delivery) Repeat(ctx context.Context, tracer trace.Tracer) {
	d.Duplicate = true
	if tracer == nil {
		return
	}
	_, span := StartProcess(ctx, tracer, d)
	span.SetAttributes(telemetry.Duplicate.Bool(true))
	span.End()
}
