package messaging

import (
	"context"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/throughline/throughline/pkg/telemetry"
)

// Carrier gives the trace context that the message belongs to.
func (m *Message) Carrier() telemetry.Carrier {
	return telemetry.Carrier{TraceParent: m.TraceParent, TraceState: m.TraceState}
}

// Attributes are what every span about the message carries.
func (m *Message) Attributes(operation string) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		telemetry.MessagingSystem.String(telemetry.SystemNATS),
		telemetry.MessagingDestination.String(m.Subject),
		telemetry.MessagingOperationType.String(operation),
		telemetry.MessagingMessageID.String(m.ID.String()),
		telemetry.OrderID.String(m.AggregateID.String()),
		telemetry.IdempotencyKey.String(m.IdempotencyKey),
	}
	if m.StepName != "" {
		attrs = append(attrs, telemetry.Step.String(m.StepName))
	}
	if m.StepKey != uuid.Nil {
		attrs = append(attrs, telemetry.StepKey.String(m.StepKey.String()))
	}
	if m.Outcome != "" {
		attrs = append(attrs, telemetry.Outcome.String(m.Outcome))
	}
	return attrs
}

// startPublish starts the span of a publish as a child of the trace that the message belongs to, and lets the wire form
// carry that span on. Without tracing, the message's own trace context goes on unchanged.
func (c *Conn) startPublish(ctx context.Context, m *Message, msg *nats.Msg) trace.Span {
	if c.tracer == nil {
		return nil
	}
	ctx, span := c.tracer.Start(telemetry.Extract(ctx, m.Carrier()), "send "+m.Subject,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(m.Attributes(telemetry.OperationSend)...))
	carrier := telemetry.Inject(ctx)
	msg.Header[HeaderTraceParent] = []string{carrier.TraceParent}
	if carrier.TraceState != "" {
		msg.Header[HeaderTraceState] = []string{carrier.TraceState}
	}
	return span
}

// StartProcess starts the span of handling a message, as a child of the span that published it. Without a tracer, which is
// nil then, the context only carries the message's trace on.
func StartProcess(ctx context.Context, tracer trace.Tracer, m *Message) (context.Context, trace.Span) {
	ctx = telemetry.Extract(ctx, m.Carrier())
	if tracer == nil {
		return ctx, noop.Span{}
	}
	return tracer.Start(ctx, "process "+m.Subject,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(m.Attributes(telemetry.OperationProcess)...))
}
