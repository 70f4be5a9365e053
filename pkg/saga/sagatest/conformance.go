package sagatest

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Keeper is a store with what the suite needs to look at it from outside.
type Keeper struct {
	saga.Store
	// Pass lets time pass for the store.
	Pass func(time.Duration)
	// Outbox gives the ids of the messages that were written about a saga, sorted.
	Outbox func(id uuid.UUID) []uuid.UUID
	// Histories tells how many transitions of a saga were written; nil if the store keeps none.
	Histories func(id uuid.UUID) int
}

// TestStore checks that a store does what saga.Store says. open gives an empty one for each part.
func TestStore(t *testing.T, open func(*testing.T) Keeper) {
	for name, test := range map[string]func(*examiner){
		"BeginsAndLoads":        (*examiner).beginsAndLoads,
		"BeginsOnce":            (*examiner).beginsOnce,
		"MovesByCompareAndSet":  (*examiner).movesByCompareAndSet,
		"WritesAllOrNothing":    (*examiner).writesAllOrNothing,
		"DealsWithMessagesOnce": (*examiner).dealsWithMessagesOnce,
		"KeepsOpenSteps":        (*examiner).keepsOpenSteps,
		"KeepsTimers":           (*examiner).keepsTimers,
		"KeepsFailures":         (*examiner).keepsFailures,
		"LeavesStrangePlans":    (*examiner).leavesStrangePlans,
		"LeavesOutWhatIsNot":    (*examiner).leavesOutWhatIsNot,
		"GivesCopies":           (*examiner).givesCopies,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&examiner{T: t, Keeper: open(t)})
		})
	}
}

type examiner struct {
	*testing.T
	Keeper
}

func (x *examiner) commit(u *saga.Unit) {
	x.Helper()
	if err := x.Commit(x.Context(), u); err != nil {
		x.Fatalf("committing: %v", err)
	}
}

func (x *examiner) load(sagas, messages []uuid.UUID) saga.Loaded {
	x.Helper()
	l, err := x.Load(context.WithoutCancel(x.Context()), sagas, messages)
	if err != nil {
		x.Fatalf("loading: %v", err)
	}
	return l
}

// born stores a new saga and gives it as it is loaded.
func (x *examiner) born() *saga.Record {
	x.Helper()
	r := record()
	x.commit(&saga.Unit{Births: []*saga.Record{r}})
	return x.load([]uuid.UUID{r.ID}, nil).Sagas[r.ID]
}

// plan is that of all sagas here.
var plan = saga.Plan{Name: "place-order", Version: 3, Hash: []byte{1, 2, 3}}

