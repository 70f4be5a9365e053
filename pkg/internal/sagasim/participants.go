package sagasim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/participant/participanttest"
)

// participantService is a service that performs steps.
type participantService struct {
	*service
	db    participantDatabase
	steps []participant.Step
}

func newParticipantService(w *world, name string, db participantDatabase, steps []participant.Step) *participantService {
	p := &participantService{db: db, steps: steps}
	p.service = w.newService(name, p.build, func() (time.Time, bool) { return p.db.due() })
	return p
}

func (p *participantService) build(i *instance) parts {
	r, err := participant.NewRunner(participant.Config{
		Store: &stepStore{service: p.service, db: p.db}, Process: process{i}, Relay: i, Projector: participanttest.Projector{Name: p.name},
		Source: "/" + p.name, ReplySubject: "rpl.order.place-order", Consumer: consumer, Owner: i.name, Lease: lease, Settle: settle,
		Concurrency: 256, // a full channel of results would stop the world
	}, p.steps...)
	if err != nil {
		panic(fmt.Sprintf("making a runner: %v", err)) // the steps are constants
	}
	return parts{runner: r}
}

// process is a participant.Process of the world.
type process struct{ inst *instance }

func (p process) Now() time.Time { return p.inst.service.world.now }

func (p process) Go(_ context.Context, deadline time.Time, call func(context.Context)) {
	p.inst.spawn(deadline, nil, func(ctx context.Context) {
		call(ctx)
		p.inst.results++
	})
}

func (p process) Pause(ctx context.Context, d time.Duration) { actorOf(ctx).sleep(d) }

// participantDatabase is a participant.Store with what the world asks of it.
type participantDatabase struct {
	participant.Store
	at  func(time.Time)
	due func() (time.Time, bool)
	// open lists what is not finished.
	open func() []participant.Record
}

// stepStore stands between runners and their store. Each of its operations is a place where the world may step in.
type stepStore struct {
	service *service
	db      participantDatabase
}

// do makes one operation a move of the world.
func (s *stepStore) do(ctx context.Context, e edge, exec func() error) error {
	var err error
	a := actorOf(ctx)
	if died := a.do(e, func() {
		s.db.at(s.service.world.now)
		if err = exec(); err != nil {
			s.service.world.logf("%s: %v", a.inst.name, err)
		}
	}); died != nil {
		return died
	}
	return err
}

func (s *stepStore) Load(ctx context.Context, orders, messages []uuid.UUID) (l participant.Loaded, err error) {
	err = s.do(ctx, edgeRead, func() error {
		l, err = s.db.Load(context.Background(), orders, messages)
		if s.service.world.mutation == NoInbox {
			clear(l.Seen)
		}
		return err
	})
	return l, err
}

func (s *stepStore) TakeIn(ctx context.Context, in *participant.Intake) error {
	return s.do(ctx, edgeIntake, func() error {
		w := s.service.world
		c := *in
		switch w.mutation {
		case NoInbox:
			c.Marks = nil
		case NoTombstone:
			c.Tombstones = nil
		}
		if err := s.db.TakeIn(context.Background(), &c); err != nil {
			return err
		}
		s.service.relay.written(in.Chains)
		s.service.marked(bytesOf(in.Marks))
		return nil
	})
}

func (s *stepStore) Claim(ctx context.Context, owner string, lease time.Duration, names []string, limit int, fresh bool) (c participant.Claimed, err error) {
	err = s.do(ctx, edgeClaim, func() error {
		before := s.db.owners()
		c, err = s.db.Claim(context.Background(), owner, lease, names, limit, fresh)
		for _, r := range c.Steps {
			s.service.world.logf("%s claims %s, attempt %d", owner, r.StepName, r.Attempts)
			if before[r.Key()] != "" {
				s.service.world.hit(takenOver, r.StepName)
			}
		}
		return err
	})
	return c, err
}

// owners gives the owners of the steps that are not finished.
func (d participantDatabase) owners() map[participant.Key]string {
	owners := make(map[participant.Key]string)
	for _, r := range d.open() {
		owners[r.Key()] = r.LeaseOwner
	}
	return owners
}

func (s *stepStore) InFlight(ctx context.Context, order uuid.UUID, actions []string, settle time.Duration) (flying bool, err error) {
	err = s.do(ctx, edgeFence, func() error {
		if s.service.world.mutation == NoWaiting {
			return nil
		}
		flying, err = s.db.InFlight(context.Background(), order, actions, settle)
		return err
	})
	return flying, err
}

