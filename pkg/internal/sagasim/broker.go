package sagasim

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/messaging"
)

// flushHorizon is how long the broker may forget what it has acknowledged.
const flushHorizon = time.Second

// broker keeps commands and replies until they are acknowledged, and what it has seen of events. It knows no message again:
// that it would is worth nothing.
type broker struct {
	world   *world
	queues  map[string]*queue
	session int
	facts   map[fact]uuid.UUID
	heights map[fact]int64 // with seq 0
}

// fact is an event's place.
type fact struct {
	source string
	id     uuid.UUID
	seq    int64
}

// queue is a stream with one consumer.
type queue struct {
	messages []*stored
}

// stored is a message at the broker.
type stored struct {
	*messaging.Message
	at, visible time.Time
	deliveries  uint64
	overtaken   bool
}

func newBroker(w *world) *broker {
	return &broker{world: w, queues: make(map[string]*queue), facts: make(map[fact]uuid.UUID), heights: make(map[fact]int64)}
}

func (b *broker) queue(name string) *queue {
	if b.queues[name] == nil {
		b.queues[name] = &queue{}
	}
	return b.queues[name]
}

// store takes a message.
func (b *broker) store(m *messaging.Message) {
	w := b.world
	if m.Kind == messaging.Event {
		b.see(m)
		return
	}
	name := orderName
	lost, gone, repeated, delayed := replyLost, replyGone, replyRepeated, replyDelayed
	if m.Kind == messaging.Command {
		name = strings.Split(m.Subject, ".")[1]
		lost, gone, repeated, delayed = commandLost, commandGone, commandRepeated, commandDelayed
	}
	q := b.queue(name)
	q.add(m, w.now, w.now)
	if w.fault(w.rates.repeat, m.StepName) {
		w.hit(repeated, m.StepName)
		q.add(m, w.now, w.now)
	}
	if w.fault(w.rates.delay, m.StepName) {
		w.hit(delayed, m.StepName)
		q.messages[len(q.messages)-1].visible = w.now.Add(w.seconds(60))
	}
	if w.fault(w.rates.lose, m.StepName) {
		if w.pick(3) == 1 {
			// Somebody has purged a stream, or a dead letter is never looked at: the sagas must do without.
			w.hit(gone, m.StepName)
			q.messages = slices.DeleteFunc(q.messages, func(other *stored) bool { return other.ID == m.ID })
			for _, s := range w.services {
				s.relay.rows = slices.DeleteFunc(s.relay.rows, func(x *row) bool { return x.ID == m.ID })
			}
			return
		}
		copies := slices.Clone(q.messages[len(q.messages)-1:])
		w.after(time.Duration(w.pick(int(flushHorizon.Milliseconds())))*time.Millisecond, "the broker restarts", func() {
			for _, c := range copies {
				if slices.Contains(q.messages, c) {
					w.hit(lost, m.StepName)
					q.remove(c)
				}
			}
			b.restart()
		})
	}
}

// restart ends all sessions: nobody knows what the broker has kept.
func (b *broker) restart() {
	for _, s := range b.world.services {
		s.relay.settle()
	}
	b.session++
}

// see checks the order of events: the first sights of each aggregate's are in sequence.
func (b *broker) see(m *messaging.Message) {
	at := fact{m.Source, m.AggregateID, m.AggregateSeq}
	height := fact{m.Source, m.AggregateID, 0}
	if known, ok := b.facts[at]; ok {
		if known != m.ID {
			b.world.failf("two events of %s have the sequence number %d: %s", m.Source, m.AggregateSeq, m.Subject)
		}
		return
	}
	if m.AggregateSeq != b.heights[height]+1 {
		b.world.failf("event %d of %s was seen after %d: %s", m.AggregateSeq, m.Source, b.heights[height], m.Subject)
	}
	b.facts[at], b.heights[height] = m.ID, m.AggregateSeq
}

func (q *queue) add(m *messaging.Message, at, visible time.Time) {
	c := *m
	q.messages = append(q.messages, &stored{Message: &c, at: at, visible: visible})
}

func (q *queue) remove(m *stored) {
	q.messages = slices.DeleteFunc(q.messages, func(other *stored) bool { return other == m })
}

func (q *queue) visible(now time.Time) []*stored {
	var list []*stored
	for _, m := range q.messages {
		if !m.visible.After(now) {
			list = append(list, m)
		}
	}
	return list
}

// noteOvertaken notes which messages are passed by one that came later.
func (q *queue) noteOvertaken(by *stored, w *world) {
	for _, m := range q.messages {
		if m == by {
			return
		}
		if m.ID == by.ID || m.overtaken || m.deliveries > 0 {
			continue
		}
		m.overtaken = true
		if m.Kind == messaging.Command {
			w.hit(commandOvertaken, m.StepName)
		} else {
			w.hit(replyOvertaken, m.StepName)
		}
	}
}

func (q *queue) times(see func(time.Time)) {
	for _, m := range q.messages {
		see(m.visible)
	}
}
