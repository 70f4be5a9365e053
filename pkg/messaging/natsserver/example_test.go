package natsserver_test

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

func ExampleStart() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()

	s, err := natsserver.Start(natsserver.Config{StoreDir: dir})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Shutdown()

	nc, err := nats.Connect(s.URL())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "EVENTS", Subjects: []string{"evt.>"}}); err != nil {
		fmt.Println(err)
		return
	}
	ack, err := js.Publish(ctx, "evt.order.placed", []byte("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ack.Stream, ack.Sequence)
	// Output: EVENTS 1
}
