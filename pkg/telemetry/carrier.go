package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// MaxTraceState is how many bytes of tracestate are carried: what the W3C text
// asks everyone to propagate at least. A longer one is dropped whole, since a
// client must not be able to make our rows and messages large; the trace stays.
const MaxTraceState = 512

// Carrier is a trace context as it is stored and sent. The zero value carries nothing.
type Carrier struct {
	TraceParent string // W3C traceparent, 55 bytes, or ""
	TraceState  string // W3C tracestate, at most MaxTraceState bytes, or ""
}

// Get, Set and Keys make *Carrier a propagation.TextMapCarrier.

// Get returns the value of one of the two headers.
func (c *Carrier) Get(key string) string {
	switch key {
	case HeaderTraceParent:
		return c.TraceParent
	case HeaderTraceState:
		return c.TraceState
	}
	return ""
}

// Set sets one of the two headers and ignores others.
func (c *Carrier) Set(key, value string) {
	switch key {
	case HeaderTraceParent:
		c.TraceParent = value
	case HeaderTraceState:
		c.TraceState = value
	}
}

// Keys returns the names of both headers.
func (c *Carrier) Keys() []string { return []string{HeaderTraceParent, HeaderTraceState} }

// Inject returns the trace context of ctx, or the zero Carrier if it has none.
func Inject(ctx context.Context) Carrier {
	var c Carrier
	Propagator{}.Inject(ctx, &c)
	return c
}

// Extract returns ctx with the carried trace context as its remote parent. What
// is malformed is ignored, as the W3C text demands: the ctx is then returned as
// it is, never an error.
func Extract(ctx context.Context, c Carrier) context.Context {
	return Propagator{}.Extract(ctx, &c)
}

// LinkFrom returns a link to the carried span, for late deliveries and replays,
// which begin a trace of their own. ok is false if c carries nothing valid.
func LinkFrom(c Carrier) (link trace.Link, ok bool) {
	sc := trace.SpanContextFromContext(Extract(context.Background(), c))
	return trace.Link{SpanContext: sc}, sc.IsValid()
}

// Propagator is the W3C trace context with tracestate bounded to [MaxTraceState].
// It knows no baggage. The zero value is ready to use.
type Propagator struct{ w3c propagation.TraceContext }

var _ propagation.TextMapPropagator = Propagator{}

// Inject writes the trace context of ctx into carrier.
func (p Propagator) Inject(ctx context.Context, carrier propagation.TextMapCarrier) {
	p.w3c.Inject(bounded(ctx), carrier)
}

// Extract reads a trace context from carrier.
func (p Propagator) Extract(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	if len(carrier.Get(HeaderTraceState)) > MaxTraceState {
		// Not parsed at all: an attacker's list costs time as well as room.
		c := Carrier{TraceParent: carrier.Get(HeaderTraceParent)}
		return p.w3c.Extract(ctx, &c)
	}
	return p.w3c.Extract(ctx, carrier)
}

// Fields returns the names of the headers.
func (p Propagator) Fields() []string { return p.w3c.Fields() }

// bounded returns ctx without a tracestate that is too long. It can be: a sampler may have added to it.
func bounded(ctx context.Context) context.Context {
	sc := trace.SpanContextFromContext(ctx)
	if sc.TraceState().Len() == 0 || len(sc.TraceState().String()) <= MaxTraceState {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, sc.WithTraceState(trace.TraceState{}))
}
