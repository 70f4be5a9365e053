package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/telemetry"
)

// The wait in the outbox is a span between what wrote a message and its publishing, whether it is handed off or swept.
func TestTheWaitIsASpan(t *testing.T) {
	t.Parallel()
	pool, server := newPool(t), newServer(t)
	e := tracetest.NewInMemoryExporter()
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{ServiceName: "thing", Exporter: e})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tel.Shutdown(context.WithoutCancel(t.Context())) }()
	connect(t, server, all) // ensures the stream
	conn, err := messaging.Connect(messaging.Config{URL: server.URL(), Tracer: tel.Tracer("test")})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	ctx, writing := tel.Tracer("test").Start(t.Context(), "writing")
	carrier := telemetry.Inject(ctx)
	writing.End()
	message := func() messaging.Message {
		m := event()
		m.TraceParent = carrier.TraceParent
		return m
	}
	began := time.Now().Add(-time.Millisecond) // ids know milliseconds
	swept, handed := uuid.New(), uuid.New()
	mustChange(t, pool, swept, uuid.Nil, message()) // nobody hands it off
	sweeper := start(t, pool, conn, outbox.Config{})
	eventually(t, "the first is swept", func() bool { return pending(t, pool) == 0 })
	sweeper.kill() // or it might take the second, too
	<-sweeper.done
	r := start(t, pool, conn, outbox.Config{SweepInterval: never, SweepAge: never})
	r.open(t)
	r.HandOff(mustChange(t, pool, handed, uuid.Nil, message()))
	eventually(t, "the second is handed off", func() bool { return pending(t, pool) == 0 })
	if err := tel.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}

	by := make(map[string]tracetest.SpanStub) // aggregate and operation
	attr := func(s tracetest.SpanStub, key attribute.Key) string {
		for _, a := range s.Attributes {
			if a.Key == key {
				return a.Value.String()
			}
		}
		return ""
	}
	for _, s := range e.GetSpans() {
		if id := attr(s, telemetry.OrderID); id != "" {
			by[id+" "+s.Name] = s
		}
	}
	for _, tc := range []struct {
		id        uuid.UUID
		publisher string
	}{{swept, "sweep"}, {handed, "hand_off"}} {
		wait, send := by[tc.id.String()+" outbox evt.thing.changed"], by[tc.id.String()+" send evt.thing.changed"]
		if wait.Parent.SpanID() != writing.SpanContext().SpanID() || send.Parent.SpanID() != wait.SpanContext.SpanID() || !send.Parent.IsValid() {
			t.Errorf("%s: got the wait under %s and the publishing under %s, want both under what came before", tc.publisher, wait.Parent.SpanID(), send.Parent.SpanID())
		}
		if send.SpanKind != trace.SpanKindProducer || wait.StartTime.Before(began) || wait.EndTime.After(send.EndTime) || wait.EndTime.Before(wait.StartTime) {
			t.Errorf("%s: got the wait from %s to %s and the publishing (%s) to %s", tc.publisher, wait.StartTime, wait.EndTime, send.SpanKind, send.EndTime)
		}
		if got := attr(wait, telemetry.PublishedBy); got != tc.publisher {
			t.Errorf("published by: got %q, want %q", got, tc.publisher)
		}
		if attr(send, "server.address") == "" || attr(send, telemetry.MessagingOperationName) != "send" {
			t.Errorf("%s: the publishing says neither where to nor what it does: %v", tc.publisher, send.Attributes)
		}
	}
}
