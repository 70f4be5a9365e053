package saga_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Deadlines, and what clients and people want, are dealt with in the saga's own trace, whatever follows from them, too; and they link to whoever
// wanted it. Every line of the log says the saga and the trace.
func TestEverythingStaysInTheSagasTrace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := tracetest.NewInMemoryExporter()
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{ServiceName: "sale", Exporter: e})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tel.Shutdown(context.WithoutCancel(t.Context())) }()
	tracer := tel.Tracer("test")
	conn, err := messaging.Connect(messaging.Config{URL: messagingtest.New(t).URL(), Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f.conn = conn
	var log bytes.Buffer
	logger, err := telemetry.NewLogger(&log, "json", slog.LevelDebug, "sale", "")
	if err != nil {
		t.Fatal(err)
	}
	f.engine = saga.NewEngine(saga.Config[order]{
		Pool: f.pool, Conn: conn, Relay: f.relay, Projector: rows{}, Source: "/sale", Consumer: consumer, Owner: t.Name(), Logger: logger,
		Meter: tel.Meter("test"),
		Asker: asker(func(ctx context.Context, participant string, id uuid.UUID, step string) (saga.Answer, error) {
			return f.ask(ctx, participant, id, step)
		}),
	}, definition(slow))

	id := f.newID()
	ctx, placing := tracer.Start(t.Context(), "placing")
	if err := f.engine.Start(ctx, f.birth(ctx, definition(slow), id)); err != nil {
		t.Fatal(err)
	}
	placing.End()
	own := placing.SpanContext().TraceID()

	asked := make(chan trace.SpanContext, 1)
	f.ask = func(ctx context.Context, _ string, _ uuid.UUID, _ string) (saga.Answer, error) {
		asked <- trace.SpanContextFromContext(ctx)
		return saga.Answer{Finding: saga.FoundNothing}, nil
	}
	f.pass(id, 2*time.Hour)
	if n := f.fire(); n != 1 {
		t.Fatalf("timers: got %d, want 1", n)
	}
	if got := (<-asked).TraceID(); got != own {
		t.Errorf("the question: got the trace %s, want %s", got, own)
	}
	ctx, wanting := tracer.Start(t.Context(), "wanting it cancelled")
	if _, err := f.engine.Cancel(ctx, id, nil); err != nil {
		t.Fatal(err)
	}
	wanting.End()

	for _, subject := range f.subjects(id) {
		n := f.number(`SELECT count(*) FROM outbox_message WHERE aggregate_id = $1 AND subject = $2 AND split_part(traceparent, '-', 2) <> $3`, id, subject, own.String())
		if n != 0 {
			t.Errorf("%s: got %d in another trace, want none", subject, n)
		}
	}
	if err := tel.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := make(map[string]tracetest.SpanStub)
	for _, s := range e.GetSpans() {
		spans[s.Name] = s
	}
	for _, name := range []string{"timer place-order", "cancel place-order"} {
		s, ok := spans[name]
		if !ok {
			for known := range spans {
				t.Logf("span %q", known)
			}
			t.Fatalf("no span %q", name)
		}
		attributes := make(map[string]string)
		for _, a := range s.Attributes {
			attributes[string(a.Key)] = a.Value.String()
		}
		if s.SpanContext.TraceID() != own || attributes["throughline.order_id"] != id.String() || attributes["throughline.idempotency_key"] == "" ||
			attributes["throughline.saga_state"] == "" {
			t.Errorf("%s: got the trace %s and %v, want %s, the saga and its state", name, s.SpanContext.TraceID(), attributes, own)
		}
	}
	cancel := spans["cancel place-order"]
	if len(cancel.Links) != 1 || cancel.Links[0].SpanContext.SpanID() != wanting.SpanContext().SpanID() {
		t.Errorf("the cancellation: got the links %v, want one to the request", cancel.Links)
	}
	request := spans["wanting it cancelled"]
	if len(request.Links) != 1 || request.Links[0].SpanContext.SpanID() != cancel.SpanContext.SpanID() {
		t.Errorf("the request: got the links %v, want one to the cancellation", request.Links)
	}

	lines := 0
	for line := range strings.Lines(log.String()) {
		var l struct {
			Msg     string
			OrderID string `json:"order_id"`
			TraceID string `json:"trace_id"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.OrderID != id.String() || l.TraceID != own.String() {
			t.Errorf("log: got %s, want order and trace", line)
		}
		if l.Msg == "saga changed" {
			lines++
		}
	}
	if lines != 1 { // running to compensating
		t.Errorf("log: got %d lines of the saga's changes, want 1:\n%s", lines, log.String())
	}
}
