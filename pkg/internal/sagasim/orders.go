package sagasim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
)

// data is what the sagas here are about.
type data = *wrapperspb.StringValue

const (
	orderName    = "order"
	paymentName  = "payment"
	shippingName = "shipping"
)

// definitions are two versions of one saga, which run side by side: the first has the shape of place-order, and in the second the first two
// steps do not wait for each other.
func definitions() []*saga.Definition[data] {
	to := func(participant, step string) saga.Builder[data] {
		return func(d data) saga.Command { return saga.To(participant, step, wrapperspb.String(d.GetValue())) }
	}
	money := saga.Compensatable(authorize, to(paymentName, authorize), to(paymentName, void))
	goods := saga.Compensatable(create, to(shippingName, create), to(shippingName, cancelShipment))
	pivot, last := saga.Pivot(capture, to(paymentName, capture)), saga.Retriable(dispatch, to(shippingName, dispatch))
	return []*saga.Definition[data]{
		saga.MustDefine("place-order", 1, money, goods, pivot, last),
		saga.MustDefine("place-order", 2, saga.Parallel(money, goods), pivot, last),
	}
}

// projector tells each change of status as an event.
type projector struct{}

func (projector) Events(c saga.Change[data]) ([]messaging.Message, error) {
	if c.Before.Status == c.After.Status {
		return nil, nil
	}
	return []messaging.Message{{Subject: "evt.order." + string(c.After.Status), Type: "sim.Order", Source: "/order"}}, nil
}

func (projector) Queue(*pgx.Batch, []saga.Change[data]) error { return nil }

// orderService is the service that runs the sagas.
type orderService struct {
	*service
	db    sagaDatabase
	plans []*saga.Definition[data]
}

func newOrderService(w *world) *orderService {
	o := &orderService{db: w.databases.order, plans: definitions()}
	o.service = w.newService(orderName, o.build, func() (time.Time, bool) { return o.db.due(w.now) })
	return o
}

func (o *orderService) build(i *instance) parts {
	return parts{engine: saga.NewEngine(saga.Config[data]{
		Store: &sagaStore{service: o.service, db: o.db}, Relay: i, Projector: projector{}, Asker: asker{o.world}, Source: "/order",
		Consumer: consumer, Owner: i.name,
	}, o.plans...)}
}

// begin begins an order's saga, as often as it takes, as a client would.
func (o *orderService) begin(ord *order) {
	w := o.world
	if ord.begun {
		return
	}
	i := o.instances[w.pick(len(o.instances))]
	w.after(30*time.Second, "the client asks again", func() { o.begin(ord) })
	first := []string{authorize}
	if ord.plan.Version() == 2 {
		first = []string{authorize, create}
	}
	i.spawn(time.Time{}, first, func(ctx context.Context) {
		e := i.parts.engine
		b, err := e.Begin(ctx, ord.plan, ord.id, "key-1", wrapperspb.String(ord.id.String()), w.now)
		if err == nil {
			err = e.Start(ctx, b)
		}
		if err != nil && ctx.Err() == nil && !postgres.IsUniqueViolation(err) {
			w.failf("beginning: %w", err)
		}
	})
}

// cancel asks for a saga to be cancelled.
func (o *orderService) cancel(ord *order) {
	w := o.world
	if !ord.begun {
		return
	}
	i := o.instances[w.pick(len(o.instances))]
	for _, s := range ord.last.Steps {
		switch s.Phase {
		case saga.Sent, saga.Waiting:
			w.hit(cancelled, s.Name)
		case saga.Undoing:
			w.hit(cancelled, undoOf(s.Name))
		case saga.Idle, saga.Done, saga.Refused, saga.Undone, saga.UndoRefused, saga.GivenUp:
		}
	}
	i.spawn(time.Time{}, nil, func(ctx context.Context) {
		in, err := i.parts.engine.Cancel(ctx, ord.id, nil)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, saga.ErrTooLate):
			if !slices.ContainsFunc(in.Steps, func(s saga.StepState) bool { return s.Name == capture && s.Phase != saga.Idle }) {
				w.failf("a cancel before the pivot was refused")
			}
		case err != nil:
			w.failf("cancelling: %w", err)
		default:
			ord.accepted = true
		}
	})
}

func undoOf(step string) string {
	switch step {
	case authorize:
		return void
	case create:
		return cancelShipment
	}
	return step
}

const consumer = "consumer"

// sagaDatabase is a saga.Store with what the world asks of it.
type sagaDatabase struct {
	saga.Store
	// at sets the store's clock; due gives the next timer.
	at  func(time.Time)
	due func(now time.Time) (time.Time, bool)
}

// sagaStore stands between engines and their store. Each of its operations is a place where the world may step in.
type sagaStore struct {
	service *service
	db      sagaDatabase
}

func (s *sagaStore) Load(ctx context.Context, sagas, messages []uuid.UUID) (l saga.Loaded, err error) {
	w := s.service.world
	if died := actorOf(ctx).do(edgeRead, func() {
		s.db.at(w.now)
		l, err = s.db.Load(context.Background(), sagas, messages)
		if w.mutation == NoInbox {
			clear(l.Seen)
		}
	}); died != nil {
		return l, died
	}
	return l, err
}

func (s *sagaStore) Due(ctx context.Context, plans []saga.Plan, limit int) (timers []saga.Timer, err error) {
	if died := actorOf(ctx).do(edgeRead, func() {
		s.db.at(s.service.world.now)
		timers, err = s.db.Due(context.Background(), plans, limit)
	}); died != nil {
		return nil, died
	}
	// One saga at a time: an engine asks about several side by side, and here one thing happens after another.
	timers = slices.DeleteFunc(timers, func(t saga.Timer) bool { return t.SagaID != timers[0].SagaID })
	return timers, err
}

