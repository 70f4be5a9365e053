package telemetry_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/grpc"

	"github.com/throughline/throughline/pkg/telemetry"
)

func TestParseRatio(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		sampler, arg string
		want         float64
		refused      bool
	}{
		{"", "", 1, false},
		{telemetry.SamplerAlwaysOn, "0.1", 1, false},
		{telemetry.SamplerAlwaysOff, "", 0, false},
		{telemetry.SamplerRatio, "0.25", 0.25, false},
		{telemetry.SamplerRatio, "", 1, false},
		{telemetry.SamplerRatio, "1.1", 0, true},
		{telemetry.SamplerRatio, "NaN", 0, true},
		{telemetry.SamplerRatio, "many", 0, true},
		{"traceidratio", "0.5", 0, true}, // tears traces apart
		{"always_on", "", 0, true},
	} {
		got, err := telemetry.ParseRatio(tc.sampler, tc.arg)
		if got != tc.want || errors.Is(err, telemetry.ErrSampler) != tc.refused {
			t.Errorf("%q %q: got %v, %v, want %v, refused %v", tc.sampler, tc.arg, got, err, tc.want, tc.refused)
		}
	}
}

// Who comes after the edge follows it. At the edge a caller that records nothing of its own does not keep us from recording.
func TestSamplersFollowTheirParents(t *testing.T) {
	t.Parallel()
	const sampled, unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	for _, tc := range []struct {
		name    string
		sampler sdktrace.Sampler
		parent  string
		want    bool
	}{
		{"inside, sampled", telemetry.SampleRatio(0), sampled, true},
		{"inside, not sampled", telemetry.SampleRatio(1), unsampled, false},
		{"inside, no parent", telemetry.SampleRatio(1), "", true},
		{"inside, no parent, none", telemetry.SampleRatio(0), "", false},
		{"edge, sampled", telemetry.SampleAtEdge(0), sampled, true},
		{"edge, not sampled", telemetry.SampleAtEdge(1), unsampled, true},
		{"edge, not sampled, none", telemetry.SampleAtEdge(0), unsampled, false},
	} {
		tel := setup(t, telemetry.Config{ServiceName: "s", Exporter: tracetest.NewInMemoryExporter(), Sampler: tc.sampler})
		ctx := telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: tc.parent})
		_, span := tel.Tracer("t").Start(ctx, "span")
		if got := span.SpanContext().IsSampled(); got != tc.want {
			t.Errorf("%s: got sampled %v, want %v", tc.name, got, tc.want)
		}
		span.End()
	}
}

// A measurement in a sampled trace is an example that leads to it, and what anybody outside can choose is no label.
func TestExemplarsAndBoundedLabels(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	tel := setup(t, telemetry.Config{ServiceName: "s", Exporter: tracetest.NewInMemoryExporter(), MetricReader: reader})
	h, err := tel.Meter("t").Float64Histogram("http.server.request.duration", metric.WithUnit("s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := tel.Tracer("t").Start(t.Context(), "span")
	h.Record(ctx, 0.2, metric.WithAttributes(telemetry.OrderID.String("o-1"), telemetry.Step.String("first")))
	span.End()
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	points := histogram(t, &rm, "http.server.request.duration")
	if len(points) != 1 || points[0].Attributes.Len() != 1 || len(points[0].Exemplars) != 1 {
		t.Fatalf("got %+v, want one point with the label of the step alone, and one example", points)
	}
	want := span.SpanContext().TraceID()
	if got := trace.TraceID(points[0].Exemplars[0].TraceID); got != want {
		t.Errorf("example: got trace %s, want %s", got, want)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	w := httptest.NewRecorder()
	tel.MetricsHandler().ServeHTTP(w, r)
	if body := w.Body.String(); !strings.Contains(body, `trace_id="`+want.String()+`"`) {
		t.Errorf("/metrics for OpenMetrics: no trace id in\n%s", body)
	}
}

func histogram(t *testing.T, rm *metricdata.ResourceMetrics, name string) []metricdata.HistogramDataPoint[float64] {
	t.Helper()
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == name {
				return h.DataPoints
			}
		}
	}
	t.Fatalf("no histogram %s", name)
	return nil
}

type metricCollector struct {
	collectmetrics.UnimplementedMetricsServiceServer
	got chan string
}

// Export tells the name of each metric.
func (c *metricCollector) Export(_ context.Context, r *collectmetrics.ExportMetricsServiceRequest) (*collectmetrics.ExportMetricsServiceResponse, error) {
	for _, rm := range r.GetResourceMetrics() {
		for _, sm := range rm.GetScopeMetrics() {
			for _, m := range sm.GetMetrics() {
				select {
				case c.got <- m.GetName():
				default:
				}
			}
		}
	}
	return &collectmetrics.ExportMetricsServiceResponse{}, nil
}

// What is served at /metrics goes by OTLP, too, where that is asked for.
func TestMetricsByOTLP(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &metricCollector{got: make(chan string, 1000)}
	server := grpc.NewServer()
	collectmetrics.RegisterMetricsServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{ServiceName: "s", OTLPEndpoint: "http://" + l.Addr().String(), OTLPMetrics: true})
	if err != nil {
		t.Fatal(err)
	}
	counter, err := tel.Meter("t").Int64Counter("throughline.test")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 1)
	if err := tel.Shutdown(t.Context()); err != nil { // sends what is left
		t.Fatal(err)
	}
	server.Stop()
	<-served
	close(c.got)
	found := make(map[string]bool)
	for name := range c.got {
		found[name] = true
	}
	for _, want := range []string{"throughline.test", "go.goroutine.count"} {
		if !found[want] {
			t.Errorf("%s was not sent; got %v", want, found)
		}
	}
}
