package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/throughline/throughline/pkg/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup returns telemetry that is shut down with the test.
func setup(t *testing.T, cfg telemetry.Config) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.Setup(t.Context(), cfg)
	if err != nil {
		t.Fatalf("setting up: %v", err)
	}
	t.Cleanup(func() {
		if err := tel.Shutdown(context.Background()); err != nil {
			t.Errorf("shutting down: %v", err)
		}
	})
	return tel
}

// spans flushes and returns what was exported.
func spans(t *testing.T, tel *telemetry.Telemetry, e *tracetest.InMemoryExporter) tracetest.SpanStubs {
	t.Helper()
	if err := tel.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e.GetSpans()
}

func attr(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.AsString()
		}
	}
	return ""
}

func TestAttributesReachEverySpan(t *testing.T) {
	t.Parallel()
	e := tracetest.NewInMemoryExporter()
	tel := setup(t, telemetry.Config{ServiceName: "order", Exporter: e})
	tr := tel.Tracer("test")

	ctx, outer := tr.Start(t.Context(), "outer")
	ctx = telemetry.WithAttributes(ctx, telemetry.OrderID.String("o-1"), telemetry.Step.String("first"))
	ctx = telemetry.WithAttributes(ctx, telemetry.Step.String("second"))
	_, inner := tr.Start(ctx, "inner")
	inner.End()
	outer.End()
	_, other := tr.Start(t.Context(), "other")
	other.End()

	got := spans(t, tel, e)
	if len(got) != 3 {
		t.Fatalf("got %d spans, want 3", len(got))
	}
	for i, want := range []struct{ name, order, step string }{{"inner", "o-1", "second"}, {"outer", "o-1", "second"}, {"other", "", ""}} {
		s := got[i]
		if s.Name != want.name || attr(s, telemetry.OrderID) != want.order || attr(s, telemetry.Step) != want.step {
			t.Errorf("got %s with %v, want %+v", s.Name, s.Attributes, want)
		}
	}
	if got[0].Parent.SpanID() != got[1].SpanContext.SpanID() {
		t.Errorf("got parent %v, want outer", got[0].Parent.SpanID())
	}
	if got[2].SpanContext.TraceID() == got[1].SpanContext.TraceID() {
		t.Error("got other in the same trace, want one of its own")
	}
}

func TestWithoutExporterOneTraceID(t *testing.T) {
	t.Parallel()
	tel := setup(t, telemetry.Config{ServiceName: "order"})
	if tel.Exporting() {
		t.Error("got exporting, want not")
	}
	tr := tel.Tracer("test")

	ctx, root := tr.Start(t.Context(), "root")
	sc := root.SpanContext()
	if !sc.IsValid() || sc.IsSampled() || root.IsRecording() {
		t.Errorf("got %+v recording %v, want valid, neither sampled nor recorded", sc, root.IsRecording())
	}
	_, child := tr.Start(ctx, "child")
	if !child.SpanContext().Equal(sc) {
		t.Errorf("got child %v, want its parent's %v", child.SpanContext(), sc)
	}
	stored := telemetry.Inject(ctx)
	if !strings.Contains(stored.TraceParent, sc.TraceID().String()) {
		t.Errorf("got %q, want the trace %s", stored.TraceParent, sc.TraceID())
	}
	if _, other := tr.Start(t.Context(), "other"); other.SpanContext().TraceID() == sc.TraceID() {
		t.Error("got the same trace id for another root")
	}
	if _, replay := tr.Start(ctx, "replay", trace.WithNewRoot()); replay.SpanContext().TraceID() == sc.TraceID() {
		t.Error("got the parent's trace for a new root")
	}
	// What came in goes on as it came.
	ctx = telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: parent, TraceState: "a=1"})
	ctx, span := tr.Start(ctx, "incoming")
	defer span.End()
	if got, want := telemetry.Inject(ctx), (telemetry.Carrier{TraceParent: parent, TraceState: "a=1"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNothingGlobal(t *testing.T) {
	t.Parallel()
	tracers, meters, fields := otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator().Fields()
	tel := setup(t, telemetry.Config{ServiceName: "a", Exporter: tracetest.NewInMemoryExporter()})
	setup(t, telemetry.Config{ServiceName: "b", Exporter: tracetest.NewInMemoryExporter()})
	if otel.GetTracerProvider() != tracers || otel.GetMeterProvider() != meters || len(otel.GetTextMapPropagator().Fields()) != len(fields) {
		t.Error("got other global providers after Setup")
	}
	if otel.GetTracerProvider() == tel.TracerProvider() {
		t.Error("got our provider as the global one")
	}
}

// grpcPair serves the health service under server's telemetry and returns a
// client under client's. seen gets the metadata of each call; stop returns when
// all calls have ended on the server too.
func grpcPair(t *testing.T, server, client *telemetry.Telemetry, seen *metadata.MD) (c grpc_health_v1.HealthClient, stop func()) {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(grpc.StatsHandler(server.ServerHandler(nil)), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			*seen, _ = metadata.FromIncomingContext(ctx)
			ctx = telemetry.WithAttributes(ctx, telemetry.OrderID.String("o-1"))
			return next(ctx, req)
		}))
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///buf", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithStatsHandler(client.ClientHandler()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn), srv.GracefulStop
}

