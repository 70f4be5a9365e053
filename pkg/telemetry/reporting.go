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

// reporting logs failed exports. The SDK would hand them to a process-wide
// handler, which cannot tell the services of one process apart.
type reporting struct {
	sdktrace.SpanExporter
	logger *slog.Logger
	lost   atomic.Int64
	last   atomic.Int64 // unix nanoseconds of the last report
}

func newReporting(e sdktrace.SpanExporter, logger *slog.Logger) *reporting {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &reporting{SpanExporter: e, logger: logger}
}

// ExportSpans exports, and reports a failure instead of returning it.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	lost := r.lost.Add(int64(len(spans)))
	now, last := time.Now().UnixNano(), r.last.Load()
	if now-last >= int64(reportEvery) && r.last.CompareAndSwap(last, now) {
		r.logger.WarnContext(ctx, "exporting spans failed", LogError, err, "lost_in_total", lost)
	}
	return nil
}
