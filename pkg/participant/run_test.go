package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// The test server of this process, and its administration's pool, live as long as the process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/throughline/throughline/pkg/postgres/pgcluster.startChild.func1"),
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"))
}

// running runs a runner, and gives the means to end it.
func (d *desk) running(r *Runner) (stop, work context.CancelFunc, ended <-chan struct{}) {
	d.Helper()
	stopping, stop := context.WithCancel(context.Background())
	working, work := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := r.Run(stopping, working); err != nil {
			d.Errorf("running: %v", err)
		}
	}()
	d.Cleanup(func() {
		stop()
		work()
		<-over
	})
	return stop, work, over
}

func (d *desk) wait(c <-chan struct{}, what string) {
	d.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		d.Fatalf("%s: nothing in 20 s", what)
	}
}

// A stop waits for the calls in progress and records them.
func TestStopWaitsForCalls(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	g := newGate()
	r := d.runner(g.step(hold))
	stop, _, ended := d.running(r)
	order := uuid.New()
	d.apply(r, command(order, hold))
	g.call(d)
	stop()
	select {
	case <-ended:
		t.Error("stop: ended beside a call")
	case <-r.ctx.Done():
		t.Error("stop: the call is cut short")
	default:
	}
	g.answer <- held
	d.wait(ended, "stop")
	d.is(order, hold, StateDone)
	d.told(order, "evt.hotel.held 1", "hold_room done")

	// What is taken in later is left to others.
	late := command(uuid.New(), hold)
	d.apply(r, late)
	if rec := d.is(late.AggregateID, hold, StatePending); rec.LeaseOwner != "" || rec.DueAt == nil {
		t.Errorf("intent after the stop: got owner %q, due %v, want none, now", rec.LeaseOwner, rec.DueAt)
	}
	d.idle(r)
}

// The end of work cuts calls short. What was cut is due again when its lease ends.
func TestEndOfWorkCutsCalls(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	g := newGate()
	r := d.runner(g.step(hold))
	stop, work, ended := d.running(r)
	order := uuid.New()
	d.apply(r, command(order, hold))
	g.call(d)
	stop()
	work()
	d.wait(ended, "end of work")
	if rec := d.is(order, hold, StatePending); rec.LeaseOwner != r.cfg.Owner {
		t.Errorf("owner: got %q, want %q until the lease ends", rec.LeaseOwner, r.cfg.Owner)
	}
	other := d.runner(g.step(hold))
	d.pass(DefaultLease)
	d.claim(other)
	if c := g.call(d); c.Attempt != 2 {
		t.Errorf("attempt: got %d, want 2", c.Attempt)
	}
	g.answer <- held
	d.finish(other)
	d.is(order, hold, StateDone)
	d.idle(r)
	d.idle(other)
}

// An intake that outlives the runner does not start calls, nor does it end the process.
func TestClaimAfterTheStopIsGivenBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	cfg := d.config()
	var r *Runner
	var ended <-chan struct{}
	cfg.Projector = hotel{fail: func([]Change) error { // between the slot and the start
		stop, _, over := d.running(r)
		stop()
		ended = over
		<-over
		return nil
	}}
	r = d.runnerWith(cfg, calls.step(hold, held))
	cmd := command(uuid.New(), hold)
	d.apply(r, cmd)
	d.wait(ended, "stop")
	calls.is(d, 0)
	if rec := d.is(cmd.AggregateID, hold, StatePending); rec.LeaseOwner == "" {
		t.Error("lease: got none, want the one that was taken before the stop")
	}
	d.idle(r)
}

