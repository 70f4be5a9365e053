package messagingtest_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging/messagingtest"
)

func TestRestartKeepsAddressAndStreams(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := messagingtest.New(t)
	js := connect(t, s.URL())
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatalf("creating stream: %v", err)
	}
	if _, err := js.Publish(ctx, "s.a", []byte("kept")); err != nil {
		t.Fatalf("publishing: %v", err)
	}

	messagingtest.Stop(t, s)
	if nc, err := nats.Connect(s.URL()); err == nil {
		nc.Close()
		t.Fatal("connected to a stopped server")
	}

	again := messagingtest.Restart(t, s)
	if again.URL() != s.URL() {
		t.Errorf("url after restart: got %s, want %s", again.URL(), s.URL())
	}
	stream, err := connect(t, again.URL()).Stream(ctx, "S")
	if err != nil {
		t.Fatalf("reading stream after restart: %v", err)
	}
	msg, err := stream.GetLastMsgForSubject(ctx, "s.a")
	if err != nil {
		t.Fatalf("reading message after restart: %v", err)
	}
	if got, want := string(msg.Data), "kept"; got != want {
		t.Errorf("message after restart: got %q, want %q", got, want)
	}
}

func connect(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("opening JetStream: %v", err)
	}
	return js
}