func record() *saga.Record {
	id := uuid.New()
	at := Epoch.Add(5 * time.Second)
	return &saga.Record{
		Instance: saga.Instance{
			ID: id, Definition: plan.Name, Version: plan.Version, Hash: plan.Hash, IdempotencyKey: "key-1", Status: saga.Running,
			Steps: []saga.StepState{{Name: "a", Phase: saga.Sent, Attempts: 1, Asked: 2, Detail: []byte{7}, Since: Epoch, Due: at}, {Name: "b"}},
			Seen:  map[string]uuid.UUID{"p": keys.NewMessageID()}, Armed: at, Revision: 1,
		},
		Data:      []byte("data"),
		Aggregate: outbox.Aggregate{ID: id, EventSeq: 4, LastMessageID: keys.NewMessageID()},
		Trace:     telemetry.Carrier{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b"},
	}
}

// chain is a chain of one event.
func chain(r *saga.Record) outbox.Chain {
	c := r.Aggregate.Begin(uuid.Nil)
	r.Aggregate.Append(&c, messaging.Message{
		Kind: messaging.Event, Subject: "evt.sale.begun", Type: "test.Begun", Source: "/sale", IdempotencyKey: "key-1",
	})
	return c
}

func (x *examiner) beginsAndLoads() {
	r := record()
	c := chain(r)
	x.commit(&saga.Unit{
		Births: []*saga.Record{r}, Chains: []outbox.Chain{c}, Set: []saga.Timer{{Due: r.Armed, SagaID: r.ID}},
		Histories: []saga.History{{SagaID: r.ID, Revision: 1, Transitions: []saga.Transition{{To: "running", Cause: "started"}, {Step: "a", To: "sent", Attempt: 1}}}},
	})
	l := x.load([]uuid.UUID{r.ID}, nil)
	got := l.Sagas[r.ID]
	if got == nil {
		x.Fatal("the saga is not there")
	}
	if got.Revision != 1 || got.Status != saga.Running || got.Definition != "place-order" || got.Version != 3 || !slices.Equal(got.Hash, r.Hash) ||
		got.IdempotencyKey != "key-1" || !slices.Equal(got.Data, r.Data) || got.Aggregate != r.Aggregate || got.Trace != r.Trace {
		x.Errorf("record: got %+v, want %+v", got, r)
	}
	if !got.CreatedAt.Equal(l.Now) || !got.UpdatedAt.Equal(l.Now) {
		x.Errorf("created and updated at: got %s and %s, want the store's time %s", got.CreatedAt, got.UpdatedAt, l.Now)
	}
	x.sameState(got, r)
	if ids := x.Outbox(r.ID); !slices.Equal(ids, []uuid.UUID{c.Messages[0].ID}) {
		x.Errorf("outbox: got %v, want %v", ids, c.Messages[0].ID)
	}
	if x.Histories != nil && x.Histories(r.ID) != 2 {
		x.Errorf("transitions: got %d, want 2", x.Histories(r.ID))
	}
}

func (x *examiner) sameState(got, want *saga.Record) {
	x.Helper()
	same := func(a, b saga.StepState) bool {
		if !a.Since.Equal(b.Since) || !a.Due.Equal(b.Due) {
			return false
		}
		a.Since, a.Due = b.Since, b.Due
		return reflect.DeepEqual(a, b)
	}
	if !slices.EqualFunc(got.Steps, want.Steps, same) {
		x.Errorf("steps: got %+v, want %+v", got.Steps, want.Steps)
	}
	if !got.Armed.Equal(want.Armed) || len(got.Seen) != len(want.Seen) || got.Seen["p"] != want.Seen["p"] {
		x.Errorf("armed and seen: got %s, %v, want %s, %v", got.Armed, got.Seen, want.Armed, want.Seen)
	}
}

func (x *examiner) beginsOnce() {
	r := x.born()
	again := record()
	again.ID, again.Aggregate.ID, again.Data = r.ID, r.ID, []byte("other data")
	other := record()
	err := x.Commit(x.Context(), &saga.Unit{Births: []*saga.Record{other, again}})
	if !postgres.IsUniqueViolation(err) {
		x.Errorf("beginning a saga twice: got %v, want a unique violation", err)
	}
	l := x.load([]uuid.UUID{r.ID, other.ID}, nil)
	if got := l.Sagas[r.ID]; string(got.Data) != "data" {
		x.Errorf("data: got %q, want that of the first", got.Data)
	}
	if l.Sagas[other.ID] != nil {
		x.Error("the other saga of a unit that failed is there")
	}
}

func (x *examiner) movesByCompareAndSet() {
	r := x.born()
	id := []uuid.UUID{r.ID}
	late := x.load(id, nil).Sagas[r.ID]
	x.Pass(time.Minute)
	r.Status, r.Reason, r.Attention = saga.Compensating, "refused", "a person"
	r.Steps[0] = saga.StepState{Name: "a", Phase: saga.Refused, Reason: "why", Attention: "a person", Since: Epoch}
	r.Armed, r.Aggregate.EventSeq = time.Time{}, 9
	x.commit(&saga.Unit{Updates: []*saga.Record{r}})
	l := x.load(id, nil)
	got := l.Sagas[r.ID]
	if got.Revision != 2 || got.Status != saga.Compensating || got.Reason != "refused" || got.Attention != "a person" || got.Aggregate.EventSeq != 9 {
		x.Errorf("saga: got %+v, want revision 2, as it was stored", got)
	}
	if !got.UpdatedAt.Equal(l.Now) || got.CreatedAt.Equal(l.Now) {
		x.Errorf("times: got created at %s, updated at %s, now %s", got.CreatedAt, got.UpdatedAt, l.Now)
	}
	x.sameState(got, r)
	late.Status = saga.Completed
	x.conflict(x.Commit(x.Context(), &saga.Unit{Updates: []*saga.Record{late}}))
	if got := x.load(id, nil).Sagas[r.ID]; got.Status != saga.Compensating || got.Revision != 2 {
		x.Errorf("saga after the conflict: got %s at revision %d, want compensating at 2", got.Status, got.Revision)
	}
	missing := record()
	x.conflict(x.Commit(x.Context(), &saga.Unit{Updates: []*saga.Record{missing}}))
}

func (x *examiner) conflict(err error) {
	x.Helper()
	if got := postgres.Classify(err); err == nil || got != postgres.Conflict {
		x.Errorf("writing what has moved: got %v (%s), want a conflict", err, got)
	}
}

func (x *examiner) writesAllOrNothing() {
	moved, whole := x.born(), x.born()
	x.commit(&saga.Unit{Updates: []*saga.Record{moved}}) // and so moved.Revision is old
	message, due := keys.NewMessageID(), whole.Armed
	whole.Status = saga.Completed
	err := x.Commit(x.Context(), &saga.Unit{
		Updates: []*saga.Record{whole, moved}, Chains: []outbox.Chain{chain(whole)}, Marks: []uuid.UUID{message},
		Set: []saga.Timer{{Due: due, SagaID: whole.ID}},
	})
	x.conflict(err)
	l := x.load([]uuid.UUID{whole.ID}, []uuid.UUID{message})
	if got := l.Sagas[whole.ID]; got.Status != saga.Running || got.Revision != 1 {
		x.Errorf("saga of a unit that failed: got %s at revision %d, want running at 1", got.Status, got.Revision)
	}
	if l.Seen[message] {
		x.Error("the message of a unit that failed counts as dealt with")
	}
	if ids := x.Outbox(whole.ID); len(ids) != 0 {
		x.Errorf("outbox of a unit that failed: got %v, want nothing", ids)
	}
	x.Pass(time.Hour)
	x.due(10)
}

func (x *examiner) dealsWithMessagesOnce() {
	r := x.born()
	first, second := keys.NewMessageID(), keys.NewMessageID()
	x.commit(&saga.Unit{Updates: []*saga.Record{r}, Marks: []uuid.UUID{first}})
	r = x.load([]uuid.UUID{r.ID}, nil).Sagas[r.ID]
	err := x.Commit(x.Context(), &saga.Unit{Updates: []*saga.Record{r}, Marks: []uuid.UUID{second, first}})
	if !postgres.IsUniqueViolation(err, inbox.Constraint) {
		x.Errorf("dealing with a message again: got %v, want a violation of %s", err, inbox.Constraint)
	}
	l := x.load([]uuid.UUID{r.ID}, []uuid.UUID{first, second})
	if !l.Seen[first] || l.Seen[second] {
		x.Errorf("seen: got %v, want the first only", l.Seen)
	}
	if got := l.Sagas[r.ID].Revision; got != 2 {
		x.Errorf("revision: got %d, want 2", got)
	}
}

func (x *examiner) keepsTimers() {
	now := x.load(nil, nil).Now
	if now.IsZero() {
		now = x.load([]uuid.UUID{x.born().ID}, nil).Now
	}
	a, b := uuid.New(), uuid.New()
	soon, later, last := now.Add(time.Second), now.Add(2*time.Second), now.Add(time.Hour)
	x.commit(&saga.Unit{Set: []saga.Timer{{Due: last, SagaID: a}, {Due: later, SagaID: b}, {Due: soon, SagaID: a}}})
	x.commit(&saga.Unit{Set: []saga.Timer{{Due: later, SagaID: b}}}) // again
	x.due(10)
	x.Pass(2 * time.Second)
	x.due(10, saga.Timer{Due: soon, SagaID: a}, saga.Timer{Due: later, SagaID: b})
	x.due(1, saga.Timer{Due: soon, SagaID: a})
	x.commit(&saga.Unit{Fired: []saga.Timer{{Due: soon, SagaID: a}, {Due: later, SagaID: a}}, Set: []saga.Timer{{Due: soon, SagaID: b}}})
	x.due(10, saga.Timer{Due: soon, SagaID: b}, saga.Timer{Due: later, SagaID: b})
	x.commit(&saga.Unit{Fired: []saga.Timer{{Due: later, SagaID: b}}, Set: []saga.Timer{{Due: later, SagaID: b}}})
	x.due(10, saga.Timer{Due: soon, SagaID: b}, saga.Timer{Due: later, SagaID: b})
}

func (x *examiner) due(limit int, want ...saga.Timer) {
	x.Helper()
	x.dueOf([]saga.Plan{plan}, limit, want...)
}

func (x *examiner) dueOf(plans []saga.Plan, limit int, want ...saga.Timer) {
	x.Helper()
	got, err := x.Due(x.Context(), plans, limit)
	same := func(a, b saga.Timer) bool {
		return a.SagaID == b.SagaID && a.Due.Equal(b.Due) && a.Failures == b.Failures
	}
	if err != nil || !slices.EqualFunc(got, want, same) {
		x.Errorf("timers due, at most %d: got %v, %v, want %v", limit, got, err, want)
	}
}

// keepsOpenSteps has two steps that are under way side by side.
func (x *examiner) keepsOpenSteps() {
	r := x.born()
	r.Steps = []saga.StepState{
		{Name: "a", Phase: saga.Sent, Attempts: 2, Asked: 1, Since: Epoch, Due: Epoch.Add(time.Minute)},
		{Name: "b", Phase: saga.Waiting, Attempts: 1, Since: Epoch.Add(time.Second), Due: Epoch.Add(time.Hour), Detail: []byte("what for")},
		{Name: "c"},
	}
	r.Seen = map[string]uuid.UUID{"p": keys.NewMessageID(), "q": keys.NewMessageID()}
	c, d := chain(r), chain(r)
	c.Messages = append(c.Messages, d.Messages...)
	x.commit(&saga.Unit{Updates: []*saga.Record{r}, Chains: []outbox.Chain{c}})
	got := x.load([]uuid.UUID{r.ID}, nil).Sagas[r.ID]
	x.sameState(got, r)
	if got.Seen["q"] != r.Seen["q"] {
		x.Errorf("seen: got %v, want %v", got.Seen, r.Seen)
	}
	if ids := x.Outbox(r.ID); len(ids) != 2 {
		x.Errorf("outbox: got %d messages of one change, want 2", len(ids))
	}
}

func (x *examiner) keepsFailures() {
	r := x.born()
	at := x.load([]uuid.UUID{r.ID}, nil).Now
	first := saga.Timer{Due: at, SagaID: r.ID, Failures: 3}
	x.commit(&saga.Unit{Set: []saga.Timer{first}})
	x.commit(&saga.Unit{Set: []saga.Timer{{Due: at, SagaID: r.ID}}}) // what is there is left as it is
	x.due(10, first)
	second := saga.Timer{Due: at, SagaID: r.ID, Failures: 4}
	x.commit(&saga.Unit{Fired: []saga.Timer{{Due: at, SagaID: r.ID}}, Set: []saga.Timer{second}})
	x.due(10, second)
}

func (x *examiner) leavesStrangePlans() {
	r := x.born()
	timer := saga.Timer{Due: x.load([]uuid.UUID{r.ID}, nil).Now, SagaID: r.ID}
	x.commit(&saga.Unit{Set: []saga.Timer{timer}})
	other, older, changed := plan, plan, plan
	other.Name, older.Version, changed.Hash = "another", plan.Version-1, []byte{9}
	x.dueOf([]saga.Plan{other, older, changed}, 10)
	x.dueOf(nil, 10)
	x.dueOf([]saga.Plan{other, plan}, 10, timer)
	x.due(10, timer)
	r.Status = saga.Completed // nothing is left to do for it, whatever its plan was
	x.commit(&saga.Unit{Updates: []*saga.Record{r}})
	x.dueOf([]saga.Plan{other}, 10, timer)
}

func (x *examiner) leavesOutWhatIsNot() {
	r := x.born()
	l := x.load([]uuid.UUID{uuid.New(), r.ID}, []uuid.UUID{keys.NewMessageID()})
	if len(l.Sagas) != 1 || l.Sagas[r.ID] == nil || len(l.Seen) != 0 {
		x.Errorf("loaded: got %d sagas and %d messages, want the one saga", len(l.Sagas), len(l.Seen))
	}
	x.commit(&saga.Unit{})
}

func (x *examiner) givesCopies() {
	r := x.born()
	r.Steps[0].Phase, r.Seen["q"], r.Status = saga.Done, keys.NewMessageID(), saga.Completed
	got := x.load([]uuid.UUID{r.ID}, nil).Sagas[r.ID]
	if got.Steps[0].Phase != saga.Sent || len(got.Seen) != 1 || got.Status != saga.Running {
		x.Errorf("saga after a change that was not committed: got %+v", got)
	}
}
