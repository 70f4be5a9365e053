package sagasim

import (
	"context"
	"slices"
	"time"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/saga"
)

const (
	instances = 2
	ackWait   = 30 * time.Second
	maxRaces  = 60
	batchMax  = 3
)

// parts are what an instance of a service runs: an engine, or a runner.
type parts struct {
	engine *saga.Engine[data]
	runner *participant.Runner
}

// service is one service: its instances, its queue at the broker, and its outbox.
type service struct {
	world     *world
	name      string
	instances []*instance
	count     int
	queue     *queue
	relay     *relay
	build     func(*instance) parts
	// due gives when the next timer or step is due; false if none is.
	due     func() (time.Time, bool)
	stopped bool
	// dealt counts in how many transactions each message was dealt with.
	dealt map[[16]byte]int
}

func (w *world) newService(name string, build func(*instance) parts, due func() (time.Time, bool)) *service {
	s := &service{world: w, name: name, build: build, due: due, queue: w.broker.queue(name), dealt: make(map[[16]byte]int)}
	s.relay = &relay{service: s}
	w.services = append(w.services, s)
	return s
}

func (s *service) start() {
	for range instances {
		s.instances = append(s.instances, s.newInstance())
	}
}

func (s *service) newInstance() *instance {
	s.count++
	i := &instance{service: s, alive: true, name: s.name + " " + string(rune('A'-1+s.count%26))}
	i.parts = s.build(i)
	return i
}

// replace puts another instance where one has died.
func (s *service) replace(dead *instance) {
	at := slices.Index(s.instances, dead)
	s.relay.died(dead)
	if s.stopped {
		s.instances = slices.Delete(s.instances, at, at+1)
		return
	}
	s.instances[at] = s.newInstance()
	s.instances[at].frozen = s.world.now.Add(s.world.seconds(8)) // the time that a start takes
}

// free lists the instances in whose slot nothing runs.
func (s *service) free(slot func(*instance) **actor) []*instance {
	var list []*instance
	for _, i := range s.instances {
		if *slot(i) == nil && !i.frozen.After(s.world.now) {
			list = append(list, i)
		}
	}
	return list
}

func handling(i *instance) **actor  { return &i.handling }
func claiming(i *instance) **actor  { return &i.claiming }
func recording(i *instance) **actor { return &i.recording }
func firing(i *instance) **actor    { return &i.firing }

// possible adds what the service can begin now.
func (s *service) possible(into []move) []move {
	w := s.world
	if free := s.free(handling); len(free) > 0 {
		for _, m := range s.queue.visible(w.now) {
			into = append(into, move{run: func() { s.deliver(free[w.pick(len(free))], m) }})
		}
	}
	if at, ok := s.due(); ok && !at.After(w.now) {
		slot := claiming
		if s.name == orderName {
			slot = firing
		}
		if free := s.free(slot); len(free) > 0 {
			into = append(into, move{run: func() { s.look(free[w.pick(len(free))]) }})
		}
	}
	for _, i := range s.free(recording) {
		if i.results > 0 {
			into = append(into, move{run: func() {
				i.recording = i.spawn(time.Time{}, nil, func(ctx context.Context) {
					n := i.parts.runner.Record(ctx)
					i.results -= n
				})
			}})
		}
	}
	return s.relay.possible(into)
}

// times gives the times at which the service can begin something.
func (s *service) times(see func(time.Time)) {
	s.queue.times(see)
	if at, ok := s.due(); ok {
		see(at)
	}
	s.relay.times(see)
}

// look claims what is due, or fires timers.
func (s *service) look(i *instance) {
	if s.name == orderName {
		i.firing = i.spawn(time.Time{}, nil, func(ctx context.Context) {
			if _, err := i.parts.engine.FireTimers(ctx); err != nil && ctx.Err() == nil {
				s.world.failf("firing timers: %w", err)
			}
		})
		return
	}
	i.claiming = i.spawn(time.Time{}, nil, func(ctx context.Context) {
		if _, err := i.parts.runner.Claim(ctx); err != nil && ctx.Err() == nil {
			s.world.failf("claiming: %w", err)
		}
	})
}

// deliver hands a message, and perhaps others that are there, to an instance.
func (s *service) deliver(i *instance, first *stored) {
	w := s.world
	batch := []*stored{first}
	for _, m := range s.queue.visible(w.now) {
		// A consumer's processor gives of two copies the first only.
		same := func(other *stored) bool { return other.ID == m.ID }
		if len(batch) < batchMax && !slices.ContainsFunc(batch, same) && w.pick(2) == 1 {
			batch = append(batch, m)
		}
	}
	steps := make([]string, len(batch))
	for at, m := range batch {
		s.queue.noteOvertaken(m, w)
		m.visible = w.now.Add(ackWait)
		m.deliveries++
		steps[at] = m.StepName
	}
	w.logf("%s gets %v", i.name, steps)
	i.handling = i.spawn(time.Time{}, steps, func(ctx context.Context) {
		if s.apply(ctx, i, batch) {
			s.acknowledge(ctx, batch)
		}
	})
}

// apply deals with a batch as inbox.Processor does.
func (s *service) apply(ctx context.Context, i *instance, batch []*stored) bool {
	deliveries := make([]messaging.Delivery, len(batch))
	for at, m := range batch {
		deliveries[at] = messaging.NewDelivery(*m.Message, m.deliveries)
	}
	apply := s.applyOf(i)
	for range maxRaces {
		err := apply(ctx, deliveries)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			for _, m := range batch {
				if s.dealt[m.ID] == 0 {
					s.world.failf("%s is about to acknowledge a message about %s that no transaction has dealt with", s.name, m.StepName)
				}
			}
			return true
		case inbox.Blame(err) != inbox.Race:
			s.world.failf("%s cannot deal with a message: %w", s.name, err)
			return false
		}
		s.world.hit(raced, actorOf(ctx).steps...)
	}
	s.world.failf("%s has lost %d races for a batch", s.name, maxRaces)
	return false
}

func (s *service) applyOf(i *instance) inbox.Apply {
	if i.parts.engine != nil {
		return i.parts.engine.ApplyReplies
	}
	return i.parts.runner.ApplyCommands
}

func (s *service) acknowledge(ctx context.Context, batch []*stored) {
	w := s.world
	a := actorOf(ctx)
	_ = a.do(edgeAck, func() { // a death leaves it to the broker
		for _, m := range batch {
			if w.fault(w.rates.ackLost, m.StepName) {
				w.hit(ackLost, m.StepName)
				continue
			}
			s.queue.remove(m)
		}
	})
}

// HandOff makes an instance's relay: it publishes chains from memory.
func (i *instance) HandOff(chains []outbox.Chain) { i.service.relay.handOff(i, chains) }

// marked notes the messages that a transaction has dealt with.
func (s *service) marked(ids [][16]byte) {
	for _, id := range ids {
		if s.dealt[id]++; s.dealt[id] > 1 {
			s.world.failf("%s has dealt with message %x twice", s.name, id)
		}
	}
}
