package e2e_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestOneTrace collects the spans of one order, and finds one connected tree over all services.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := system.Start(t, system.Options{Environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.addr}})
	ctx := system.Context(t, time.Minute)
	const key = "traced"
	a, err := s.Storefront().Place(ctx, key, system.Order{})
	if err != nil {
		t.Fatal(err)
	}
	if last := awaitRest(ctx, t, s.Storefront(), a.Order.ID); last.Order.Status != verify.Confirmed {
		t.Fatalf("order: got %s, want CONFIRMED", last.Order.Status)
	}
	if status := s.Stop(); status != 0 { // flushes the spans
		t.Fatalf("exit status: got %d, want 0", status)
	}

	spans := c.traceOf(t, "POST /v1/orders", "throughline.idempotency_key", key)
	byID := make(map[string]span, len(spans))
	for _, sp := range spans {
		byID[string(sp.GetSpanId())] = sp
	}
	var roots []string
	services := make(map[string]int)
	for _, sp := range spans {
		services[sp.service]++
		switch _, known := byID[string(sp.GetParentSpanId())]; {
		case len(sp.GetParentSpanId()) == 0:
			roots = append(roots, sp.String())
		case !known:
			t.Errorf("%s has a parent that is not in the trace", sp)
		}
		for attr, want := range map[string]string{"throughline.order_id": a.Order.ID, "throughline.idempotency_key": key} {
			if got := sp.attribute(attr); got != want {
				t.Errorf("%s: %s is %q, want %q", sp, attr, got, want)
			}
		}
	}
	if len(roots) != 1 {
		t.Errorf("roots: got %q, want one", roots)
	}
	for _, service := range []string{"gateway", "order", "payment", "shipping"} {
		if services[service] == 0 {
			t.Errorf("no span of %s; spans by service: %v", service, services)
		}
	}
	for _, want := range []string{
		"send cmd.payment.authorize_payment", "process cmd.payment.authorize_payment", "send rpl.order.place-order",
		"send cmd.shipping.create_shipment", "send cmd.payment.capture_payment", "send cmd.shipping.dispatch_shipment", "send evt.order.confirmed",
	} {
		if !slices.ContainsFunc(spans, func(sp span) bool { return sp.GetName() == want }) {
			t.Errorf("no span %q", want)
		}
	}
}

type span struct {
	*trace.Span
	service string
}

func (s span) String() string { return s.service + ": " + s.GetName() }

func (s span) attribute(key string) string { return valueOf(s.GetAttributes(), key) }

func valueOf(attributes []*common.KeyValue, key string) string {
	for _, a := range attributes {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// spanCollector is an OTLP collector that keeps what it gets.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	addr string
	// next get what is kept, too.
	next []collector.TraceServiceClient

	mu    sync.Mutex // guards spans
	spans []span
}

func newCollector(tb testing.TB) *spanCollector {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	c := &spanCollector{addr: l.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() {
		if err := server.Serve(l); err != nil {
			fmt.Println("collector:", err)
		}
	}()
	tb.Cleanup(server.Stop)
	return c
}

// Export keeps spans.
func (c *spanCollector) Export(ctx context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, next := range c.next {
		if _, err := next.Export(ctx, r); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range r.GetResourceSpans() {
		service := serviceOf(rs.GetResource())
		for _, ss := range rs.GetScopeSpans() {
			for _, sp := range ss.GetSpans() {
				c.spans = append(c.spans, span{sp, service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func serviceOf(r *resource.Resource) string { return valueOf(r.GetAttributes(), "service.name") }

// traceOf gives all spans of the one trace in which a span of that name has the attribute. The reads of the order are traces of
// their own.
func (c *spanCollector) traceOf(tb testing.TB, name, key, value string) []span {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := make(map[string]bool)
	for _, sp := range c.spans {
		if sp.GetName() == name && sp.attribute(key) == value {
			ids[string(sp.GetTraceId())] = true
		}
	}
	if len(ids) != 1 {
		tb.Fatalf("traces with %s = %s: got %d, want 1 (%d spans in all)", key, value, len(ids), len(c.spans))
	}
	var spans []span
	for _, sp := range c.spans {
		if ids[string(sp.GetTraceId())] {
			spans = append(spans, sp)
		}
	}
	return spans
}

// find is a finder.
func (c *spanCollector) find(_ context.Context, attribute, value string) ([][]seen, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	traces := make(map[string][]seen)
	wanted := make(map[string]bool)
	for _, sp := range c.spans {
		s := sp.seen()
		traces[s.trace] = append(traces[s.trace], s)
		wanted[s.trace] = wanted[s.trace] || s.attributes[attribute] == value
	}
	var found [][]seen
	for id, spans := range traces {
		if wanted[id] {
			found = append(found, spans)
		}
	}
	return found, nil
}

func (s span) seen() seen {
	to := seen{
		service: s.service, name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()),
		parent: hex.EncodeToString(s.GetParentSpanId()), attributes: make(map[string]string),
	}
	for _, a := range s.GetAttributes() {
		to.attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	for _, l := range s.GetLinks() {
		to.links = append(to.links, spot{hex.EncodeToString(l.GetTraceId()), hex.EncodeToString(l.GetSpanId())})
	}
	return to
}

// TestStories plays orders that go right and wrong, and finds each of them by its key and by its id: whole, in one trace, with everything under
// what led to it, and what came again with a link to what came first. The same system then serves each metric of the table, and no other.
func TestStories(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	w := newWorld(t, system.Options{Environ: tracedTo(c)})
	ctx := system.Context(t, patienceForTraces)
	stories := playStories(ctx, t, w)
	checkStories(ctx, t, stories, c.find)
	checkMetrics(ctx, t, w, stories)
	checkExemplars(ctx, t, w)
}

// tracedTo is the environment of a system that sends its spans to a collector, and soon.
func tracedTo(c *spanCollector) []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.addr, "OTEL_BSP_SCHEDULE_DELAY=200"}
}