func (s *sagaStore) Commit(ctx context.Context, u *saga.Unit) (err error) {
	a := actorOf(ctx)
	if len(u.Updates) == 0 && len(u.Births) == 0 {
		if died := a.do(edgeRead, func() { s.db.at(s.service.world.now); err = s.db.Commit(context.Background(), u) }); died != nil {
			return died
		}
		return err
	}
	if died := a.do(edgeAdvance, func() { err = s.commit(a, u) }); died != nil {
		return died
	}
	return err
}

func (s *sagaStore) commit(a *actor, u *saga.Unit) error {
	w := s.service.world
	s.db.at(w.now)
	written := u.Chains
	err := s.db.Commit(context.Background(), w.mutated(s.db.Store, u))
	if err != nil {
		w.logf("%s: %v", a.inst.name, err)
		return err
	}
	if w.mutation == NoUndoInDoubt || w.mutation == UndoDoneWhenSent {
		written = w.forge(u)
	}
	s.service.relay.written(written)
	s.service.marked(bytesOf(u.Marks))
	for _, r := range slices.Concat(u.Births, u.Updates) {
		w.committed(r)
	}
	for _, h := range u.Histories {
		for _, t := range h.Transitions {
			w.logf("saga %s: %s %q to %q (%s, attempt %d)", h.SagaID.String()[:8], t.Step, t.From, t.To, t.Cause, t.Attempt)
			if t.Attempt > 1 {
				w.hit(sentAgain, t.Step)
			}
		}
	}
	return nil
}

func bytesOf(ids []uuid.UUID) [][16]byte {
	list := make([][16]byte, len(ids))
	for i, id := range ids {
		list[i] = id
	}
	return list
}

// asker asks the participants' stores, as the services do over the network.
type asker struct{ world *world }

var errSilent = errors.New("nobody answers")

func (q asker) Ask(ctx context.Context, participantName string, id uuid.UUID, step string, _ uuid.UUID) (answer saga.Answer, err error) {
	w := q.world
	a := actorOf(ctx)
	a.steps = []string{step}
	if died := a.do(edgeAsk, func() {
		w.hit(asked, step)
		if w.fault(w.rates.silent, step) {
			w.hit(askedInVain, step)
			err = errSilent
			return
		}
		p := w.payment
		if participantName == shippingName {
			p = w.shipping
		}
		p.db.at(w.now)
		var rec participant.Record
		var found bool
		rec, found, err = p.db.Find(context.Background(), id, step)
		answer = answerOf(&rec, found)
		w.logf("%s says of %s: %s", participantName, step, answer.Finding)
	}); died != nil {
		return answer, died
	}
	return answer, err
}

// answerOf says of a step what the services' StepService and its client make of it.
func answerOf(rec *participant.Record, found bool) saga.Answer {
	switch {
	case !found:
		return saga.Answer{Finding: saga.FoundNothing}
	case rec.State == participant.StateDone && rec.Undone():
		return saga.Answer{Finding: saga.FoundRefused, Reason: participant.ReasonUndone}
	case rec.State == participant.StateDone:
		return saga.Answer{Finding: saga.FoundDone}
	case rec.State == participant.StateRefused:
		return saga.Answer{Finding: saga.FoundRefused, Reason: rec.Reason}
	case rec.State == participant.StateWaiting:
		return saga.Answer{Finding: saga.FoundWaiting}
	}
	return saga.Answer{Finding: saga.FoundRunning}
}

// forge is what two known bugs of an engine come to: that the undo of a step in doubt is left out, or that an undo counts as done when
// its command is sent. The saga hears at once that it is done.
func (w *world) forge(u *saga.Unit) []outbox.Chain {
	written := slices.Clone(u.Chains)
	for at := range written {
		written[at].Messages = slices.Clone(written[at].Messages)
		written[at].Messages = slices.DeleteFunc(written[at].Messages, func(m messaging.Message) bool {
			if m.Kind != messaging.Command || m.StepName != void && m.StepName != cancelShipment {
				return false
			}
			inDoubt := slices.ContainsFunc(u.Histories, func(h saga.History) bool {
				return h.SagaID == m.AggregateID && slices.ContainsFunc(h.Transitions, func(t saga.Transition) bool {
					return t.Step == m.StepName && (t.From == string(saga.Sent) || t.From == string(saga.Waiting)) && t.Attempt == 1
				})
			})
			if w.mutation == NoUndoInDoubt && !inDoubt {
				return false
			}
			reply := m
			reply.ID, reply.Kind, reply.Outcome, reply.LastSeen = uuid.New(), messaging.Reply, messaging.OutcomeDone, uuid.Nil
			w.broker.queue(orderName).add(&reply, w.now, w.now)
			return w.mutation == NoUndoInDoubt
		})
	}
	return written
}

// mutated leaves out of a unit what a known bug leaves out.
func (w *world) mutated(db saga.Store, u *saga.Unit) *saga.Unit {
	c := *u
	switch w.mutation {
	case NoInbox:
		c.Marks = nil
	case NoCompareAndSet:
		ids := make([]uuid.UUID, len(u.Updates))
		for i, r := range u.Updates {
			ids[i] = r.ID
		}
		l, err := db.Load(context.Background(), ids, nil)
		if err != nil {
			panic(fmt.Sprintf("reading revisions: %v", err)) // it is in memory
		}
		c.Updates = make([]*saga.Record, len(u.Updates))
		for i, r := range u.Updates {
			moved := *r
			moved.Revision = l.Sagas[r.ID].Revision
			c.Updates[i] = &moved
		}
	}
	return &c
}
