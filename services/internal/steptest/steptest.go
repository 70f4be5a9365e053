// Package steptest runs a participant as a whole service in a test: on a database and a JetStream server of its own, with the test
// in the place of the orchestrator. It publishes commands and collects the replies and events that come back.
package steptest

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/topology"
)

// patience is how long a test waits for what must come. It is far above what a slow machine needs.
const patience = 60 * time.Second

// credential is what the service asks for, and the test shows.
const credential = "steptest"

// World is one participant's surroundings.
type World struct {
	T *testing.T
	// DB is the service's database.
	DB *pgxpool.Pool
	// Conn is the test's own connection to the broker.
	Conn *messaging.Conn
	// Config is what every instance of the service is told.
	Config service.Config

	name string

	mu      sync.Mutex
	turned  chan struct{} // closed and replaced when something arrives
	arrived []messaging.Message
}

// New makes the surroundings of the service with that name in subjects. sets are its migrations.
func New(t *testing.T, name string, sets ...postgres.Migrations) *World {
	t.Helper()
	sets = append([]postgres.Migrations{outbox.Migrations(), inbox.Migrations(), participant.Migrations()}, sets...)
	url, broker := pgtest.URL(t, sets...), messagingtest.New(t)
	conn, err := messaging.Connect(messaging.Config{URL: broker.URL(), Name: t.Name()})
	if err != nil {
		t.Fatalf("connecting to the broker: %v", err)
	}
	w := &World{
		T: t, DB: pgtest.Open(t, url), Conn: conn, name: name, turned: make(chan struct{}),
		Config: service.Config{DatabaseURL: url, NATSURL: broker.URL(), ServiceCredential: credential, Grace: 10 * time.Second},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := conn.WaitConnected(ctx); err != nil {
		t.Fatalf("waiting for the broker: %v", err)
	}
	if err := conn.EnsureStreams(ctx, topology.Streams(1)...); err != nil {
		t.Fatalf("ensuring streams: %v", err)
	}
	w.collect()
	return w
}

// collect takes all replies and events.
func (w *World) collect() {
	stop, cancel := context.WithCancel(context.Background())
	var consumers sync.WaitGroup
	for _, stream := range []string{topology.Replies, topology.Events} {
		consumers.Go(func() {
			_ = w.Conn.Consume(stop, stop, messaging.ConsumerConfig{Stream: stream, Name: "steptest-" + stream}, func(_ context.Context, batch []messaging.Delivery) {
				w.mu.Lock()
				defer w.mu.Unlock()
				for i := range batch {
					w.arrived = append(w.arrived, batch[i].Message)
					_ = batch[i].Ack()
				}
				close(w.turned)
				w.turned = make(chan struct{})
			})
		})
	}
	w.T.Cleanup(func() {
		cancel()
		consumers.Wait()
		w.Conn.Close()
	})
}

// Instance is one running instance of the service.
type Instance struct {
	world     *World
	stop, cut context.CancelFunc
	ended     chan error
	// Addresses are where it listens.
	service.Addresses
}

// Start runs an instance of the service, and returns when it takes messages. It is stopped at the end of the test.
func (w *World) Start(run func(context.Context, service.Config, service.Options) error) *Instance {
	w.T.Helper()
	stop, cancelStop := context.WithCancel(context.Background())
	work, cancelWork := context.WithCancel(context.Background())
	in := &Instance{world: w, stop: cancelStop, cut: cancelWork, ended: make(chan error, 1)}
	ready := make(chan service.Addresses, 1)
	go func() {
		in.ended <- run(stop, w.Config, service.Options{
			Logger: slog.New(slog.NewTextHandler(logTo{w.T}, &slog.HandlerOptions{Level: slog.LevelInfo})),
			Work:   work, Ready: func(a service.Addresses) { ready <- a },
		})
	}()
	w.T.Cleanup(in.Stop)
	select {
	case in.Addresses = <-ready:
	case err := <-in.ended:
		w.T.Fatalf("starting the service: %v", err)
	case <-time.After(patience):
		w.T.Fatal("starting the service: it is not ready in time")
	}
	return in
}

// Stop lets the work in hand end.
func (in *Instance) Stop() {
	in.stop()
	if err := <-in.ended; err != nil {
		in.world.T.Errorf("stopping the service: %v", err)
	}
	in.ended <- nil // a second stop finds it stopped
	in.cut()
}

// Kill ends the instance without letting anything end: calls are cut, and what came of them is recorded nowhere. What it leaves
// behind is what a crash leaves behind, its leases too.
func (in *Instance) Kill() {
	in.cut()
	in.stop()
	if err := <-in.ended; err != nil {
		in.world.T.Logf("a killed instance ended with: %v", err)
	}
	in.ended <- nil
}

// Steps dials the instance's StepService.
func (in *Instance) Steps() stepv1.StepServiceClient {
	in.world.T.Helper()
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: in.GRPC, Credential: credential})
	if err != nil {
		in.world.T.Fatalf("dialling the service: %v", err)
	}
	in.world.T.Cleanup(func() { _ = conn.Close() })
	return stepv1.NewStepServiceClient(conn)
}

// logTo writes a service's log into the test's.
type logTo struct{ t *testing.T }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Log(string(p[:max(len(p)-1, 0)]))
	return len(p), nil
}

