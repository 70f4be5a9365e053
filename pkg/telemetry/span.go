package telemetry

import (
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Fail marks a span as failed, by which collectors know what to keep. A business refusal is no failure. nil does nothing.
func Fail(span trace.Span, err error) {
	if err == nil || !span.IsRecording() {
		return
	}
	span.SetAttributes(semconv.ErrorType(err))
	span.SetStatus(codes.Error, err.Error())
}
