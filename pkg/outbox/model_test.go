package outbox_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/outbox"
)

// instance is one process of a service: its own connection and relay. It dies without grace and comes back.
type instance struct {
	pool   *pgxpool.Pool
	server *natsserver.Server

	mu    sync.Mutex
	relay *outbox.Relay // nil while it is dead
	die   func()
}

func (i *instance) live(t *testing.T) {
	conn, err := messaging.Connect(messaging.Config{URL: i.server.URL()})
	if err != nil {
		t.Error(err)
		return
	}
	// Half of what is written waits for the sweep that follows; rows stay long enough to be published again.
	relay := outbox.NewRelay(i.pool, conn, outbox.Config{
		SweepInterval: 10 * time.Millisecond, SweepAge: 50 * time.Millisecond, FlushHorizon: 20 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = relay.Run(ctx, ctx) })
	i.mu.Lock()
	defer i.mu.Unlock()
	i.relay = relay
	i.die = func() {
		conn.Close() // first, so that hand-offs are cut in the middle
		cancel()
		running.Wait()
	}
}

func (i *instance) handOff(chains []outbox.Chain) {
	i.mu.Lock()
	relay := i.relay
	i.mu.Unlock()
	if relay != nil {
		relay.HandOff(chains)
	}
}

func (i *instance) kill() {
	i.mu.Lock()
	die := i.die
	i.relay, i.die = nil, nil
	i.mu.Unlock()
	if die != nil {
		die()
	}
}

// Three instances write about a few aggregates, hand off, forget to, answer what they have seen in the stream or not, and die
// at random. Whatever happens, the first sights of the events of each aggregate are in sequence, and none is missing.
func TestFirstSightsStayInSequence(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	pool, server := newPool(t), newServer(t)
	watcher := connect(t, server)
	wait, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := watcher.WaitConnected(wait); err != nil {
		t.Fatal(err)
	}
	// The stream hardly remembers ids, so that repeats are in it, too.
	cfg := jetstream.StreamConfig{Name: all.Name, Subjects: all.Subjects, Duplicates: 100 * time.Millisecond}
	if _, err := watcher.JetStream().CreateStream(wait, cfg); err != nil {
		t.Fatal(err)
	}

	seen := newSightings()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = watcher.Consume(ctx, ctx, messaging.ConsumerConfig{Stream: all.Name, Name: "w"}, seen.note)
	})

	instances := make([]*instance, 3)
	for n := range instances {
		instances[n] = &instance{pool: pool, server: server}
		instances[n].live(t)
	}
	deadline := time.Now().Add(3 * time.Second)
	var writing sync.WaitGroup
	var proven, chainCount atomic.Int64
	for n := range 12 {
		id := uuid.New()
		writing.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			var last uuid.UUID
			for time.Now().Before(deadline) {
				var proof uuid.UUID
				if r.IntN(4) > 0 && seen.await(id, last, 150*time.Millisecond) {
					proof = last // as the answer to the command brings it
				}
				messages := []messaging.Message{event(), event(), command()}[r.IntN(2):]
				chains, err := change(t.Context(), pool, id, proof, messages...)
				if err != nil {
					t.Errorf("writing: %v", err)
					return
				}
				last = lastOf(chains)
				chainCount.Add(1)
				if chains[0].Proven {
					proven.Add(1)
				}
				if r.IntN(8) > 0 {
					instances[r.IntN(len(instances))].handOff(chains)
				}
			}
		})
	}
	writing.Go(func() {
		r := rand.New(rand.NewPCG(seed, 1000))
		for time.Now().Before(deadline) {
			i := instances[r.IntN(len(instances))]
			i.kill()
			i.live(t)
			pauseFor(time.Duration(r.IntN(200)) * time.Millisecond)
		}
	})
	writing.Wait()

	want := count(t, pool, `SELECT sum(event_seq) FROM thing`)
	eventually(t, "everything is published and removed", func() bool { return pending(t, pool) == 0 })
	eventually(t, "everything is seen", func() bool { return seen.events() >= want })
	for _, i := range instances {
		i.kill()
	}
	stop()
	watching.Wait()
	found := stream(t, watcher, all.Name)
	wantEventOrder(t, found, want)
	t.Logf("%d events in %d chains, %d of them proven; %d messages in the stream", want, chainCount.Load(), proven.Load(), len(found))
	if p := proven.Load(); p < 10 || p == chainCount.Load() {
		t.Errorf("got %d proven of %d chains: the test says little", p, chainCount.Load())
	}
}

// pauseFor waits on a timer: the time between two deaths is part of the model.
func pauseFor(d time.Duration) { <-time.After(d) }

// sightings is what a consumer has seen.
type sightings struct {
	mu       sync.Mutex
	commands map[uuid.UUID]uuid.UUID     // the newest command of an aggregate
	waiting  map[uuid.UUID]chan struct{} // of aggregates, closed at the next command
	seen     map[uuid.UUID]bool          // events
}

func newSightings() *sightings {
	return &sightings{
		commands: make(map[uuid.UUID]uuid.UUID), waiting: make(map[uuid.UUID]chan struct{}), seen: make(map[uuid.UUID]bool),
	}
}

func (s *sightings) note(_ context.Context, batch []messaging.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		d := &batch[i]
		if d.Kind == messaging.Event {
			s.seen[d.ID] = true
		} else {
			s.commands[d.AggregateID] = d.ID
			if ch, ok := s.waiting[d.AggregateID]; ok {
				close(ch)
				delete(s.waiting, d.AggregateID)
			}
		}
		_ = d.Ack()
	}
}

// await waits until a command was seen, at most for a time, and tells whether it was.
func (s *sightings) await(aggregate, command uuid.UUID, most time.Duration) bool {
	timeout := time.After(most)
	for {
		s.mu.Lock()
		if s.commands[aggregate] == command {
			s.mu.Unlock()
			return true
		}
		ch, ok := s.waiting[aggregate]
		if !ok {
			ch = make(chan struct{})
			s.waiting[aggregate] = ch
		}
		s.mu.Unlock()
		select {
		case <-ch:
		case <-timeout:
			return false
		}
	}
}

func (s *sightings) events() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}
