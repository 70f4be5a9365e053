package host

import (
	"io"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A collector that refused would make traces look cheap: nothing but a line in a log would tell of it.
func TestCollectorTakesSpans(t *testing.T) {
	t.Parallel()
	at, stop, err := collector(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpointURL(at.URL),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := exporter.ExportSpans(t.Context(), tracetest.SpanStubs{{Name: "place order"}}.Snapshots()); err != nil {
		t.Errorf("exporting a span: got %v, want it taken", err)
	}
	if err := exporter.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
