package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type attributesKey struct{}

// WithAttributes adds attributes to the span of ctx and returns a context under
// which every new span carries them too, in addition to those of earlier calls. An
// attribute given again replaces the earlier one. They stay in this process.
func WithAttributes(ctx context.Context, attrs ...attribute.KeyValue) context.Context {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attrs...)
	}
	before := Attributes(ctx)
	all := make([]attribute.KeyValue, 0, len(before)+len(attrs))
	all = append(append(all, before...), attrs...)
	return context.WithValue(ctx, attributesKey{}, all)
}

// Attributes returns what [WithAttributes] put into ctx, oldest first. The
// caller must not change it.
func Attributes(ctx context.Context) []attribute.KeyValue {
	attrs, _ := ctx.Value(attributesKey{}).([]attribute.KeyValue)
	return attrs
}

// attributeProcessor copies the context's attributes to each span at its start.
type attributeProcessor struct{}

var _ sdktrace.SpanProcessor = attributeProcessor{}

func (attributeProcessor) OnStart(parent context.Context, span sdktrace.ReadWriteSpan) {
	if attrs := Attributes(parent); len(attrs) > 0 {
		span.SetAttributes(attrs...)
	}
}

func (attributeProcessor) OnEnd(sdktrace.ReadOnlySpan)      {}
func (attributeProcessor) Shutdown(context.Context) error   { return nil }
func (attributeProcessor) ForceFlush(context.Context) error { return nil }
