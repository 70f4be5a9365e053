package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// maxQueuedSpans is how many ended spans wait for export before new ones are
// dropped: 5 s (the exporter's interval) of 100 sampled orders a second with
// some 30 spans each, at about 1 kB a span 16 MB.
const maxQueuedSpans = 16384

// Config says what a service's telemetry is. The zero value works: no export,
// metrics only.
type Config struct {
	ServiceName    string // "order"
	ServiceVersion string
	Instance       string // tells the instances of one service apart

	// OTLPEndpoint is where traces go, over gRPC: "http://host:4317" in the clear,
	// "https://…" with TLS. Empty: no export. It usually comes from
	// OTEL_EXPORTER_OTLP_ENDPOINT. The other OTEL_EXPORTER_OTLP_ variables are
	// read by the exporter itself.
	OTLPEndpoint string
	// Exporter takes the place of OTLPEndpoint, for tests. It is shut down by Shutdown.
	Exporter sdktrace.SpanExporter
	// Sampler decides about root spans and those of unsampled parents; nil
	// is [SampleRatio] of 1.
	Sampler sdktrace.Sampler
	// OTLPMetrics sends metrics to OTLPEndpoint, too, besides serving them.
	OTLPMetrics bool
	// MetricReader takes the place of sending metrics, for tests.
	MetricReader sdkmetric.Reader
	// Logger hears of failed exports; nil is none.
	Logger *slog.Logger
}

// Telemetry is what one service reports with. Its methods are safe for
// concurrent use.
type Telemetry struct {
	tracers  trace.TracerProvider
	meters   *sdkmetric.MeterProvider
	registry *prometheus.Registry
	sdk      *sdktrace.TracerProvider // nil without an exporter
}

// Setup makes the telemetry of one service. It does not wait for the collector:
// one that is away costs its spans and nothing else.
func Setup(ctx context.Context, cfg Config) (*Telemetry, error) {
	res, err := resource.Merge(resource.Default(), resource.NewWithAttributes(semconv.SchemaURL,
		semconv.ServiceName(cfg.ServiceName),
		semconv.ServiceVersion(cfg.ServiceVersion),
		semconv.ServiceInstanceID(cfg.Instance),
	))
	if err != nil {
		return nil, fmt.Errorf("describing the service: %w", err)
	}
	t := &Telemetry{tracers: untraced{}, registry: prometheus.NewRegistry()}
	if t.meters, err = newMeters(ctx, &cfg, t.registry, res); err != nil {
		return nil, err
	}
	exporter := cfg.Exporter
	if exporter == nil && cfg.OTLPEndpoint != "" {
		if exporter, err = newOTLP(ctx, cfg.OTLPEndpoint); err != nil {
			return nil, err
		}
	}
	if exporter == nil {
		return t, nil
	}
	sampler := cfg.Sampler
	if sampler == nil {
		sampler = SampleRatio(1)
	}
	t.sdk = sdktrace.NewTracerProvider(
		sdktrace.WithResource(res),
		sdktrace.WithSampler(sampler),
		sdktrace.WithSpanProcessor(attributeProcessor{}),
		sdktrace.WithBatcher(newReporting(exporter, loggerOf(&cfg)), sdktrace.WithMaxQueueSize(maxQueuedSpans)),
	)
	t.tracers = t.sdk
	return t, nil
}

func newOTLP(ctx context.Context, endpoint string) (sdktrace.SpanExporter, error) {
	if err := checkEndpoint(endpoint); err != nil {
		return nil, err
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("making the trace exporter: %w", err)
	}
	return exporter, nil
}

// checkEndpoint refuses an endpoint without a scheme: the exporter would choose TLS, and fail only at its first export.
func checkEndpoint(endpoint string) error {
	if !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
		return fmt.Errorf("%w: %q", ErrEndpoint, endpoint)
	}
	return nil
}

// Tracer returns a tracer, named after the package that uses it.
func (t *Telemetry) Tracer(name string) trace.Tracer { return t.tracers.Tracer(name) }

// TracerProvider returns the provider, for instrumentation of libraries.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.tracers }

// Meter returns a meter, named after the package that uses it. The name is not
// shown in /metrics, so instruments need names that are unique in the service.
func (t *Telemetry) Meter(name string) metric.Meter { return t.meters.Meter(name) }

// MeterProvider returns the provider, for instrumentation of libraries.
func (t *Telemetry) MeterProvider() metric.MeterProvider { return t.meters }

// Registry returns the service's own Prometheus registry.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// Exporting reports whether spans are made and exported.
func (t *Telemetry) Exporting() bool { return t.sdk != nil }

// MetricsHandler serves the metrics in Prometheus' format, and with exemplars to who asks for OpenMetrics. It shows nothing of
// ours after Shutdown.
func (t *Telemetry) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{Registry: t.registry, EnableOpenMetrics: true})
}

// Flush exports all spans that have ended.
func (t *Telemetry) Flush(ctx context.Context) error {
	if t.sdk == nil {
		return nil
	}
	if err := t.sdk.ForceFlush(ctx); err != nil {
		return fmt.Errorf("flushing spans: %w", err)
	}
	return nil
}

// Shutdown exports what is left and ends all exporting. Call it after everything
// that reports has ended.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	if t.sdk != nil {
		errs = append(errs, t.sdk.Shutdown(ctx))
	}
	errs = append(errs, t.meters.Shutdown(ctx))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("shutting down telemetry: %w", err)
	}
	return nil
}
