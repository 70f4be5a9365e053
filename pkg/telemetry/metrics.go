package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
)

// newMeters makes the instruments' provider: read by /metrics, and sent by OTLP as well where that is wanted.
func newMeters(ctx context.Context, cfg *Config, registry *prometheus.Registry, res *resource.Resource) (*sdkmetric.MeterProvider, error) {
	// What the Go runtime does is told by instruments, so that it goes both ways; what the process takes from the machine is not known there.
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	scraped, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("making the metrics exporter: %w", err)
	}
	opts := []sdkmetric.Option{
		sdkmetric.WithResource(res), sdkmetric.WithReader(scraped),
		sdkmetric.WithView(secondsView, boundedView),
	}
	reader := cfg.MetricReader
	if reader == nil && cfg.OTLPMetrics && cfg.OTLPEndpoint != "" {
		if reader, err = newMetricsOTLP(ctx, cfg); err != nil {
			return nil, err
		}
	}
	if reader != nil {
		opts = append(opts, sdkmetric.WithReader(reader))
	}
	meters := sdkmetric.NewMeterProvider(opts...)
	if err := runtime.Start(runtime.WithMeterProvider(meters)); err != nil {
		return nil, fmt.Errorf("measuring the runtime: %w", err)
	}
	return meters, nil
}

func newMetricsOTLP(ctx context.Context, cfg *Config) (sdkmetric.Reader, error) {
	if err := checkEndpoint(cfg.OTLPEndpoint); err != nil {
		return nil, err
	}
	exporter, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpointURL(cfg.OTLPEndpoint))
	if err != nil {
		return nil, fmt.Errorf("making the metrics exporter: %w", err)
	}
	// Its interval is OTEL_METRIC_EXPORT_INTERVAL, or a minute.
	return sdkmetric.NewPeriodicReader(&reportingMetrics{Exporter: exporter, failures: failures{logger: loggerOf(cfg)}}), nil
}

// reportingMetrics logs failed exports of metrics, for the reason that [reporting] does.
type reportingMetrics struct {
	sdkmetric.Exporter
	failures failures
}

// Export exports, and reports a failure instead of returning it.
func (r *reportingMetrics) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	if err := r.Exporter.Export(ctx, rm); err != nil {
		r.failures.report(ctx, "exporting metrics failed", err, 1)
	}
	return nil
}

// secondsView gives all histograms in seconds the same buckets. The default ones
// are meant for milliseconds: everything under 5 s would be in one.
func secondsView(i sdkmetric.Instrument) (sdkmetric.Stream, bool) {
	if i.Kind != sdkmetric.InstrumentKindHistogram || i.Unit != "s" {
		return sdkmetric.Stream{}, false
	}
	return sdkmetric.Stream{
		Name: i.Name, Description: i.Description, Unit: i.Unit, AttributeFilter: fewValues,
		// From a local commit to a step's deadline, about three a decade.
		Aggregation: sdkmetric.AggregationExplicitBucketHistogram{Boundaries: []float64{
			0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
		}},
	}, true
}

// boundedView takes off other instruments what anybody outside can choose.
func boundedView(i sdkmetric.Instrument) (sdkmetric.Stream, bool) {
	if !strings.HasPrefix(i.Name, "http.server.") || i.Unit == "s" {
		return sdkmetric.Stream{}, false
	}
	return sdkmetric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit, AttributeFilter: fewValues}, true
}

// fewValues says which attributes become labels. The name of the server is what a caller has written into Host, and so any number of
// values; an order, a key or a message is one of its own each time.
func fewValues(kv attribute.KeyValue) bool {
	switch kv.Key {
	case "server.address", "server.port", OrderID, IdempotencyKey, StepKey, MessagingMessageID:
		return false
	}
	return true
}

func loggerOf(cfg *Config) *slog.Logger {
	if cfg.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return cfg.Logger
}

// Since gives the seconds since a time, for histograms.
func Since(began time.Time) float64 { return time.Since(began).Seconds() }
