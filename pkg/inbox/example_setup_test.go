package inbox_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

// publishTwice starts a broker and publishes one event in two copies that the stream takes for two.
func publishTwice(ctx context.Context, tb testing.TB) *messaging.Conn {
	dir, err := os.MkdirTemp("", "example-nats-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := natsserver.Start(natsserver.Config{StoreDir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Shutdown)
	conn, err := messaging.Connect(messaging.Config{URL: server.URL()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	if err := conn.EnsureStreams(ctx, messaging.Stream{Name: "EVENTS", Subjects: []string{"evt.>"}}); err != nil {
		tb.Fatal(err)
	}
	m := command()
	m.Subject, m.AggregateSeq = "evt.order.confirmed", 1
	if _, err := conn.Publish(ctx, &m).Wait(ctx); err != nil {
		tb.Fatal(err)
	}
	d := messaging.NewDelivery(m, 1)
	again := &nats.Msg{Subject: m.Subject, Header: d.Headers(), Data: m.Payload}
	again.Header.Set(nats.MsgIdHdr, "another")
	if _, err := conn.JetStream().PublishMsg(ctx, again); err != nil {
		tb.Fatal(err)
	}
	return conn
}

// awaitAcks waits until the mailer has acknowledged the first n messages.
func awaitAcks(ctx context.Context, tb testing.TB, conn *messaging.Conn, n uint64) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if consumer, err := conn.JetStream().Consumer(ctx, "EVENTS", "mailer"); err == nil && consumer.CachedInfo().AckFloor.Stream == n {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatal("the messages were not acknowledged")
		}
	}
}
