package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/telemetry"
)

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// states returns a valid tracestate of n bytes.
func states(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		key := fmt.Sprintf("k%d=", i)
		b.WriteString(key + strings.Repeat("v", max(1, min(100, n-b.Len()-len(key)))))
	}
	return b.String()
}

func TestExtract(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		carrier telemetry.Carrier
		want    telemetry.Carrier // what Inject gives back
	}{
		{"nothing", telemetry.Carrier{}, telemetry.Carrier{}},
		{"valid", telemetry.Carrier{TraceParent: parent}, telemetry.Carrier{TraceParent: parent}},
		{"not sampled", telemetry.Carrier{TraceParent: parent[:53] + "00"}, telemetry.Carrier{TraceParent: parent[:53] + "00"}},
		{"with state", telemetry.Carrier{TraceParent: parent, TraceState: "a=1,b=2"}, telemetry.Carrier{TraceParent: parent, TraceState: "a=1,b=2"}},
		{"longest state", telemetry.Carrier{TraceParent: parent, TraceState: states(512)}, telemetry.Carrier{TraceParent: parent, TraceState: states(512)}},
		{"state too long", telemetry.Carrier{TraceParent: parent, TraceState: states(513)}, telemetry.Carrier{TraceParent: parent}},
		{"state malformed", telemetry.Carrier{TraceParent: parent, TraceState: "===,,"}, telemetry.Carrier{TraceParent: parent}},
		{"state alone", telemetry.Carrier{TraceState: "a=1"}, telemetry.Carrier{}},
		{"malformed", telemetry.Carrier{TraceParent: "x"}, telemetry.Carrier{}},
		{"zero trace id", telemetry.Carrier{TraceParent: "00-00000000000000000000000000000000-00f067aa0ba902b7-01"}, telemetry.Carrier{}},
		{"zero span id", telemetry.Carrier{TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"}, telemetry.Carrier{}},
		{"version ff", telemetry.Carrier{TraceParent: "ff" + parent[2:]}, telemetry.Carrier{}},
		{"upper case", telemetry.Carrier{TraceParent: strings.ToUpper(parent)}, telemetry.Carrier{}},
		{"text behind", telemetry.Carrier{TraceParent: parent + "-00"}, telemetry.Carrier{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx := telemetry.Extract(t.Context(), tc.carrier)
			if got := trace.SpanContextFromContext(ctx).TraceState().String(); got != tc.want.TraceState {
				t.Errorf("got state %q in the context, want %q", got, tc.want.TraceState)
			}
			if got := telemetry.Inject(ctx); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			link, ok := telemetry.LinkFrom(tc.carrier)
			if want := tc.want.TraceParent != ""; ok != want || link.SpanContext.IsValid() != want {
				t.Errorf("got link %v, %v, want %v", link.SpanContext, ok, want)
			}
		})
	}
	if n := len(states(513)); n != 513 {
		t.Errorf("got a state of %d bytes, want 513", n)
	}
}

func TestMalformedKeepsTheContext(t *testing.T) {
	t.Parallel()
	ctx := telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: parent})
	if got := telemetry.Inject(telemetry.Extract(ctx, telemetry.Carrier{TraceParent: "x"})).TraceParent; got != parent {
		t.Errorf("got %q, want %q", got, parent)
	}
}

func TestStateAddedHereIsBounded(t *testing.T) {
	t.Parallel()
	state, err := trace.ParseTraceState(states(600))
	if err != nil {
		t.Fatal(err)
	}
	sc := trace.SpanContextFromContext(telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: parent})).WithTraceState(state)
	got := telemetry.Inject(trace.ContextWithSpanContext(t.Context(), sc))
	if want := (telemetry.Carrier{TraceParent: parent}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNoBaggage(t *testing.T) {
	t.Parallel()
	member, err := baggage.NewMember("card", "4242")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	ctx := baggage.ContextWithBaggage(telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: parent}), bag)
	out := propagation.MapCarrier{}
	telemetry.Propagator{}.Inject(ctx, out)
	if len(out) != 1 || out["traceparent"] != parent {
		t.Errorf("got headers %v, want traceparent alone", out)
	}
	in := propagation.MapCarrier{"baggage": "card=4242", "traceparent": parent}
	if n := baggage.FromContext(telemetry.Propagator{}.Extract(t.Context(), in)).Len(); n != 0 {
		t.Errorf("got %d members, want none", n)
	}
}

func FuzzExtract(f *testing.F) {
	f.Add(parent, "a=1")
	f.Add("x", "===,")
	f.Add("ff"+parent[2:], states(600))
	f.Fuzz(func(t *testing.T, traceParent, traceState string) {
		ctx := telemetry.Extract(context.Background(), telemetry.Carrier{TraceParent: traceParent, TraceState: traceState})
		got := telemetry.Inject(ctx)
		if len(got.TraceState) > telemetry.MaxTraceState || len(got.TraceParent) > 55 {
			t.Fatalf("got %+v, want it bounded", got)
		}
		// What is stored is read back as the same.
		if again := telemetry.Inject(telemetry.Extract(context.Background(), got)); again != got {
			t.Fatalf("got %+v, want %+v", again, got)
		}
	})
}

func ExampleInject() {
	// In the handler of a request: what goes into the outbox row.
	ctx := telemetry.Extract(context.Background(), telemetry.Carrier{
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	})
	stored := telemetry.Inject(ctx)

	// Later, in another process: the same trace goes on.
	later := telemetry.Extract(context.Background(), stored)
	fmt.Println(trace.SpanContextFromContext(later).TraceID())
	// Output: 4bf92f3577b34da6a3ce929d0e0e4736
}