// broker is a JetStream server with the streams of the tests.
func broker(t *testing.T) func() *messaging.Conn {
	t.Helper()
	server := messagingtest.New(t)
	connect := func() *messaging.Conn {
		conn, err := messaging.Connect(messaging.Config{URL: server.URL()})
		if err != nil {
			t.Fatalf("connecting: %v", err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.WaitConnected(t.Context()); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	err := connect().EnsureStreams(t.Context(),
		messaging.Stream{Name: "CMD", Subjects: []string{"cmd.>"}, WorkQueue: true},
		messaging.Stream{Name: "RPL", Subjects: []string{"rpl.>"}, WorkQueue: true},
		messaging.Stream{Name: "EVT", Subjects: []string{"evt.>"}, MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return connect
}

// The whole way, with two instances: commands from JetStream, some of them twice, retries, undos, and replies and events
// back. Each step has its effect once, and each order its events in sequence.
func TestCommandsFromTheBroker(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	connect := broker(t)
	var (
		mu      sync.Mutex
		effects = make(map[uuid.UUID]int)
	)
	steps := []Step{
		{Name: hold, Perform: func(_ context.Context, c *Call) Outcome {
			mu.Lock()
			defer mu.Unlock()
			if c.Attempt == 1 && c.OrderID[0]%3 == 0 {
				return Unknown{Err: errors.New("no answer"), RetryAfter: time.Millisecond}
			}
			if effects[c.StepKey]++; effects[c.StepKey] > 1 {
				d.Errorf("step %s of %s has its effect again", c.StepName, c.OrderID)
			}
			return held
		}},
		{Name: release, Undoes: []string{hold}, Perform: func(context.Context, *Call) Outcome { return Done{} }},
	}
	for range 2 {
		cfg, conn := d.config(), connect()
		cfg.Pool = pgtest.Open(t, d.url)
		cfg.Settle = 50 * time.Millisecond
		cfg.Concurrency = 8
		relay := outbox.NewRelay(cfg.Pool, conn, outbox.Config{SweepInterval: 20 * time.Millisecond})
		cfg.Relay = relay
		r := d.runnerWith(cfg, steps...)
		processor := &inbox.Processor{Pool: cfg.Pool, Consumer: "hotel", Apply: r.ApplyCommands, Logger: cfg.Logger}
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { _ = relay.Run(ctx, ctx) })
		d.Cleanup(func() {
			cancel()
			all.Wait()
		})
		d.running(r)
		consuming, stop := context.WithCancel(context.Background())
		var intake sync.WaitGroup
		intake.Go(func() {
			_ = conn.Consume(consuming, ctx, messaging.ConsumerConfig{Stream: "CMD", Name: "hotel"}, processor.Handle)
		})
		d.Cleanup(func() {
			stop()
			intake.Wait()
		})
	}

	conn := connect()
	const orders = 40
	send := func(m messaging.Message) {
		t.Helper()
		if _, err := conn.Publish(t.Context(), &m).Wait(t.Context()); err != nil {
			t.Fatalf("publishing: %v", err)
		}
	}
	undone := make(map[uuid.UUID]bool)
	missing := make(map[string]bool) // the replies that must come; an action that was undone first may have none
	for i := range orders {
		order := uuid.New()
		cmd, undo := command(order, hold).Message, command(order, release).Message
		undone[order] = i%4 == 0
		if undone[order] {
			missing[fmt.Sprintf("%s %s", order, release)] = true
		} else {
			missing[fmt.Sprintf("%s %s", order, hold)] = true
		}
		if i%8 == 0 {
			send(undo)
		}
		send(cmd)
		if i%5 == 0 {
			cmd.ID = keys.NewMessageID()
			send(cmd)
		}
		if i%8 == 4 {
			send(undo)
		}
	}

	cons, err := conn.JetStream().CreateConsumer(t.Context(), "RPL", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	for len(missing) > 0 {
		msg, err := cons.Next(jetstream.FetchMaxWait(20 * time.Second))
		if err != nil {
			t.Fatalf("reading replies: %d are missing: %v", len(missing), err)
		}
		m, err := messaging.Parse(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil {
			t.Fatal(err)
		}
		if err := msg.Ack(); err != nil {
			t.Fatal(err)
		}
		delete(missing, fmt.Sprintf("%s %s", m.AggregateID, m.StepName))
	}
	events := make(map[uuid.UUID][]int64)
	cons, err = conn.JetStream().CreateConsumer(t.Context(), "EVT", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := cons.FetchNoWait(10 * orders)
	if err != nil {
		t.Fatal(err)
	}
	for msg := range batch.Messages() {
		m, err := messaging.Parse(msg.Subject(), msg.Headers(), msg.Data())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(events[m.AggregateID], m.AggregateSeq) {
			events[m.AggregateID] = append(events[m.AggregateID], m.AggregateSeq)
		}
	}
	for order, undone := range undone {
		if undone {
			d.is(order, release, StateDone)
		} else {
			d.is(order, hold, StateDone)
		}
		seqs := events[order]
		if len(seqs) == 0 || !slices.IsSorted(seqs) || seqs[0] != 1 || seqs[len(seqs)-1] != int64(len(seqs)) {
			t.Errorf("events of %s: got %v, want 1, 2, … in sequence", order, seqs)
		}
	}
}
