package messaging_test

import (
	"context"
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

// A service publishes an event and another consumes it. The server here runs in this process; a real one is reached the same
// way.
func Example() {
	dir, err := os.MkdirTemp("", "example-nats-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	server, err := natsserver.Start(natsserver.Config{StoreDir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn, err := messaging.Connect(messaging.Config{URL: server.URL(), Name: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	if err := conn.EnsureStreams(ctx, messaging.Stream{Name: "EVENTS", Subjects: []string{"evt.>"}}); err != nil {
		fmt.Println(err)
		return
	}

	id := keys.NewMessageID()
	ack, err := conn.Publish(ctx, &messaging.Message{
		ID: id, Subject: "evt.order.confirmed", Type: "shop.v1.OrderConfirmed", Source: "/order",
		AggregateID: uuid.New(), AggregateSeq: 1, CreatedAt: keys.MessageTime(id), Payload: []byte("…"),
	}).Wait(ctx)
	fmt.Println("stored as message", ack.Sequence, "of", ack.Stream, err)

	_ = conn.Consume(ctx, context.Background(), messaging.ConsumerConfig{Stream: "EVENTS", Name: "mailer"},
		func(_ context.Context, batch []messaging.Delivery) {
			for i := range batch {
				fmt.Println("got", batch[i].Kind, batch[i].Type, "number", batch[i].AggregateSeq)
				_ = batch[i].Ack()
			}
			cancel() // a real service goes on
		})
	// Output:
	// stored as message 1 of EVENTS <nil>
	// got event shop.v1.OrderConfirmed number 1
}