func TestGRPCIsOneTrace(t *testing.T) {
	t.Parallel()
	e := tracetest.NewInMemoryExporter()
	client := setup(t, telemetry.Config{ServiceName: "gateway", Exporter: e})
	server := setup(t, telemetry.Config{ServiceName: "order", Exporter: e})
	var seen metadata.MD
	c, stop := grpcPair(t, server, client, &seen)
	if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	stop() // the server's span may end after the client has its answer
	spans(t, client, e)
	byKind := map[trace.SpanKind]tracetest.SpanStub{}
	for _, s := range spans(t, server, e) {
		byKind[s.SpanKind] = s
	}
	in, out := byKind[trace.SpanKindServer], byKind[trace.SpanKindClient]
	if in.SpanContext.TraceID() != out.SpanContext.TraceID() || in.Parent.SpanID() != out.SpanContext.SpanID() {
		t.Errorf("got server span %v under %v, want it under %v", in.SpanContext, in.Parent, out.SpanContext)
	}
	if got := attr(in, telemetry.OrderID); got != "o-1" {
		t.Errorf("got order id %q on the server's span, want o-1", got)
	}
	if len(seen.Get("baggage")) != 0 {
		t.Errorf("got baggage %v, want none", seen.Get("baggage"))
	}
}

func TestGRPCWithoutExportersIsOneTrace(t *testing.T) {
	t.Parallel()
	tel := setup(t, telemetry.Config{ServiceName: "gateway"})
	var seen metadata.MD
	c, _ := grpcPair(t, tel, tel, &seen)
	ctx, root := tel.Tracer("test").Start(t.Context(), "root")
	defer root.End()
	if _, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if got, want := seen.Get("traceparent"), telemetry.Inject(ctx).TraceParent; len(got) != 1 || got[0] != want {
		t.Errorf("got traceparent %v, want %s", got, want)
	}
}

