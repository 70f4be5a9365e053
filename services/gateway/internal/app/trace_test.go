package app_test

import (
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/telemetry"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// exported answers the spans of the requests so far, and forgets them.
func (e *edge) exported() tracetest.SpanStubs {
	e.t.Helper()
	if err := e.tel.Flush(e.t.Context()); err != nil {
		e.t.Fatalf("flushing: %v", err)
	}
	spans := e.spans.GetSpans()
	e.spans.Reset()
	return spans
}

func attributeOf(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.AsString()
		}
	}
	return ""
}

func TestTrace(t *testing.T) {
	t.Parallel()
	e := start(t)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	e.created(e.create("k", r0, "Traceparent", parent, "Tracestate", "a=1"), false)
	got := e.last(t).md.Get("traceparent")
	if len(got) != 1 || !strings.HasPrefix(got[0], "00-0af7651916cd43dd8448eb211c80319c-") || got[0] == parent {
		t.Errorf("traceparent at the order service: got %v, want a child in the caller's trace", got)
	}
	if got := e.last(t).md.Get("tracestate"); len(got) != 1 || got[0] != "a=1" {
		t.Errorf("tracestate at the order service: got %v, want a=1", got)
	}
	spans := e.exported()
	if len(spans) != 2 {
		t.Fatalf("got %d spans, want one of the HTTP server and one of the gRPC client", len(spans))
	}
	client, server := spans[0], spans[1]
	if server.SpanKind != trace.SpanKindServer || server.Name != "POST /v1/orders" || server.Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("server span: got %q, kind %v under %s", server.Name, server.SpanKind, server.Parent.SpanID())
	}
	if client.Parent.SpanID() != server.SpanContext.SpanID() || !strings.Contains(got[0], client.SpanContext.SpanID().String()) {
		t.Errorf("client span: got parent %s and sent %v, want %s and itself", client.Parent.SpanID(), got, server.SpanContext.SpanID())
	}
	id := keys.OrderID("storefront", "k").String()
	for _, s := range spans {
		if got := attributeOf(s, telemetry.OrderID); got != id {
			t.Errorf("%s: got order id %q, want %q", s.Name, got, id)
		}
		if got := attributeOf(s, telemetry.IdempotencyKey); got != "k" {
			t.Errorf("%s: got key %q, want k", s.Name, got)
		}
		if got := attributeOf(s, telemetry.ClientID); got != "storefront" {
			t.Errorf("%s: got client %q, want storefront", s.Name, got)
		}
	}
}

// Trace headers that are broken or hostile change nothing but the trace.
func TestHostileTraceHeaders(t *testing.T) {
	t.Parallel()
	e := start(t)
	members := strings.TrimSuffix(strings.Repeat("m=1,", 70), ",")
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tests := [][]string{
		{},
		{"Traceparent", "x"},
		{"Traceparent", "00-00000000000000000000000000000000-0000000000000000-01"},
		{"Traceparent", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{"Traceparent", valid, "Traceparent", "00-11111111111111111111111111111111-2222222222222222-01"},
		{"Traceparent", strings.ToUpper(valid)},
		{"Traceparent", valid + "-extra"},
		{"Traceparent", valid, "Tracestate", strings.Repeat("a", 4000)},
		{"Traceparent", valid, "Tracestate", "=,=,\xff"},
		{"Baggage", members},
		{"Baggage", strings.Repeat("a", 4500), "Baggage", strings.Repeat("b", 4500)},
		{"Baggage", "k=%zz"},
		{"Traceparent", "\xff\xfe"},
	}
	var body string
	for i, header := range tests {
		a := e.create("k", r0, header...)
		e.created(a, i > 0)
		if i == 0 {
			body = a.body
		}
		if a.body != body {
			t.Errorf("with %v: got another body", header)
		}
		md := e.last(t).md
		sc := trace.SpanContextFromContext(telemetry.Extract(t.Context(), telemetry.Carrier{
			TraceParent: strings.Join(md.Get("traceparent"), "|")}))
		if !sc.IsValid() {
			t.Errorf("with %v: the order service got traceparent %v, want a valid one", header, md.Get("traceparent"))
		}
		if got := strings.Join(md.Get("tracestate"), ","); len(got) > telemetry.MaxTraceState {
			t.Errorf("with %v: the order service got %d bytes of tracestate", header, len(got))
		}
		if got := md.Get("baggage"); len(got) != 0 {
			t.Errorf("with %v: the order service got baggage %v, want none", header, got)
		}
	}
}
