package sagasim

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
)

// sweepAge is how old a row is when the sweep takes it for left behind.
const sweepAge = outbox.DefaultSweepAge

// relay is a model of outbox.Relay, which is bound to a real broker: hand-off from memory of what is proven, a sweep of the
// rest, and rows that go only when the broker cannot have forgotten them. What is proven, and the sequence within a chain, are
// decided by the code that production runs. Package outbox has tests of its own for the real one.
type relay struct {
	service *service
	rows    []*row
	// open is the session that a full sweep was made in. Only in that one is handed off.
	open int
	// sweeper is who sweeps now.
	sweeper *actor
}

// row is a message in the outbox.
type row struct {
	*messaging.Message
	left    bool // to the sweep
	written time.Time
	by      *instance // who has its acknowledgement
	acked   time.Time
	session int
}

// written adds what a transaction has written.
func (r *relay) written(chains []outbox.Chain) {
	for _, c := range chains {
		for at := range c.Messages {
			m := c.Messages[at]
			r.rows = append(r.rows, &row{Message: &m, left: !c.Proven, written: r.service.world.now})
		}
	}
}

// settle removes the rows that are safe by now.
func (r *relay) settle() {
	w := r.service.world
	r.rows = slices.DeleteFunc(r.rows, func(x *row) bool {
		return r.sound(x) && !x.acked.Add(flushHorizon).After(w.now)
	})
}

// sound tells whether a row's acknowledgement is known to somebody, and counts.
func (r *relay) sound(x *row) bool {
	return x.by != nil && x.by.alive && x.session == r.service.world.broker.session
}

// died forgets what an instance knew.
func (r *relay) died(i *instance) {
	i.alive = true
	r.settle()
	i.alive = false
}

// due tells when the sweep is to take a row; false if never.
func (r *relay) due(x *row) (time.Time, bool) {
	switch {
	case r.sound(x):
		return time.Time{}, false
	case x.left, r.open != r.service.world.broker.session:
		return x.written, true
	}
	return x.written.Add(sweepAge), true
}

func (r *relay) possible(into []move) []move {
	s := r.service
	if r.sweeper != nil && !r.sweeper.over && !r.sweeper.inst.frozen.After(s.world.now) {
		return into
	}
	wanted := r.open != s.world.broker.session
	for _, x := range r.rows {
		at, ok := r.due(x)
		wanted = wanted || ok && !at.After(s.world.now)
	}
	free := s.free(func(i *instance) **actor { return &i.sweeping })
	if !wanted || len(free) == 0 {
		return into
	}
	return append(into, move{run: func() {
		i := free[s.world.pick(len(free))]
		i.sweeping = i.spawn(time.Time{}, nil, func(ctx context.Context) { r.sweep(ctx, i) })
		r.sweeper = i.sweeping
	}})
}

func (r *relay) times(see func(time.Time)) {
	for _, x := range r.rows {
		if at, ok := r.due(x); ok {
			see(at)
		}
	}
}

// handOff publishes what is proven, each chain by itself.
func (r *relay) handOff(i *instance, chains []outbox.Chain) {
	w := r.service.world
	session := w.broker.session
	if r.open != session {
		return
	}
	for _, c := range chains {
		if !c.Proven || len(c.Messages) == 0 {
			continue
		}
		rows := make([]*row, 0, len(c.Messages))
		for _, m := range c.Messages {
			if at := slices.IndexFunc(r.rows, func(x *row) bool { return x.ID == m.ID }); at >= 0 {
				rows = append(rows, r.rows[at])
			}
		}
		i.spawn(time.Time{}, nil, func(ctx context.Context) { r.publish(ctx, i, session, rows) })
	}
}

// publish sends rows one after another, each after the acknowledgement of the one before, as long as the session lasts.
func (r *relay) publish(ctx context.Context, i *instance, session int, rows []*row) bool {
	w := r.service.world
	a := actorOf(ctx)
	for _, x := range rows {
		if x.Kind != messaging.Event {
			a.steps = []string{x.StepName}
		} else {
			a.steps = nil
		}
		sent := false
		err := a.do(edgePublish, func() {
			if w.broker.session != session {
				return
			}
			w.logf("%s publishes %s %s", i.name, x.Subject, x.Outcome)
			w.broker.store(x.Message)
			if w.fault(w.rates.ackLost, a.steps...) {
				return // its acknowledgement does not come
			}
			x.by, x.acked, x.session, sent = i, w.now, session, true
		})
		if err != nil || !sent {
			return false
		}
	}
	return true
}

// sweep publishes all pending rows of the aggregates that have one which is due, or of all if the session is new.
func (r *relay) sweep(ctx context.Context, i *instance) {
	w := r.service.world
	a := actorOf(ctx)
	var session int
	var chains [][]*row
	full := false
	if a.do(edgeRead, func() {
		r.settle()
		session = w.broker.session
		full = r.open != session
		chains = r.pending(full)
	}) != nil {
		return
	}
	good := true
	for _, c := range chains {
		good = r.publish(ctx, i, session, c) && good
	}
	if full && good {
		_ = a.do(edgeRead, func() { r.open = session }) // a death leaves it to the next
	}
}

// pending groups rows by aggregate: events by sequence, then the others by their id.
func (r *relay) pending(all bool) [][]*row {
	w := r.service.world
	var chains [][]*row
	var ids []uuid.UUID
	for _, x := range r.rows {
		if at, ok := r.due(x); (all || ok && !at.After(w.now)) && !slices.Contains(ids, x.AggregateID) {
			ids = append(ids, x.AggregateID)
		}
	}
	for _, id := range ids {
		var c []*row
		for _, x := range r.rows {
			if x.AggregateID == id && (all || !r.sound(x)) {
				c = append(c, x)
			}
		}
		slices.SortStableFunc(c, func(a, b *row) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.AggregateSeq, b.AggregateSeq), slices.Compare(a.ID[:], b.ID[:]))
		})
		chains = append(chains, c)
	}
	return chains
}

func rank(x *row) int {
	if x.Kind == messaging.Event {
		return 0
	}
	return 1
}
