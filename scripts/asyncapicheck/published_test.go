package asyncapicheck

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
)

// internalHeaders are on commands and replies, which are between the services, and never on events.
var internalHeaders = []string{
	messaging.HeaderLastSeen, messaging.HeaderStepKey, messaging.HeaderStepName, messaging.HeaderStepOutcome, messaging.HeaderStepReason,
}

// broker is a real broker with the stream of events, as the services create it.
type broker struct {
	conn     *messaging.Conn
	stream   jetstream.Stream
	consumer jetstream.Consumer
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	conn, err := messaging.Connect(messaging.Config{URL: messagingtest.New(t).URL(), Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	c := constants(t)
	ctx := within(t)
	if err := conn.EnsureStreams(ctx, messaging.Stream{Name: c.Stream, Subjects: []string{messaging.EventPrefix + ">"}, MaxAge: c.MaxAge}); err != nil {
		t.Fatal(err)
	}
	stream, err := conn.JetStream().Stream(ctx, c.Stream)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	return &broker{conn, stream, consumer}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// pass publishes a message the way the services do, and gives it as a consumer gets it.
func (b *broker) pass(t *testing.T, m *messaging.Message) *nats.Msg {
	t.Helper()
	ctx := within(t)
	if _, err := b.conn.Publish(ctx, m).Wait(ctx); err != nil {
		t.Fatalf("publishing on %s: %v", m.Subject, err)
	}
	got, err := b.consumer.Next(jetstream.FetchContext(ctx))
	if err != nil {
		t.Fatalf("receiving from %s: %v", m.Subject, err)
	}
	return &nats.Msg{Subject: got.Subject(), Header: got.Headers(), Data: got.Data()}
}

// message makes a message of an event, as the services' outboxes hold it, with every field of its payload set.
func message(t *testing.T, e Event) *messaging.Message {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(e.Type))
	if err != nil {
		t.Fatal(err)
	}
	order := keys.OrderID("storefront", "first-order")
	m := typ.New()
	fill(m)
	m.Set(typ.Descriptor().Fields().ByName("order_id"), protoreflect.ValueOfString(order.String()))
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.Interface())
	if err != nil {
		t.Fatal(err)
	}
	id := keys.NewMessageID()
	return &messaging.Message{
		ID: id, Kind: messaging.Event, Subject: e.Subject, Type: e.Type, Source: e.Source, AggregateID: order, AggregateSeq: 1,
		IdempotencyKey: "first-order", CreatedAt: keys.MessageTime(id), Payload: payload,
	}
}

// fill sets every field.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.IsList() {
			m.Mutable(f).List().Append(sample(f, m.Mutable(f).List().NewElement()))
			continue
		}
		m.Set(f, sample(f, m.NewField(f)))
	}
}

func sample(f protoreflect.FieldDescriptor, empty protoreflect.Value) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("word")
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.MessageKind:
		fill(empty.Message())
	}
	return empty
}

func TestPublishedEventsAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	d, b := load(t), newBroker(t)
	for _, e := range eventsOf(t, d) {
		m := message(t, e)
		got := b.pass(t, m)
		if err := d.Check(got.Subject, got.Header, got.Data); err != nil {
			t.Errorf("without a trace: %v", err)
		}
		if !bytes.Equal(got.Data, m.Payload) {
			t.Errorf("%s: got the payload %q, want %q", e.Subject, got.Data, m.Payload)
		}
		traced := message(t, e)
		traced.AggregateSeq = 1 << 40
		traced.TraceParent, traced.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1"
		got = b.pass(t, traced)
		if err := d.Check(got.Subject, got.Header, got.Data); err != nil {
			t.Errorf("with a trace: %v", err)
		}
	}
}

