package live_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/services/console/internal/live"
	"github.com/throughline/throughline/services/internal/topology"
)

const patience = time.Minute

// A feed begins with what happened before it, goes on with what happens, and goes on where it was when the stream is made again.
func TestFeed(t *testing.T) {
	t.Parallel()
	broker := messagingtest.New(t)
	nc, err := messaging.Connect(messaging.Config{URL: broker.URL(), Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	board := live.NewBoard(nil)
	feed := &live.Feed{Conn: nc, Board: board, Logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- feed.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("feed ended with %v, want no error", err)
		}
	}()

	await := func(what string, holds func() bool) {
		t.Helper()
		deadline := time.After(patience)
		for turned := board.Turned(); !holds(); turned = board.Turned() {
			select {
			case <-turned:
			case <-deadline:
				t.Fatalf("%s: not in %s; newest %v, away %v", what, patience, board.Newest(), board.Away())
			}
		}
	}
	event := func(subject string) string {
		t.Helper()
		id := uuid.New()
		_, err := nc.Publish(t.Context(), &messaging.Message{
			ID: keys.NewMessageID(), Kind: messaging.Event, Subject: subject, Type: "throughline.order.v1.OrderCreated", Source: topology.OrderSource,
			AggregateID: id, AggregateSeq: 1, CreatedAt: time.Now(), Payload: []byte("not read"),
		}).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return id.String()
	}
	ensure := func() {
		t.Helper()
		if err := nc.EnsureStreams(t.Context(), topology.Streams(1)...); err != nil {
			t.Fatal(err)
		}
	}

	if board.Away() == nil {
		t.Error("without a stream: got no reason why nothing comes, want one")
	}
	ensure()
	first := event(topology.OrderCreated)
	event(topology.PaymentAuthorized)
	await("what happened before", func() bool { return slices.Equal(board.Newest(), []string{first}) && board.Away() == nil })
	second := event(topology.OrderCreated)
	await("what happens", func() bool { return slices.Equal(board.Newest(), []string{second, first}) })

	if err := nc.JetStream().DeleteStream(t.Context(), topology.Events); err != nil {
		t.Fatal(err)
	}
	ensure()
	third := event(topology.OrderCreated)
	await("what happens in a stream that was made again", func() bool { return len(board.Newest()) > 0 && board.Newest()[0] == third })
}
