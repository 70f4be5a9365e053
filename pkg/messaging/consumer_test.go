package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
)

var payments = messaging.ConsumerConfig{Stream: "COMMANDS", Name: "payment", Filter: []string{"cmd.payment.>"}}

func TestConsumeHandsOverWhatIsThere(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	cfg := payments
	cfg.Batch = 10
	entered, leave := make(chan int, 100), make(chan struct{})
	k := consume(t, c, cfg, func(batch []messaging.Delivery) {
		entered <- len(batch)
		hold(t, leave)
	})
	var sent []messaging.Message
	send := func(n int) {
		for range n {
			m := command()
			publish(t, c, m)
			sent = append(sent, m)
		}
	}
	send(1)
	if got := receive(t, "the first batch", entered); got != 1 {
		t.Errorf("got a first batch of %d, want 1: a batch does not wait to fill", got)
	}
	send(25) // while the handler is busy
	close(leave)
	var sizes []int
	for total := 0; total < 25; {
		n := receive(t, "a batch", entered)
		total += n
		sizes = append(sizes, n)
		if n > cfg.Batch {
			t.Errorf("got a batch of %d, want at most %d", n, cfg.Batch)
		}
	}
	if len(sizes) > 10 {
		t.Errorf("got 25 waiting messages in batches of %v, want them taken together", sizes)
	}
	for i, d := range k.next(t, len(sent)) {
		if d.ID != sent[i].ID || d.StreamSequence != uint64(i+1) || d.Attempt != 1 || d.Malformed != nil || time.Since(d.StoredAt) > time.Minute {
			t.Errorf("message %d: got %+v, want id %s", i, d, sent[i].ID)
		}
	}
	eventually(t, "all are acknowledged", func() bool {
		info, err := mustStream(t, c, "COMMANDS").Info(within(t))
		return err == nil && info.State.Msgs == 0
	})
}

func TestConsumeFilters(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	other := command()
	other.Subject = "cmd.shipping.create_shipment"
	publish(t, c, other)
	m := command()
	publish(t, c, m)
	k := consume(t, c, payments, nil)
	if got := k.next(t, 1)[0]; got.ID != m.ID {
		t.Errorf("got %s to %s, want %s", got.ID, got.Subject, m.ID)
	}
}

// Instances of a service share the durable consumer and with it the work.
func TestInstancesShareTheWork(t *testing.T) {
	t.Parallel()
	s := messagingtest.New(t)
	c := connect(t, s)
	ensure(t, c, commands)
	cfg := payments
	cfg.Batch = 5
	a, b := consume(t, c, cfg, nil), consume(t, connect(t, s), cfg, nil)
	const n = 200
	for range n {
		publish(t, c, command())
	}
	got := make(map[uuid.UUID]int)
	for len(got) < n {
		select {
		case batch := <-a.batches:
			for _, d := range batch {
				got[d.ID]++
			}
		case batch := <-b.batches:
			for _, d := range batch {
				got[d.ID]++
			}
		case <-time.After(patience):
			t.Fatalf("got %d messages, want %d", len(got), n)
		}
	}
	for id, times := range got {
		if times != 1 {
			t.Errorf("got %s %d times, want once", id, times)
		}
	}
}

func TestStopHandsOverWhatIsFetched(t *testing.T) {
	t.Parallel()
	// What crosses the end of the subscription arrives nowhere, and comes again after AckWait. That is seldom. A consumer that forgot what it has
	// fetched would be complete now and then, since chance decides whether it looks at a message or at the stop first.
	const rounds, crossed = 10, 2
	complete := 0
	for range rounds {
		if stopWhileBusy(t) {
			complete++
		}
	}
	if complete < rounds-crossed {
		t.Errorf("got all that was fetched handled in %d of %d rounds, want it in %d at least", complete, rounds, rounds-crossed)
	}
}

// stopWhileBusy stops a consumer whose handler has a batch, and which has fetched more. It tells whether all was handled that the broker has handed
// out.
func stopWhileBusy(t *testing.T) bool {
	t.Helper()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	cfg := payments
	cfg.Batch, cfg.AckWait = 4, time.Hour
	const n = 20
	for range n {
		publish(t, c, command())
	}
	entered, leave := make(chan struct{}, n), make(chan struct{})
	k := consume(t, c, cfg, func([]messaging.Delivery) {
		entered <- struct{}{}
		hold(t, leave)
	})
	receive(t, "the first batch", entered)
	consumer, err := c.JetStream().Consumer(within(t), cfg.Stream, cfg.Name)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "more than a batch is fetched", func() bool {
		info, err := consumer.Info(within(t))
		return err == nil && info.NumAckPending > cfg.Batch
	})
	k.stop()
	select {
	case err := <-k.done:
		t.Fatalf("Consume returned %v while its handler was busy", err)
	default:
	}
	close(leave)
	if err := receive(t, "the end of Consume", k.done); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
	handled := 0
	for len(k.batches) > 0 {
		handled += len(<-k.batches)
	}
	pending := 0
	eventually(t, "all that was handled is acknowledged", func() bool {
		info, err := consumer.Info(within(t))
		if err != nil {
			return false
		}
		pending = info.NumAckPending
		return pending == int(info.Delivered.Consumer)-handled
	})
	if handled == n {
		t.Errorf("got all %d messages handled, want the rest left to others", n)
	}
	return pending == 0
}

func TestStopWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	s := messagingtest.New(t)
	c := connect(t, s)
	ensure(t, c, commands)
	publish(t, c, command())
	k := consume(t, c, payments, nil)
	k.next(t, 1)
	messagingtest.Stop(t, s)
	k.stop()
	if err := receive(t, "the end of Consume", k.done); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}
}

func TestConsumeGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	s := messagingtest.New(t)
	c := connect(t, s)
	ensure(t, c, commands)
	k := consume(t, c, payments, nil)
	publish(t, c, command())
	k.next(t, 1)
	for range 2 {
		before := c.Session()
		s = messagingtest.Restart(t, s)
		receive(t, "the end of the session", before.Changed)
		if err := c.WaitConnected(within(t)); err != nil {
			t.Fatal(err)
		}
		m := command()
		publish(t, c, m)
		k.await(t, m.ID)
	}
}

func TestDeletedConsumerIsCreatedAgain(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	k := consume(t, c, payments, nil)
	publish(t, c, command())
	k.next(t, 1)
	if err := c.JetStream().DeleteConsumer(within(t), payments.Stream, payments.Name); err != nil {
		t.Fatal(err)
	}
	m := command()
	publish(t, c, m)
	k.await(t, m.ID)
}

func TestMissingStreamIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	k := consume(t, c, payments, nil)
	other := consume(t, c, messaging.ConsumerConfig{Stream: "EVENTS", Name: "n"}, nil)
	ensure(t, c, commands, events)
	m := command()
	publish(t, c, m)
	k.await(t, m.ID)
	// And once more, after it was deleted under a running consumer.
	if err := c.JetStream().DeleteStream(within(t), "EVENTS"); err != nil {
		t.Fatal(err)
	}
	ensure(t, c, events)
	e := command()
	e.Kind, e.Subject, e.AggregateSeq = messaging.Event, "evt.order.placed", 1
	publish(t, c, e)
	other.await(t, e.ID)
}

func TestMalformedMessageReachesTheHandler(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	msg := &nats.Msg{Subject: "cmd.payment.x", Header: nats.Header{"ce-id": {"17"}}, Data: []byte("payload")}
	if _, err := c.JetStream().PublishMsg(within(t), msg); err != nil {
		t.Fatal(err)
	}
	got := consume(t, c, payments, nil).next(t, 1)[0]
	if !errors.Is(got.Malformed, messaging.ErrMalformed) {
		t.Errorf("got %v, want %v", got.Malformed, messaging.ErrMalformed)
	}
	if got.Subject != msg.Subject || string(got.Payload) != "payload" || got.Headers()["ce-id"][0] != "17" || got.DeadLetterID() == uuid.Nil {
		t.Errorf("got %+v with headers %v, want what could be read", got.Message, got.Headers())
	}
}

func TestNakDeliversAgainLater(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	publish(t, c, command())
	attempts := make(chan uint64, 10)
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	const delay = 100 * time.Millisecond
	var asked time.Time
	_ = c.Consume(stop, t.Context(), payments, func(_ context.Context, batch []messaging.Delivery) {
		d := &batch[0]
		attempts <- d.Attempt
		if d.Attempt == 1 {
			asked = time.Now()
			_ = d.Nak(delay)
			return
		}
		if waited := time.Since(asked); waited < delay*9/10 {
			t.Errorf("delivered again after %s, want %s", waited, delay)
		}
		_ = d.Ack()
		cancel()
	})
	if first, second := receive(t, "an attempt", attempts), receive(t, "an attempt", attempts); first != 1 || second != 2 {
		t.Errorf("got attempts %d and %d, want 1 and 2", first, second)
	}
}

func TestDeliveryThatDidNotComeFromTheBroker(t *testing.T) {
	t.Parallel()
	m := command()
	d := messaging.NewDelivery(m, 3)
	if err := errors.Join(d.Ack(), d.Nak(time.Second)); err != nil || d.Attempt != 3 || d.Headers()["ce-id"][0] != m.ID.String() {
		t.Errorf("got %+v, %v", d, err)
	}
}

// BenchmarkConsume measures delivery and acknowledgement in batches, without a database.
func BenchmarkConsume(b *testing.B) {
	c := connect(b, messagingtest.New(b))
	ensure(b, c, commands)
	var window []*messaging.Pending
	for i := range b.N {
		m := command()
		m.Subject = fmt.Sprintf("cmd.payment.step_%d", i%4)
		window = append(window, c.Publish(b.Context(), &m))
		if len(window) == 1000 {
			settle(b, window)
			window = window[:0]
		}
	}
	settle(b, window)
	stop, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ResetTimer()
	left := b.N
	_ = c.Consume(stop, b.Context(), payments, func(_ context.Context, batch []messaging.Delivery) {
		for i := range batch {
			_ = batch[i].Ack()
		}
		if left -= len(batch); left <= 0 {
			cancel()
		}
	})
}

// A batch is put together and handled between Enter and leave.
func TestBatchesGoThroughTheGate(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	steps := make(chan string, 10)
	cfg := payments
	cfg.Enter = func(context.Context) func() {
		steps <- "enter"
		return func() { steps <- "leave" }
	}
	consume(t, c, cfg, func([]messaging.Delivery) { steps <- "handle" })
	for range 2 {
		publish(t, c, command())
		for _, want := range []string{"enter", "handle", "leave"} {
			if got := receive(t, want, steps); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
	}
}
