//go:build jaeger

package e2e_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/scripts/internal/jaeger"
)

const (
	sampledService = "sampled"
	reasonKept     = "test.why"
)

// TestJaegerKeeps sends traces of one span that have each one reason to be kept, or none, where nothing else is kept: each reason must do alone, since
// a real order that needs a person has an undo and an error, too.
func TestJaegerKeeps(t *testing.T) {
	t.Parallel()
	j := launchJaeger(t, jaeger.Options{KeptPercent: 0, DecisionWait: 2 * time.Second})
	to := sendTo(t, j)
	ctx := system.Context(t, time.Minute)
	// What has none comes first: when the others are there, it has been decided about.
	for _, ordinary := range []*trace.Span{
		{Name: "ordinary"},
		{Name: "completed", Attributes: []*common.KeyValue{text("throughline.saga_state", "completed")}},
		{Name: "an action", Attributes: []*common.KeyValue{truthOf("throughline.undo", false)}},
		{Name: "nobody needed", Attributes: []*common.KeyValue{text("throughline.attention", "")}},
		{Name: "quick", EndTimeUnixNano: uint64((4 * time.Second).Nanoseconds())},
	} {
		send(ctx, t, to, ordinary)
	}
	kept := []*trace.Span{
		{Name: "error", Status: &trace.Status{Code: trace.Status_STATUS_CODE_ERROR}},
		{Name: "compensating", Attributes: []*common.KeyValue{text("throughline.saga_state", "compensating")}},
		{Name: "compensated", Attributes: []*common.KeyValue{text("throughline.saga_state", "compensated")}},
		{Name: "an undo", Attributes: []*common.KeyValue{truthOf("throughline.undo", true)}},
		{Name: "undo refused", Attributes: []*common.KeyValue{text("throughline.attention", "cancel_shipment was refused: already_dispatched")}},
		{Name: "no outcome", Attributes: []*common.KeyValue{text("throughline.attention", "capture_payment has no outcome since 2026-11-30T01:02:03Z")}},
		{Name: "late success", Attributes: []*common.KeyValue{text("throughline.attention", "capture_payment succeeded after the saga had turned back")}},
		{Name: "dead letter", Attributes: []*common.KeyValue{truthOf("throughline.dead_letter", true)}},
		{Name: "slow", EndTimeUnixNano: uint64((6 * time.Second).Nanoseconds())},
	}
	for _, s := range kept {
		send(ctx, t, to, s)
	}
	for _, s := range kept {
		system.Eventually(ctx, t, "the trace kept for "+s.GetName(), func() bool {
			found, err := j.Find(ctx, sampledService, reasonKept, s.GetName())
			if err != nil {
				t.Fatal(err)
			}
			return len(found) == 1
		})
	}
	for _, name := range []string{"ordinary", "completed", "an action", "nobody needed", "quick"} {
		if found, err := j.Find(ctx, sampledService, reasonKept, name); err != nil || len(found) != 0 {
			t.Errorf("%s: got %d traces, %v, want it not kept", name, len(found), err)
		}
	}
}

// send sends a trace of one span, which has ended now; its end is how long it took.
func send(ctx context.Context, t *testing.T, to collector.TraceServiceClient, s *trace.Span) {
	t.Helper()
	ids := make([]byte, 24)
	_, _ = rand.Read(ids) // never fails
	took := s.GetEndTimeUnixNano()
	now := uint64(time.Now().UnixNano()) //nolint:gosec // after 1970
	s.TraceId, s.SpanId, s.StartTimeUnixNano, s.EndTimeUnixNano = ids[:16], ids[16:], now-took, now
	s.Attributes = append(s.Attributes, text(reasonKept, s.GetName()))
	_, err := to.Export(ctx, &collector.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource:   &resource.Resource{Attributes: []*common.KeyValue{text("service.name", sampledService)}},
		ScopeSpans: []*trace.ScopeSpans{{Spans: []*trace.Span{s}}},
	}}})
	if err != nil {
		t.Fatalf("sending %s: %v", s.GetName(), err)
	}
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

func truthOf(key string, value bool) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: value}}}
}
