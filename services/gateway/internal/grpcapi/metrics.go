package grpcapi

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// The kinds of answers to requests that carry an idempotency key.
const (
	kindNew        = "new"         // what was asked for was done
	kindReplay     = "replay"      // the answer of the first request with the key, again
	kindExpired    = "expired"     // the key was used, and that answer is no longer kept
	kindMismatch   = "mismatch"    // the key was used for another request
	kindInProgress = "in_progress" // another request with the key is at work
	kindRefused    = "refused"     // not what we take, or not now
	kindFailed     = "failed"      // nobody knows, and the request should be repeated
)

func kinds() []string {
	return []string{kindNew, kindReplay, kindExpired, kindMismatch, kindInProgress, kindRefused, kindFailed}
}

// operations are the methods that take a key, by the names that they have among the metrics.
var operations = map[string]string{"CreateOrder": "create_order", "CancelOrder": "cancel_order"}

// instruments tell what clients are answered.
type instruments struct {
	answers metric.Int64Counter
}

func newInstruments(m metric.Meter) (*instruments, error) {
	if m == nil {
		m = noop.Meter{}
	}
	answers, err := m.Int64Counter("throughline.edge.answers", metric.WithUnit("{answer}"),
		metric.WithDescription("Answers to requests with an idempotency key, by kind: new, replay, expired, mismatch, in_progress, refused or failed."))
	if err != nil {
		return nil, fmt.Errorf("making the edge's instruments: %w", err)
	}
	for _, operation := range operations { // rates have a beginning
		for _, kind := range kinds() {
			answers.Add(context.Background(), 0, withKind(operation, kind))
		}
	}
	return &instruments{answers}, nil
}

func withKind(operation, kind string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("operation", operation), attribute.String("kind", kind)))
}

// answered tells of one answer of a method, on the request's span too.
func (i *instruments) answered(ctx context.Context, method, kind string) {
	if operation, ok := operations[method]; ok {
		i.answers.Add(ctx, 1, withKind(operation, kind))
		trace.SpanFromContext(ctx).SetAttributes(telemetry.EdgeAnswer.String(kind))
	}
}

// kindOf is the kind of an answer that is an error.
func kindOf(err error) string {
	switch grpcx.ReasonOf(err) {
	case grpcx.KeyMismatch:
		return kindMismatch
	case grpcx.KeyInProgress:
		return kindInProgress
	case grpcx.Internal, grpcx.Unavailable, grpcx.Deadline:
		return kindFailed
	default:
		return kindRefused
	}
}
