package sagasim

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/saga"
)

const (
	lease  = 15 * time.Second
	settle = 2 * time.Second
	// maxMoves is far more than the longest schedule takes; what needs more does not end.
	maxMoves = 20_000
	// longest is far more than the longest schedule takes on its own clock.
	longest = 12 * time.Hour
)

// rates are probabilities of faults, in thousandths of the operations that they can happen at.
type rates struct {
	crash, lose, repeat, delay, ackLost, request, freeze, jump, silent, linger, disorder int
}

// world is one schedule: everything there is, and one clock for it.
type world struct {
	*choices
	now   time.Time
	rates rates
	left  int // how many more faults there may be
	// focus is the step that all faults meet; empty if they meet any.
	focus  string
	table  Table
	turns  uint64
	moves  int
	log    []string
	loud   bool
	failed error

	broker   *broker
	services []*service // order, payment, shipping
	order    *orderService
	payment  *participantService
	shipping *participantService
	provider *provider
	carrier  *carrier
	orders   []*order
	events   []*event
	requests []*request
	mutation Mutation
	// down tells until when nothing outside answers.
	down      time.Time
	databases Databases
}

// order is one order of the schedule, and what is to happen to it.
type order struct {
	id     uuid.UUID
	amount int64
	plan   *saga.Definition[data]
	script
	// begun: the saga is committed. Then nothing else begins it.
	begun bool
	// accepted: a cancel was.
	accepted bool
	// called: a person will look at it. byHand: he has done something about it himself.
	called, byHand bool
	// last is the saga as it was last committed.
	last saga.Instance
}

// script is what is to go wrong with an order as a matter of business.
type script struct {
	declined      bool // by the bank
	customer      customer
	noSuchAddress bool
	holdExpires   bool // before the capture
	parcelLost    bool // before the dispatch
	dispatchedBy  bool // the carrier dispatches by hand
	cancels       int
}

type customer int

const (
	notNeeded customer = iota
	acts
	staysAway
)

// event is something that happens by itself at a time.
type event struct {
	at   time.Time
	what string
	run  func()
}

func (w *world) after(d time.Duration, what string, run func()) {
	w.events = append(w.events, &event{w.now.Add(d), what, run})
}

func (w *world) logf(format string, args ...any) {
	if w.loud {
		w.log = append(w.log, fmt.Sprintf("%11.6fs  ", w.now.Sub(epoch).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) failf(format string, args ...any) {
	if w.failed == nil {
		w.failed = fmt.Errorf(format, args...)
		w.logf("WRONG: %v", w.failed)
	}
}

// fault says whether something goes wrong now, with what concerns the given steps.
func (w *world) fault(perMille int, steps ...string) bool {
	if w.left <= 0 || w.focus != "" && !slices.Contains(steps, w.focus) || !w.chance(perMille) {
		return false
	}
	w.left--
	return true
}

func (w *world) hit(f fault, steps ...string) {
	w.table.hit(f, steps...)
	w.logf("%s: %v", f, steps)
}

// seconds gives a random time of up to n seconds, in thousandths.
func (w *world) seconds(n int) time.Duration {
	return time.Duration(1+w.pick(min(n*1000, 65000))) * time.Millisecond
}

var epoch = time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)

// move is one thing that can happen now.
type move struct {
	actor *actor
	run   func()
}

func (m move) make() {
	if m.actor != nil {
		m.actor.move()
		return
	}
	m.run()
}

// possible lists what can happen now, what has waited longest first.
func (w *world) possible(into []move) []move {
	for _, r := range w.requests {
		if !r.latest.After(w.now) {
			return append(into, move{run: r.arrive}) // it may not come later
		}
	}
	for _, e := range w.events {
		if !e.at.After(w.now) {
			return append(into, move{run: func() { w.happen(e) }})
		}
	}
	from := len(into)
	for _, s := range w.services {
		for _, i := range s.instances {
			for _, a := range i.actors {
				if a.runnable() {
					into = append(into, move{actor: a})
				}
			}
		}
	}
	slices.SortFunc(into[from:], func(a, b move) int { return int(a.actor.turn) - int(b.actor.turn) }) //nolint:gosec // small
	for _, r := range w.requests {
		into = append(into, move{run: r.arrive})
	}
	for _, s := range w.services {
		into = s.possible(into)
	}
	return into
}

func (w *world) happen(e *event) {
	w.events = slices.DeleteFunc(w.events, func(other *event) bool { return other == e })
	w.logf("%s", e.what)
	e.run()
}

// next is the next time at which something can happen; false if nothing ever will.
func (w *world) next() (at time.Time, ok bool) {
	see := func(t time.Time) {
		if t.After(w.now) && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	for _, r := range w.requests {
		see(r.latest)
	}
	for _, e := range w.events {
		see(e.at)
	}
	for _, s := range w.services {
		for _, i := range s.instances {
			see(i.frozen)
			for _, a := range i.actors {
				if a.at != nil {
					see(a.at.ready)
				}
			}
		}
		s.times(see)
	}
	return at, ok
}

// advance moves the clock to when something happens; false if nothing ever will.
func (w *world) advance() bool {
	at, ok := w.next()
	if ok {
		w.now = at
	}
	return ok
}

// jump lets time pass although something could happen now: everybody is slow. What must happen by some time happens first.
func (w *world) jump() {
	to := w.now.Add(w.seconds(20))
	for _, r := range w.requests {
		if r.latest.Before(to) {
			to = r.latest
		}
	}
	for _, e := range w.events {
		if e.at.Before(to) {
			to = e.at
		}
	}
	if to.After(w.now) {
		w.now = to
		w.logf("time passes")
	}
}

// run takes the schedule to its end.
func (w *world) run() {
	var moves []move
	for w.failed == nil {
		if w.moves++; w.moves > maxMoves || w.now.Sub(w.databases.began) > longest {
			w.failf("it does not end: %s", w.whatIsLeft())
			return
		}
		if w.chance(w.rates.jump) {
			w.jump()
		}
		moves = w.possible(moves[:0])
		if len(moves) == 0 {
			// An instance that stands still with nothing in hand holds up nothing, since others are there.
			if !w.advance() {
				return
			}
			continue
		}
		at := 0
		if w.chance(w.rates.disorder) {
			at = w.pick(len(moves))
		}
		moves[at].make()
	}
}

// freeze lets an instance stand still.
func (w *world) freeze(i *instance) {
	d := w.seconds(40)
	i.frozen = w.now.Add(d)
	w.logf("%s stands still for %s", i.name, d)
	if d <= lease {
		return
	}
	for _, a := range i.actors {
		if a.ctx.deadline.After(w.now) { // a call
			w.hit(ownerFrozen, a.steps...)
		}
	}
}

// stop ends all goroutines of the schedule.
func (w *world) stop() {
	for _, s := range w.services {
		s.stopped = true
		for _, i := range slices.Clone(s.instances) {
			w.loud = false
			w.crash(i)
		}
	}
}
