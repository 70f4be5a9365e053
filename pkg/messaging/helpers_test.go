package messaging_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

// patience is how long a test waits for what must happen. It is only used up by tests that fail.
const patience = 20 * time.Second

var (
	commands = messaging.Stream{Name: "COMMANDS", Subjects: []string{"cmd.>"}, WorkQueue: true}
	events   = messaging.Stream{Name: "EVENTS", Subjects: []string{"evt.>"}, MaxAge: time.Hour}
)

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// connect connects and waits until the connection is up.
func connect(t testing.TB, s *natsserver.Server, opts ...func(*messaging.Config)) *messaging.Conn {
	t.Helper()
	cfg := messaging.Config{URL: s.URL(), Name: t.Name()}
	for _, opt := range opts {
		opt(&cfg)
	}
	c, err := messaging.Connect(cfg)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(c.Close)
	if err := c.WaitConnected(within(t)); err != nil {
		t.Fatal(err)
	}
	return c
}

func ensure(t testing.TB, c *messaging.Conn, streams ...messaging.Stream) {
	t.Helper()
	if err := c.EnsureStreams(within(t), streams...); err != nil {
		t.Fatal(err)
	}
}

func command() messaging.Message {
	id := keys.NewMessageID()
	return messaging.Message{
		ID: id, Kind: messaging.Command, Subject: "cmd.payment.authorize_payment", AggregateID: uuid.New(), StepKey: uuid.New(),
		CreatedAt: keys.MessageTime(id), Payload: []byte("x"),
	}
}

func publish(t testing.TB, c *messaging.Conn, m messaging.Message) messaging.Ack {
	t.Helper()
	ack, err := c.Publish(within(t), &m).Wait(within(t))
	if err != nil {
		t.Fatalf("publishing: %v", err)
	}
	return ack
}

// receive takes a value from a channel, or fails.
func receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
	}
	panic("not reached")
}

// eventually waits until a condition holds, or fails.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s until %s", patience, what)
		}
	}
}

// consumer runs a Consume whose handler acknowledges and reports.
type consumer struct {
	stop    context.CancelFunc
	done    chan error
	batches chan []messaging.Delivery
}

// consume starts a consumer that is stopped at the end of the test. The handler calls before, if that is not nil, then acks.
func consume(t testing.TB, c *messaging.Conn, cfg messaging.ConsumerConfig, before func([]messaging.Delivery)) *consumer {
	t.Helper()
	stop, cancel := context.WithCancel(context.Background())
	work, cut := context.WithCancel(context.Background())
	k := &consumer{stop: cancel, done: make(chan error, 1), batches: make(chan []messaging.Delivery, 10_000)}
	var running sync.WaitGroup
	running.Go(func() {
		k.done <- c.Consume(stop, work, cfg, func(_ context.Context, batch []messaging.Delivery) {
			if before != nil {
				before(batch)
			}
			for i := range batch {
				_ = batch[i].Ack() // the connection may be gone, on purpose
			}
			k.batches <- slices.Clone(batch)
		})
	})
	t.Cleanup(func() {
		cancel()
		cut()
		running.Wait()
	})
	return k
}

// next gives the next n messages.
func (k *consumer) next(t testing.TB, n int) []messaging.Delivery {
	t.Helper()
	var got []messaging.Delivery
	for len(got) < n {
		got = append(got, receive(t, "a message", k.batches)...)
	}
	if len(got) > n {
		t.Fatalf("got %d messages, want %d", len(got), n)
	}
	return got
}

// await takes messages until the one with the id has come. Others may come before it: those whose acknowledgement was lost.
func (k *consumer) await(t testing.TB, id uuid.UUID) {
	t.Helper()
	for !slices.ContainsFunc(receive(t, "message "+id.String(), k.batches), func(d messaging.Delivery) bool { return d.ID == id }) {
	}
}

// hold keeps a handler until the test lets it go, or has failed.
func hold(t testing.TB, leave <-chan struct{}) {
	select {
	case <-leave:
	case <-t.Context().Done():
	}
}
