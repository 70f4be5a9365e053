package sagasim

import (
	"context"
	"time"
)

// instance is one process of a service. A crash ends it; another takes its place.
type instance struct {
	service *service
	name    string
	alive   bool
	// frozen is until when it stands still.
	frozen time.Time
	actors []*actor
	// What it does one at a time.
	handling, claiming, recording, firing, sweeping *actor
	// results counts calls that have ended and are not recorded.
	results int
	parts   parts
}

// actor is one thread of an instance. It runs in a goroutine of its own, but only while everything else stands still: it stops at
// each operation that others could see or that can fail, until the schedule lets it go on.
type actor struct {
	inst *instance
	// step is what faults of this actor are counted under.
	steps  []string
	body   func(context.Context)
	ctx    *simCtx
	events chan *op // nil is the end
	at     *op      // where it stands
	begun  bool
	over   bool
	turn   uint64 // when it came to stand there
}

// op is an operation that an actor has asked for.
type op struct {
	edge   edge
	exec   func()
	done   bool      // exec has run
	ready  time.Time // the actor does not go on before
	resume chan error
}

// simCtx is a context on the world's clock.
type simCtx struct {
	context.Context
	actor    *actor
	deadline time.Time
}

type actorKey struct{}

func (c *simCtx) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func (c *simCtx) Done() <-chan struct{} { return nil }

func (c *simCtx) Err() error {
	switch {
	case !c.actor.inst.alive:
		return context.Canceled
	case !c.deadline.IsZero() && !c.actor.inst.service.world.now.Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

func (c *simCtx) Value(key any) any {
	if key == (actorKey{}) {
		return c.actor
	}
	return nil
}

func actorOf(ctx context.Context) *actor { return ctx.Value(actorKey{}).(*actor) }

// spawn adds an actor to a living instance. It does not run yet.
func (i *instance) spawn(deadline time.Time, steps []string, body func(context.Context)) *actor {
	a := &actor{inst: i, steps: steps, body: body, events: make(chan *op)}
	a.ctx = &simCtx{Context: context.Background(), actor: a, deadline: deadline}
	if !i.alive {
		a.over = true
		return a
	}
	w := i.service.world
	w.turns++
	a.turn = w.turns
	i.actors = append(i.actors, a)
	return a
}

// do stops the actor at an operation. exec runs when the schedule says so. An error says that the process has died, before or
// after.
func (a *actor) do(e edge, exec func()) error {
	if !a.inst.alive {
		return context.Canceled
	}
	o := &op{edge: e, exec: exec, resume: make(chan error)}
	a.events <- o
	return <-o.resume
}

// sleep stops the actor for a time.
func (a *actor) sleep(d time.Duration) {
	if !a.inst.alive {
		return
	}
	o := &op{edge: edgeNone, exec: func() {}, resume: make(chan error), ready: a.inst.service.world.now.Add(d)}
	a.events <- o
	<-o.resume
}

// await runs on the world's side: the actor goes on until it stops again.
func (a *actor) await() {
	a.at = <-a.events
	w := a.inst.service.world
	w.turns++
	a.turn = w.turns
	if a.at == nil {
		a.over = true
		a.inst.forget(a)
	}
}

func (i *instance) forget(a *actor) {
	for at, other := range i.actors {
		if other == a {
			i.actors = append(i.actors[:at], i.actors[at+1:]...)
			break
		}
	}
	for _, slot := range []**actor{&i.handling, &i.claiming, &i.recording, &i.firing, &i.sweeping} {
		if *slot == a {
			*slot = nil
		}
	}
}

// runnable tells whether the actor can move now.
func (a *actor) runnable() bool {
	w := a.inst.service.world
	return !a.over && !a.inst.frozen.After(w.now) && (a.at == nil || !a.at.ready.After(w.now))
}

// move lets the actor make one move, with what may go wrong at it.
func (a *actor) move() {
	w := a.inst.service.world
	if !a.begun {
		a.begun = true
		go func() {
			a.body(a.ctx)
			a.events <- nil
		}()
		a.await()
		return
	}
	if !a.at.done {
		if a.at.edge.crash && w.fault(w.rates.freeze, a.steps...) {
			w.freeze(a.inst)
			return
		}
		if a.at.edge.crash && w.fault(w.rates.crash, a.steps...) {
			if w.pick(2) == 0 {
				w.hit(crashBefore(a.at.edge), a.steps...)
				w.crash(a.inst)
				return
			}
			a.exec()
			w.hit(crashAfter(a.at.edge), a.steps...)
			w.crash(a.inst)
			return
		}
		a.exec()
		if a.at.ready.After(w.now) || w.chance(w.rates.linger) {
			return // its answer takes its time
		}
	}
	a.at.resume <- nil
	a.await()
}

func (a *actor) exec() {
	a.at.done = true
	a.at.exec()
}

// crash ends an instance, with all that it had in memory.
func (w *world) crash(i *instance) {
	w.logf("%s dies", i.name)
	i.alive = false
	for len(i.actors) > 0 {
		a := i.actors[0]
		if !a.begun {
			a.over = true
			i.forget(a)
			continue
		}
		for !a.over {
			a.at.resume <- context.Canceled
			a.await()
		}
	}
	i.service.replace(i)
}