// Order is one order that the test orchestrates.
type Order struct {
	T     *testing.T
	ID    uuid.UUID
	Key   string
	world *World
}

// Order makes a new order. t is the test, or subtest, that it belongs to.
func (w *World) Order(t *testing.T) *Order {
	key := uuid.NewString()
	return &Order{T: t, ID: keys.OrderID("steptest", key), Key: key, world: w}
}

// Command makes a command for a step of the order.
func (o *Order) Command(step string, payload proto.Message) messaging.Message {
	o.T.Helper()
	encoded, err := proto.Marshal(payload)
	if err != nil {
		o.T.Fatalf("encoding a command: %v", err)
	}
	id := keys.NewMessageID()
	return messaging.Message{
		ID: id, Kind: messaging.Command, Subject: messaging.CommandPrefix + o.world.name + "." + step,
		Type: string(payload.ProtoReflect().Descriptor().FullName()), Source: topology.OrderSource, AggregateID: o.ID,
		IdempotencyKey: o.Key, StepName: step, StepKey: keys.StepKey(o.ID, step), CreatedAt: keys.MessageTime(id), Payload: encoded,
	}
}

// Send publishes a new command.
func (o *Order) Send(step string, payload proto.Message) {
	o.T.Helper()
	o.Publish(o.Command(step, payload))
}

// Publish publishes a command.
func (o *Order) Publish(m messaging.Message) {
	o.T.Helper()
	ctx, cancel := context.WithTimeout(o.T.Context(), patience)
	defer cancel()
	if _, err := o.world.Conn.Publish(ctx, &m).Wait(ctx); err != nil {
		o.T.Fatalf("publishing %s: %v", m.Subject, err)
	}
}

// Ask sends a command and waits for its final reply.
func (o *Order) Ask(step string, payload proto.Message) messaging.Message {
	o.T.Helper()
	o.Send(step, payload)
	return o.Reply(step)
}

// Reply waits for the final reply of a step.
func (o *Order) Reply(step string) messaging.Message {
	o.T.Helper()
	return o.await("a final reply of "+step, func(m *messaging.Message) bool {
		return m.Kind == messaging.Reply && m.StepName == step && m.Outcome != messaging.OutcomeWaiting
	})
}

// Waiting waits for the reply that a step waits for the customer.
func (o *Order) Waiting(step string) messaging.Message {
	o.T.Helper()
	return o.await("a waiting reply of "+step, func(m *messaging.Message) bool {
		return m.Kind == messaging.Reply && m.StepName == step && m.Outcome == messaging.OutcomeWaiting
	})
}

// Event waits for the order's event on a subject.
func (o *Order) Event(subject string) messaging.Message {
	o.T.Helper()
	return o.await("an event on "+subject, func(m *messaging.Message) bool { return m.Kind == messaging.Event && m.Subject == subject })
}

// Events lists the subjects of the order's events that have arrived, each message once, in the order of their arrival, which must
// be that of their sequence.
func (o *Order) Events() []string {
	o.T.Helper()
	var subjects []string
	for _, m := range o.Arrived(messaging.Event) {
		subjects = append(subjects, m.Subject)
		if m.AggregateSeq != int64(len(subjects)) {
			o.T.Errorf("event %s: got Aggregate-Seq %d, want %d", m.Subject, m.AggregateSeq, len(subjects))
		}
	}
	return subjects
}

// Arrived lists the order's messages of a kind that have arrived, each once.
func (o *Order) Arrived(kind messaging.Kind) []messaging.Message {
	o.world.mu.Lock()
	defer o.world.mu.Unlock()
	var list []messaging.Message
	seen := make(map[uuid.UUID]bool)
	for _, m := range o.world.arrived {
		if m.AggregateID == o.ID && m.Kind == kind && !seen[m.ID] {
			seen[m.ID] = true
			list = append(list, m)
		}
	}
	return list
}

// Record reads a step of the order from the service's table.
func (o *Order) Record(step string) participant.Record {
	o.T.Helper()
	r, ok, err := participant.Find(o.T.Context(), o.world.DB, o.ID, step)
	if err != nil || !ok {
		o.T.Fatalf("reading step %s: found %t, %v", step, ok, err)
	}
	return r
}

// Until asks until the answer is yes.
func (o *Order) Until(what string, yes func() bool) {
	o.T.Helper()
	for deadline := time.Now().Add(patience); !yes(); {
		if time.Now().After(deadline) {
			o.T.Fatalf("timed out waiting until %s", what)
		}
		// Each question is a round trip to a server; this only keeps them from taking the whole machine.
		pause(o.T.Context(), 10*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (o *Order) await(what string, match func(*messaging.Message) bool) messaging.Message {
	o.T.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		o.world.mu.Lock()
		for i := range o.world.arrived {
			if m := &o.world.arrived[i]; m.AggregateID == o.ID && match(m) {
				found := *m
				o.world.mu.Unlock()
				return found
			}
		}
		turned := o.world.turned
		o.world.mu.Unlock()
		select {
		case <-turned:
		case <-timeout.C:
			o.T.Fatalf("waiting for %s: it did not come in time", what)
		}
	}
}
