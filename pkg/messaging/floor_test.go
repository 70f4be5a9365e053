package messaging_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
)

func TestAckFloor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := messaging.Connect(messaging.Config{URL: messagingtest.New(t).URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := conn.EnsureStreams(ctx, messaging.Stream{Name: "S", Subjects: []string{"cmd.>"}, WorkQueue: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.AckFloor(ctx, "S", "c"); err == nil {
		t.Error("floor of a consumer that is not there: got no error, want one")
	}
	js := conn.JetStream()
	consumer, err := js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "c", FilterSubjects: []string{"cmd.a.*", "cmd.b.*"}, AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	floor := func() time.Time {
		t.Helper()
		at, err := conn.AckFloor(ctx, "S", "c")
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	stream, err := js.Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	// publish gives the time that the stream has put on the message.
	publish := func(subject string) time.Time {
		t.Helper()
		ack, err := js.Publish(ctx, subject, nil)
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.GetMsg(ctx, ack.Sequence)
		if err != nil {
			t.Fatal(err)
		}
		return m.Time
	}
	publish("cmd.other.x") // never acknowledged, and not for this consumer
	first, second := publish("cmd.a.x"), publish("cmd.b.x")
	if at := floor(); !at.Equal(first) {
		t.Errorf("with two messages waiting: got %s, want the time of the first, %s", at, first)
	}
	batch, err := consumer.Fetch(2)
	if err != nil {
		t.Fatal(err)
	}
	var got []jetstream.Msg
	for m := range batch.Messages() {
		got = append(got, m)
	}
	if at := floor(); !at.Equal(first) {
		t.Errorf("with two messages in hand: got %s, want the time of the first, %s", at, first)
	}
	for i, m := range got {
		if err := m.DoubleAck(ctx); err != nil {
			t.Fatal(err)
		}
		at := floor()
		if i == 0 && !at.Equal(second) {
			t.Errorf("with the first acknowledged: got %s, want the time of the second, %s", at, second)
		}
		if i == 1 && !at.After(second) {
			t.Errorf("with all acknowledged: got %s, want now", at)
		}
	}
}