func TestClientTransportTellsNothing(t *testing.T) {
	t.Parallel()
	e := tracetest.NewInMemoryExporter()
	tel := setup(t, telemetry.Config{ServiceName: "payment", Exporter: e})
	headers := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(srv.Close)
	ctx, root := tel.Tracer("test").Start(t.Context(), "root")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/payment_intents", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tel.ClientTransport(srv.Client().Transport, "stripe").RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	root.End()
	h := <-headers
	for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
		if h.Get(name) != "" {
			t.Errorf("got %s %q, want none", name, h.Get(name))
		}
	}
	const measured = `http_client_request_duration_seconds_count{`
	count := ""
	for line := range strings.Lines(scrape(t, tel.MetricsHandler())) {
		if strings.HasPrefix(line, measured) {
			count += line
		}
	}
	if !strings.Contains(count, `="stripe"`) {
		t.Errorf("got %q, want the call's duration with its provider", count)
	}
	got := spans(t, tel, e)
	if len(got) != 2 || got[0].Name != "stripe POST" || attr(got[0], telemetry.Provider) != "stripe" || got[0].SpanKind != trace.SpanKindClient {
		t.Fatalf("got spans %+v, want a client span of stripe under root", got)
	}
	if got[0].Parent.SpanID() != root.SpanContext().SpanID() {
		t.Errorf("got parent %v, want root", got[0].Parent)
	}
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("got status %d, want 200: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	a := setup(t, telemetry.Config{ServiceName: "a"})
	b := setup(t, telemetry.Config{ServiceName: "b"})
	orders, err := a.Meter("test").Int64Counter("throughline.orders")
	if err != nil {
		t.Fatal(err)
	}
	orders.Add(t.Context(), 3)
	wait, err := a.Meter("test").Float64Histogram("throughline.wait", metric.WithUnit("s"))
	if err != nil {
		t.Fatal(err)
	}
	wait.Record(t.Context(), 0.003)
	got := scrape(t, a.MetricsHandler())
	for _, want := range []string{
		"throughline_orders_total 3\n",
		`throughline_wait_seconds_bucket{le="0.0025"} 0` + "\n",
		`throughline_wait_seconds_bucket{le="0.005"} 1` + "\n",
		"go_goroutine_count ",
		`service_name="a"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got no %q in\n%s", want, got)
		}
	}
	if got := scrape(t, b.MetricsHandler()); strings.Contains(got, "throughline_orders_total") {
		t.Error("got a's metric in b's answer")
	}
}

// fakeCollector is an OTLP collector that keeps what it is sent.
type fakeCollector struct {
	collector.UnimplementedTraceServiceServer
	got chan *collector.ExportTraceServiceRequest
}

func (c *fakeCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.got <- r
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestOTLP(t *testing.T) {
	t.Parallel()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeCollector{got: make(chan *collector.ExportTraceServiceRequest, 1)}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, fake)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	tel := setup(t, telemetry.Config{ServiceName: "order", Instance: "order-1", OTLPEndpoint: "http://" + lis.Addr().String()})
	_, span := tel.Tracer("test").Start(t.Context(), "hop")
	span.End()
	if err := tel.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := (<-fake.got).ResourceSpans[0]
	if got := r.ScopeSpans[0].Spans[0].Name; got != "hop" {
		t.Errorf("got span %q, want hop", got)
	}
	attrs := map[string]string{}
	for _, a := range r.Resource.Attributes {
		attrs[a.Key] = a.Value.GetStringValue()
	}
	if attrs["service.name"] != "order" || attrs["service.instance.id"] != "order-1" {
		t.Errorf("got resource %v, want service order, instance order-1", attrs)
	}
}

func TestEndpointWithoutScheme(t *testing.T) {
	t.Parallel()
	_, err := telemetry.Setup(t.Context(), telemetry.Config{OTLPEndpoint: "localhost:4317"})
	if !errors.Is(err, telemetry.ErrEndpoint) {
		t.Errorf("got %v, want %v", err, telemetry.ErrEndpoint)
	}
}

// brokenExporter is a collector that is away.
type brokenExporter struct{ sdktrace.SpanExporter }

func (brokenExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("connection refused")
}
func (brokenExporter) Shutdown(context.Context) error { return nil }

func TestFailedExportIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	tel := setup(t, telemetry.Config{ServiceName: "order", Exporter: brokenExporter{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		_, span := tel.Tracer("test").Start(t.Context(), "hop")
		span.End()
		if err := tel.Flush(t.Context()); err != nil {
			t.Errorf("got %v, want a failed export to be nobody's error", err)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "connection refused") {
		t.Errorf("got log %q, want one line about the refused connection", got)
	}
}

func TestSampler(t *testing.T) {
	t.Parallel()
	e := tracetest.NewInMemoryExporter()
	tel := setup(t, telemetry.Config{ServiceName: "order", Exporter: e, Sampler: telemetry.SampleRatio(0)})
	ctx, root := tel.Tracer("test").Start(t.Context(), "root")
	root.End()
	if !root.SpanContext().IsValid() || telemetry.Inject(ctx).TraceParent == "" {
		t.Error("got no trace id for an unsampled root, want one")
	}
	_, span := tel.Tracer("test").Start(telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: parent}), "sampled by its parent")
	span.End()
	if got := spans(t, tel, e); len(got) != 1 || got[0].Name != "sampled by its parent" {
		t.Errorf("got %v, want the one with a sampled parent", got)
	}
}

func TestServerMiddleware(t *testing.T) {
	t.Parallel()
	e := tracetest.NewInMemoryExporter()
	tel := setup(t, telemetry.Config{ServiceName: "gateway", Exporter: e})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, telemetry.Inject(r.Context()).TraceParent)
	})
	for _, header := range []string{parent, "x"} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/orders/1", nil)
		req.Header.Set("Traceparent", header)
		w := httptest.NewRecorder()
		tel.ServerMiddleware(mux).ServeHTTP(w, req)
		got := w.Body.String()
		if w.Code != http.StatusOK || len(got) != 55 || strings.Contains(got, parent[3:35]) != (header == parent) {
			t.Errorf("traceparent %q: got %d in trace %q, want 200 in the incoming trace if it is valid, else in a new one", header, w.Code, got)
		}
	}
	if got := spans(t, tel, e); len(got) != 2 || !strings.Contains(got[0].Name, "/v1/orders/{id}") {
		t.Errorf("got %v, want two spans named after the route", got)
	}
}

func BenchmarkSpanWithoutExporter(b *testing.B) {
	tel, err := telemetry.Setup(b.Context(), telemetry.Config{})
	if err != nil {
		b.Fatal(err)
	}
	tr := tel.Tracer("bench")
	b.Run("root", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, span := tr.Start(b.Context(), "root")
			span.End()
		}
	})
	b.Run("child", func(b *testing.B) {
		ctx, root := tr.Start(b.Context(), "root")
		defer root.End()
		b.ReportAllocs()
		for b.Loop() {
			_, span := tr.Start(ctx, "child")
			span.End()
		}
	})
}
