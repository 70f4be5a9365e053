package messaging

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/telemetry"
)

// from is the trace that the messages here belong to.
const from = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// newTracer gives a tracer as a service has one, and what it makes.
func newTracer(t *testing.T) (trace.Tracer, func() tracetest.SpanStubs) {
	t.Helper()
	e := tracetest.NewInMemoryExporter()
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{ServiceName: "test", Exporter: e, Sampler: sdktrace.AlwaysSample()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(context.WithoutCancel(t.Context())) })
	return tel.Tracer("test"), func() tracetest.SpanStubs {
		t.Helper()
		if err := tel.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return e.GetSpans()
	}
}

func traced() Message {
	return Message{
		ID: uuid.Must(uuid.NewV7()), Subject: "cmd.payment.authorize_payment", AggregateID: uuid.New(), IdempotencyKey: "k", StepName: "authorize_payment",
		StepKey: uuid.New(), TraceParent: from, Payload: []byte("x"),
	}
}

func value(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// brokered stands for a message of the broker.
type brokered struct{ jetstream.Msg }

// A delivery is in the trace of the publish, and says so in the words of the conventions. What comes again, late, or not from the broker links
// to it; only what is late or replayed is in another trace.
func TestDeliveriesInTheirTrace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		name     string
		attempt  uint64
		stored   time.Time
		raw      jetstream.Msg
		relation string
		same     bool // the trace of the publish
	}{
		{"prompt", 1, now.Add(-time.Second), brokered{}, "", true},
		{"redelivered", 3, now.Add(-time.Minute), brokered{}, telemetry.RelationRedelivery, true},
		{"late", 1, now.Add(-LateAfter - time.Second), brokered{}, telemetry.RelationLate, false},
		{"not quite late", 1, now.Add(-LateAfter + time.Second), brokered{}, "", true},
		{"replayed", 9, now.Add(-time.Hour), nil, telemetry.RelationReplay, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tracer, spans := newTracer(t)
			d := Delivery{Message: traced(), Attempt: tc.attempt, StoredAt: tc.stored, raw: tc.raw, consumer: "payment-commands", arrived: now}
			acting, action := tracer.Start(t.Context(), "what the process is at")
			ctx, span := StartProcess(acting, tracer, &d)
			_, inner := tracer.Start(ctx, "inner")
			inner.End()
			span.End()
			_, again := StartProcess(acting, tracer, &d) // the batch is tried again
			again.End()
			action.End()

			got := spans()
			if len(got) != 5 {
				t.Fatalf("got %d spans, want one of the receipt, two of the processing, one within, and that of the process", len(got))
			}
			receive, within, process := got[0], got[1], got[2]
			if receive.Name != "receive "+d.Subject || receive.SpanKind != trace.SpanKindClient || !receive.StartTime.Equal(now) {
				t.Errorf("receipt: got %s, %s since %s, want the client's since the arrival", receive.Name, receive.SpanKind, receive.StartTime)
			}
			if process.Name != "process "+d.Subject || process.SpanKind != trace.SpanKindConsumer || process.Parent.SpanID() != receive.SpanContext.SpanID() {
				t.Errorf("processing: got %s, %s, want the consumer's under the receipt", process.Name, process.SpanKind)
			}
			sender, _ := telemetry.LinkFrom(d.Carrier())
			if same := receive.SpanContext.TraceID() == sender.SpanContext.TraceID(); same != tc.same {
				t.Errorf("the trace of the publish: got %v, want %v", same, tc.same)
			}
			if tc.same && receive.Parent.SpanID() != sender.SpanContext.SpanID() {
				t.Errorf("receipt: got the parent %s, want the publish", receive.Parent.SpanID())
			}
			if replay := tc.raw == nil; replay != (receive.Parent.SpanID() == action.SpanContext().SpanID()) {
				t.Errorf("receipt under what the process is at: got %v, want %v", !replay, replay)
			}
			relation := ""
			if len(receive.Links) == 1 && receive.Links[0].SpanContext.SpanID() == sender.SpanContext.SpanID() {
				relation = receive.Links[0].Attributes[0].Value.AsString()
			}
			if relation != tc.relation {
				t.Errorf("link to the publish: got %q, want %q", relation, tc.relation)
			}
			for _, s := range []tracetest.SpanStub{receive, process, within} {
				for key, want := range map[attribute.Key]string{
					telemetry.OrderID: d.AggregateID.String(), telemetry.IdempotencyKey: "k", telemetry.Step: d.StepName, telemetry.StepKey: d.StepKey.String(),
				} {
					if got := value(s, key); got != want {
						t.Errorf("%s: %s is %q, want %q", s.Name, key, got, want)
					}
				}
			}
			for key, want := range map[attribute.Key]string{
				telemetry.MessagingSystem: "nats", telemetry.MessagingDestination: d.Subject, telemetry.MessagingOperationName: "process",
				telemetry.MessagingOperationType: "process", telemetry.MessagingMessageID: d.ID.String(), telemetry.MessagingConsumerGroup: "payment-commands",
			} {
				if got := value(process, key); got != want {
					t.Errorf("processing: %s is %q, want %q", key, got, want)
				}
			}
		})
	}
}

// A message that was dealt with before leaves a span that says so.
func TestDuplicatesAreSeen(t *testing.T) {
	t.Parallel()
	tracer, spans := newTracer(t)
	d := Delivery{Message: traced(), Attempt: 2, raw: brokered{}, arrived: time.Now()}
	d.Repeat(t.Context(), tracer)
	got := spans()
	if !d.Duplicate || len(got) != 2 || value(got[1], telemetry.Duplicate) != "true" {
		t.Errorf("got duplicate %v and the spans %v, want it said on the processing", d.Duplicate, got)
	}
	d = Delivery{Message: traced(), raw: brokered{}}
	if d.Repeat(t.Context(), nil); !d.Duplicate {
		t.Error("without a tracer: got no duplicate, want one")
	}
}

// TestUnsampledTraceCostsNoAttributes compares a delivery whose trace is not recorded with one that is not traced at all: beside the contexts and
// the two spans that go nowhere, nothing is made for it, and what is sent under it stays in its trace.
func TestUnsampledTraceCostsNoAttributes(t *testing.T) { //nolint:paralleltest // it counts allocations
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{ServiceName: "test", Exporter: tracetest.NewInMemoryExporter()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Shutdown(context.WithoutCancel(t.Context())) })
	tracer := tel.Tracer("test")
	m := traced()
	m.TraceParent = from[:len(from)-1] + "0"
	handle := func(tracer trace.Tracer) float64 {
		return testing.AllocsPerRun(100, func() {
			d := Delivery{Message: m, Attempt: 1, StoredAt: time.Now(), arrived: time.Now(), raw: brokered{}}
			ctx, span := StartProcess(t.Context(), tracer, &d)
			span.End()
			if got := trace.SpanContextFromContext(ctx); got.IsSampled() || got.TraceID().String() != from[3:35] {
				t.Errorf("got the trace %s, sampled %t", got.TraceID(), got.IsSampled())
			}
		})
	}
	untraced, unsampled := handle(nil), handle(tracer)
	const most = 22
	if unsampled > untraced+most {
		t.Errorf("got %.0f allocations for a delivery that is not sampled, want at most %d above the %.0f of one that is not traced", unsampled, most, untraced)
	}
}