func TestDocumentHasEveryHeaderAndNoOther(t *testing.T) {
	t.Parallel()
	d, b := load(t), newBroker(t)
	e := eventsOf(t, d)[0]
	// A message with all that any message can have shows all headers that there are.
	m := message(t, e)
	m.StepName, m.StepKey, m.Outcome, m.Reason, m.LastSeen = "a", uuid.New(), messaging.OutcomeDone, "b", uuid.New()
	m.TraceParent, m.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1"
	got := slices.Sorted(maps.Keys(b.pass(t, m).Header))

	channel, err := d.channel(e.Subject)
	if err != nil {
		t.Fatal(err)
	}
	described, err := d.message(channel)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := d.headersOf(described)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(rules)), internalHeaders)))
	if !slices.Equal(got, want) {
		t.Errorf("headers: got %q, want those of the document and the internal ones, %q", got, want)
	}
}

func TestStreamIsAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := b.stream.CachedInfo().Config
	got := object{
		"stream":          c.Name,
		"subjects":        fmt.Sprint(c.Subjects),
		"retention":       strings.ToLower(c.Retention.String()),
		"discard":         strings.ToLower(strings.TrimPrefix(c.Discard.String(), "Discard")),
		"storage":         strings.ToLower(c.Storage.String()),
		"maxAge":          c.MaxAge.String(),
		"duplicateWindow": c.Duplicates.String(),
	}
	for name, want := range load(t).object("x-jetstream") {
		if fmt.Sprint(got[name]) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", name, got[name], want)
		}
	}
}

func TestCheckFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	d, b := load(t), newBroker(t)
	events := eventsOf(t, d)
	at := slices.IndexFunc(events, func(e Event) bool { return e.Subject == "evt.payment.captured" })
	if at < 0 {
		t.Fatal("the document has no evt.payment.captured")
	}
	set := func(name, value string) func(*nats.Msg) {
		return func(m *nats.Msg) { m.Header[name] = []string{value} }
	}
	tests := []struct {
		name   string
		change func(m *nats.Msg)
		want   string // empty: nothing is wrong
	}{
		{"nothing", func(*nats.Msg) {}, ""},
		{"unknown subject", func(m *nats.Msg) { m.Subject = "evt.payment.lost" }, "evt.payment.lost"},
		{"missing header", func(m *nats.Msg) { delete(m.Header, messaging.HeaderAggregateSeq) }, "Aggregate-Seq is missing"},
		{"optional header of another form", set(messaging.HeaderTraceParent, "x"), "traceparent: got \"x\""},
		{"another header", set(messaging.HeaderStepName, "x"), "Step-Name is not in the document"},
		{"header in another case", set("order-id", "x"), "order-id is not in the document"},
		{"two values", func(m *nats.Msg) { m.Header[messaging.HeaderCETime] = []string{"a", "b"} }, "want one"},
		{"sequence 0", set(messaging.HeaderAggregateSeq, "0"), "Aggregate-Seq: got \"0\""},
		{"time with an offset", set(messaging.HeaderCETime, "2026-01-01T00:00:00+01:00"), "ce-time"},
		{"another type", set(messaging.HeaderCEType, "throughline.payment.v1.PaymentVoided"), "ce-type"},
		{"another source", set(messaging.HeaderCESource, "/order"), "ce-source"},
		{"id of another version", set(messaging.HeaderCEID, "0b2f4a4e-6d3c-4d66-8d7e-0d8f5b8a6b11"), "ce-id"},
		{"two ids", set(messaging.HeaderMessageID, keys.NewMessageID().String()), "Nats-Msg-Id differ"},
		{"another order", set(messaging.HeaderOrderID, uuid.NewSHA1(uuid.NameSpaceURL, nil).String()), "order_id in the payload"},
		{"no protobuf", func(m *nats.Msg) { m.Data = []byte("{}") }, "decoding the payload"},
		{"unknown field", func(m *nats.Msg) { m.Data = append(m.Data, 0xf8, 0x07, 0x01) }, "3 bytes of fields"},
	}
	for _, tt := range tests {
		got := b.pass(t, message(t, events[at]))
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.change(got)
			err := d.Check(got.Subject, got.Header, got.Data)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
