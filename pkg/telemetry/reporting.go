package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// reportEvery bounds how often a collector that is away is mentioned: batches
// fail every few seconds then, and one line a minute says as much.
const reportEvery = time.Minute

// failures counts and logs failed exports. The SDK would hand them to a process-wide
// handler, which cannot tell the services of one process apart.
type failures struct {
	logger *slog.Logger
	lost   atomic.Int64
	last   atomic.Int64 // unix nanoseconds of the last report
}

func (f *failures) report(ctx context.Context, what string, err error, n int) {
	lost := f.lost.Add(int64(n))
	now, last := time.Now().UnixNano(), f.last.Load()
	if now-last >= int64(reportEvery) && f.last.CompareAndSwap(last, now) {
		f.logger.WarnContext(ctx, what, LogError, err, "lost_in_total", lost)
	}
}

// reporting logs failed exports of spans.
type reporting struct {
	sdktrace.SpanExporter
	failures failures
}

func newReporting(e sdktrace.SpanExporter, logger *slog.Logger) *reporting {
	return &reporting{SpanExporter: e, failures: failures{logger: logger}}
}

// ExportSpans exports, and reports a failure instead of returning it.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := r.SpanExporter.ExportSpans(ctx, spans); err != nil {
		r.failures.report(ctx, "exporting spans failed", err, len(spans))
	}
	return nil
}