func (s *stepStore) Record(ctx context.Context, f *participant.Findings) error {
	a := actorOf(ctx)
	a.steps = nil
	for _, e := range f.Ends {
		a.steps = append(a.steps, e.StepName)
	}
	return s.do(ctx, edgeRecord, func() error {
		w := s.service.world
		c := *f
		if w.mutation == NoFence {
			c.Ends = s.underAnyToken(f.Ends)
		}
		if err := s.db.Record(context.Background(), &c); err != nil {
			s.lost(f.Ends)
			return err
		}
		for _, e := range f.Ends {
			w.logf("%s records %s: %s %s%s", a.inst.name, e.StepName, e.State, e.Reason, e.LastError)
		}
		s.service.relay.written(f.Chains)
		return nil
	})
}

// lost notes why results could not be recorded.
func (s *stepStore) lost(ends []participant.End) {
	for i, e := range s.underAnyToken(ends) {
		if e.Token != ends[i].Token {
			s.service.world.hit(fencedOut, e.StepName)
		} else {
			s.service.world.hit(raced, e.StepName)
		}
	}
}

// underAnyToken gives ends the tokens that their steps have now.
func (s *stepStore) underAnyToken(ends []participant.End) []participant.End {
	list := make([]participant.End, len(ends))
	for i, e := range ends {
		_, tokens, err := s.db.Reload(context.Background(), []uuid.UUID{e.OrderID})
		if err != nil {
			panic(fmt.Sprintf("reading tokens: %v", err))
		}
		list[i], list[i].Token = e, tokens[e.Key]
	}
	return list
}

func (s *stepStore) Reload(ctx context.Context, orders []uuid.UUID) (rows map[uuid.UUID]*participant.Row, tokens map[participant.Key]int64, err error) {
	err = s.do(ctx, edgeRead, func() error {
		rows, tokens, err = s.db.Reload(context.Background(), orders)
		return err
	})
	return rows, tokens, err
}

func (s *stepStore) Find(ctx context.Context, order uuid.UUID, step string) (r participant.Record, ok bool, err error) {
	err = s.do(ctx, edgeRead, func() error {
		r, ok, err = s.db.Find(context.Background(), order, step)
		return err
	})
	return r, ok, err
}

// request is a request that is on its way to somewhere outside.
type request struct {
	latest time.Time
	arrive func()
}

const (
	// maxPins is fewer than there are keys that a step goes through.
	maxPins = 3
)

var (
	errNoAnswer = errors.New("no answer")
	errBroken   = errors.New("502 bad gateway")
)

// outside makes a call to somewhere outside: effect runs there. What the caller hears need not be what happened.
func outside[T any](ctx context.Context, what string, read bool, effect func() (T, error)) (answer T, err error) {
	a := actorOf(ctx)
	w := a.inst.service.world
	died := a.do(edgeCall, func() {
		if err = ctx.Err(); err != nil {
			return // nothing was sent
		}
		if w.down.After(w.now) {
			if w.pick(2) == 1 {
				_, _ = effect()
			}
			err = errNoAnswer
			return
		}
		if !w.fault(w.rates.request, a.steps...) {
			answer, err = effect()
			w.logf("%s: %s: %v %v", a.inst.name, what, answer, err)
			return
		}
		// It gives up at once, or when its time is over.
		giveUp := w.now
		if w.pick(2) == 1 {
			giveUp = w.now.Add(w.seconds(10))
			if end := a.ctx.deadline; end.Before(giveUp) {
				giveUp = end
			}
		}
		a.at.ready = giveUp
		kind := w.pick(6)
		if read {
			kind = 0
		}
		switch kind {
		case 5:
			if a.inst.service.name != paymentName || w.provider.pins >= maxPins {
				w.hit(requestLost, a.steps...)
				err = errNoAnswer
				break
			}
			w.hit(pinned, a.steps...)
			w.provider.pin = true
			answer, err = effect()
			w.provider.pin = false
		case 0:
			w.hit(requestLost, a.steps...)
			err = errNoAnswer
		case 1:
			w.hit(requestLost, a.steps...)
			err = errBroken
		case 2:
			w.hit(answerLost, a.steps...)
			_, _ = effect()
			err = errNoAnswer
		default:
			w.hit(requestLate, a.steps...)
			err = errNoAnswer
			// It arrives before the settling time has passed, or never.
			r := &request{latest: giveUp.Add(settle - time.Duration(1+w.pick(1900))*time.Millisecond)}
			if r.latest.Before(w.now) {
				r.latest = w.now
			}
			r.arrive = func() {
				w.requests = without(w.requests, r)
				late, failed := effect()
				w.logf("late: %s: %v %v", what, late, failed)
			}
			w.requests = append(w.requests, r)
		}
		w.logf("%s: %s: %v", a.inst.name, what, err)
	})
	if died != nil {
		return answer, died
	}
	return answer, err
}

func without[T comparable](list []T, one T) []T {
	kept := list[:0]
	for _, x := range list {
		if x != one {
			kept = append(kept, x)
		}
	}
	return kept
}
