package telemetry

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/stats"
)

// ServerHandler returns the stats handler of a gRPC server: spans under the
// caller's trace, and metrics. For grpc.StatsHandler. What is not in serves, which is given the full name of a method, is neither traced nor
// measured: a caller may ask for any number of methods that nobody has. nil is all.
func (t *Telemetry) ServerHandler(serves func(method string) bool) stats.Handler {
	opts := t.grpcOptions()
	if serves != nil {
		opts = append(opts, otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool { return serves(info.FullMethodName) }))
	}
	return otelgrpc.NewServerHandler(opts...)
}

// ClientHandler returns the stats handler of a gRPC client: spans, metrics, and
// the trace context in the outgoing metadata. For grpc.WithStatsHandler.
func (t *Telemetry) ClientHandler() stats.Handler {
	return otelgrpc.NewClientHandler(t.grpcOptions()...)
}

func (t *Telemetry) grpcOptions() []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(t.tracers),
		otelgrpc.WithMeterProvider(t.meters),
		otelgrpc.WithPropagators(Propagator{}),
	}
}

// ServerMiddleware makes the spans and metrics of an HTTP server, under the
// caller's trace if it sent one. The spans are named after the route's pattern once next, a
// http.ServeMux, has found it.
func (t *Telemetry) ServerMiddleware(next http.Handler) http.Handler {
	return otelhttp.NewHandler(routed{next}, "http",
		otelhttp.WithTracerProvider(t.tracers),
		otelhttp.WithMeterProvider(t.meters),
		otelhttp.WithPropagators(Propagator{}),
	)
}

// routed puts the route on the span of a request, once a http.ServeMux has found it.
type routed struct{ next http.Handler }

func (h routed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.next.ServeHTTP(w, r)
	if r.Pattern == "" {
		return
	}
	route := r.Pattern
	if _, path, ok := strings.Cut(route, " "); ok {
		route = path
	}
	trace.SpanFromContext(r.Context()).SetAttributes(semconv.HTTPRoute(route))
}

// ClientTransport makes client spans and metrics of the calls to an outside
// provider. It adds no header: neither trace context nor baggage leaves us. The span of a [Call] is named after its operation, carries what
// the call says, and ends with it. A
// nil base is http.DefaultTransport.
func (t *Telemetry) ClientTransport(base http.RoundTripper, provider string) http.RoundTripper {
	with := func(tracers trace.TracerProvider) http.RoundTripper {
		return otelhttp.NewTransport(base,
			otelhttp.WithTracerProvider(tracers),
			otelhttp.WithMeterProvider(t.meters),
			otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator()), // none at all
			otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return provider + " " + r.Method }),
			otelhttp.WithSpanOptions(trace.WithAttributes(Provider.String(provider))),
		)
	}
	return calls{provider, t.Tracer(tracerName), with(t.tracers), with(noop.NewTracerProvider())}
}

// calls gives the metrics of calls an attribute, and makes the spans of those that are a [Call].
type calls struct {
	provider string
	tracer   trace.Tracer
	traced   http.RoundTripper
	measured http.RoundTripper // makes no spans
}

func (c calls) RoundTrip(r *http.Request) (*http.Response, error) {
	var labels otelhttp.Labeler
	labels.Add(Provider.String(c.provider))
	ctx := otelhttp.ContextWithClientLabeler(r.Context(), &labels)
	call := callOf(ctx)
	if call == nil {
		return c.traced.RoundTrip(r.WithContext(ctx))
	}
	ctx, span := call.send(ctx, c.tracer, c.provider, r)
	resp, err := c.measured.RoundTrip(r.WithContext(ctx))
	told(span, resp, err)
	return resp, err
}

// tracerName names the tracer of the spans that are made here.
const tracerName = "github.com/throughline/throughline/pkg/telemetry"
