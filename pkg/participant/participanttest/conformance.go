package participanttest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Keeper is a store with what the suite needs to look at it from outside.
type Keeper struct {
	participant.Store
	// Pass lets time pass for the store.
	Pass func(time.Duration)
	// Outbox gives the ids of the messages that were written about an order, sorted.
	Outbox func(order uuid.UUID) []uuid.UUID
}

const (
	lease  = 15 * time.Second
	settle = 2 * time.Second
)

// TestStore checks that a store does what participant.Store says. open gives an empty one for each part.
func TestStore(t *testing.T, open func(*testing.T) Keeper) {
	for name, test := range map[string]func(*examiner){
		"TakesIn":                     (*examiner).takesIn,
		"TakesInOnce":                 (*examiner).takesInOnce,
		"TakesInAllOrNothing":         (*examiner).takesInAllOrNothing,
		"KeepsTombstones":             (*examiner).keepsTombstones,
		"ClaimsWhatIsDue":             (*examiner).claimsWhatIsDue,
		"RecordsUnderItsToken":        (*examiner).recordsUnderItsToken,
		"RecordsAllOrNothing":         (*examiner).recordsAllOrNothing,
		"RecordsWhatIsLeftToDo":       (*examiner).recordsWhatIsLeftToDo,
		"WaitsForOwners":              (*examiner).waitsForOwners,
		"WaitsForWhatHasNoAnswer":     (*examiner).waitsForWhatHasNoAnswer,
		"DoesNotWaitForWhatHasEnded":  (*examiner).doesNotWaitForWhatHasEnded,
		"ClosesWhatWasUndone":         (*examiner).closesWhatWasUndone,
		"MovesRowsByCompareAndSet":    (*examiner).movesRowsByCompareAndSet,
		"LeavesLateResultsOutOfQueue": (*examiner).leavesLateResultsOutOfQueue,
		"ClaimsFreshOnly":             (*examiner).claimsFreshOnly,
		"FollowsUp":                   (*examiner).followsUp,
		"FollowsUpWhatIsBeingCalled":  (*examiner).followsUpWhatIsBeingCalled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &examiner{T: t, Keeper: open(t), order: uuid.New()}
			test(x)
		})
	}
}

type examiner struct {
	*testing.T
	Keeper
	order uuid.UUID
}

func (x *examiner) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatalf("writing: %v", err)
	}
}

func (x *examiner) conflict(err error) {
	x.Helper()
	if got := postgres.Classify(err); err == nil || got != postgres.Conflict {
		x.Errorf("writing what has moved: got %v (%s), want a conflict", err, got)
	}
}

func (x *examiner) key(step string) participant.Key {
	return participant.Key{OrderID: x.order, StepName: step}
}

// intent makes an intent, leased if it has an owner.
func (x *examiner) intent(step, kind, owner string) *participant.Record {
	return &participant.Record{
		OrderID: x.order, StepName: step, Kind: kind, State: participant.StatePending, CommandID: keys.NewMessageID(), CommandType: "test.Act",
		Payload: []byte("payload"), IdempotencyKey: "key-1", LastSeen: keys.NewMessageID(), LeaseOwner: owner,
		Trace: telemetry.Carrier{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b"},
	}
}

// begin takes an action in, leased if it has an owner.
func (x *examiner) begin(step, owner string) {
	x.Helper()
	x.must(x.TakeIn(x.Context(), &participant.Intake{Lease: lease, Intents: []*participant.Record{x.intent(step, participant.KindAction, owner)}}))
}

func (x *examiner) bury(step string) {
	x.Helper()
	x.must(x.TakeIn(x.Context(), &participant.Intake{Lease: lease, Tombstones: []participant.Key{x.key(step)}}))
}

func (x *examiner) find(step string) participant.Record {
	x.Helper()
	r, ok, err := x.Find(x.Context(), x.order, step)
	if err != nil || !ok {
		x.Fatalf("finding %s: got %t, %v", step, ok, err)
	}
	return r
}

func (x *examiner) now() time.Time {
	x.Helper()
	l, err := x.Load(x.Context(), nil, nil)
	if err != nil {
		x.Fatalf("loading: %v", err)
	}
	return l.Now
}

// claim claims and checks what it gets.
func (x *examiner) claim(limit int, want ...string) participant.Claimed {
	x.Helper()
	got, err := x.Claim(x.Context(), "other", lease, []string{"act", "move", "undo", "check"}, limit, false)
	if err != nil {
		x.Fatalf("claiming: %v", err)
	}
	var names []string
	for _, r := range got.Steps {
		names = append(names, r.StepName)
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		x.Errorf("claimed: got %v, want %v", names, want)
	}
	return got
}

func (x *examiner) record(ends ...participant.End) error {
	return x.Record(x.Context(), &participant.Findings{Ends: ends})
}

func (x *examiner) flying(want bool, actions ...string) {
	x.Helper()
	got, err := x.InFlight(x.Context(), x.order, actions, settle)
	if err != nil || got != want {
		x.Errorf("in flight: got %t, %v, want %t", got, err, want)
	}
}

func (x *examiner) takesIn() {
	message := keys.NewMessageID()
	row := participant.Row{Aggregate: outbox.Aggregate{ID: x.order}}
	chain := row.Begin(uuid.Nil)
	row.Append(&chain, messaging.Message{Kind: messaging.Reply, Subject: "rpl.order.x", Type: "test.Reply", Source: "/p", StepName: "act"})
	leased, queued := x.intent("act", participant.KindAction, "me"), x.intent("undo", participant.KindUndo, "")
	x.must(x.TakeIn(x.Context(), &participant.Intake{
		Lease: lease, Intents: []*participant.Record{queued, leased}, Changes: []participant.Change{{Row: row}},
		Chains: []outbox.Chain{chain}, Marks: []uuid.UUID{message},
	}))
	l, err := x.Load(x.Context(), []uuid.UUID{x.order, uuid.New()}, []uuid.UUID{message, keys.NewMessageID()})
	x.must(err)
	if len(l.Steps) != 2 || len(l.Rows) != 1 || len(l.Seen) != 1 || !l.Seen[message] {
		x.Fatalf("loaded: got %d steps, %d rows, %v, want 2, 1, the message", len(l.Steps), len(l.Rows), l.Seen)
	}
	got := l.Steps[x.key("act")]
	if got.Kind != participant.KindAction || got.State != participant.StatePending || got.CommandID != leased.CommandID || got.CommandType != "test.Act" ||
		string(got.Payload) != "payload" || got.IdempotencyKey != "key-1" || got.LastSeen != leased.LastSeen || got.Trace != leased.Trace {
		x.Errorf("intent: got %+v, want %+v", got, leased)
	}
	if got.LeaseOwner != "me" || got.Token != 1 || got.Attempts != 1 || got.FirstAttemptAt == nil || !got.FirstAttemptAt.Equal(l.Now) ||
		got.DueAt == nil || !got.DueAt.Equal(l.Now.Add(lease)) || got.Undone() || got.ReplyID != uuid.Nil {
		x.Errorf("leased intent: got %+v, want the first attempt of me", got)
	}
	got = l.Steps[x.key("undo")]
	if got.LeaseOwner != "" || got.Token != 0 || got.Attempts != 0 || got.FirstAttemptAt != nil || got.DueAt == nil || !got.DueAt.Equal(l.Now) {
		x.Errorf("intent: got %+v, want one that is due", got)
	}
	if r := l.Rows[x.order]; r.Revision != 1 || r.Aggregate != row.Aggregate {
		x.Errorf("business row: got %+v, want revision 1 of %+v", r, row)
	}
	if ids := x.Outbox(x.order); !slices.Equal(ids, []uuid.UUID{chain.Messages[0].ID}) {
		x.Errorf("outbox: got %v, want %s", ids, chain.Messages[0].ID)
	}
	if _, ok, err := x.Find(x.Context(), x.order, "none"); ok || err != nil {
		x.Errorf("a step that is not: got %t, %v, want nothing", ok, err)
	}
}

func (x *examiner) takesInOnce() {
	x.begin("act", "me")
	x.conflict(x.TakeIn(x.Context(), &participant.Intake{Lease: lease, Intents: []*participant.Record{x.intent("act", participant.KindAction, "")}}))
	x.bury("move")
	x.conflict(x.TakeIn(x.Context(), &participant.Intake{Lease: lease, Intents: []*participant.Record{x.intent("move", participant.KindAction, "")}}))
	if r := x.find("move"); r.State != participant.StateRefused || r.CommandID != uuid.Nil {
		x.Errorf("tombstone after the late action: got %+v, want it unchanged", r)
	}
	message := keys.NewMessageID()
	x.must(x.TakeIn(x.Context(), &participant.Intake{Marks: []uuid.UUID{message}}))
	if err := x.TakeIn(x.Context(), &participant.Intake{Marks: []uuid.UUID{message}}); !postgres.IsUniqueViolation(err, inbox.Constraint) {
		x.Errorf("a message again: got %v, want a violation of %s", err, inbox.Constraint)
	}
}

func (x *examiner) takesInAllOrNothing() {
	x.begin("act", "")
	message := keys.NewMessageID()
	row := participant.Row{Aggregate: outbox.Aggregate{ID: x.order}}
	x.conflict(x.TakeIn(x.Context(), &participant.Intake{
		Lease: lease, Intents: []*participant.Record{x.intent("move", participant.KindAction, ""), x.intent("act", participant.KindAction, "")},
		Changes: []participant.Change{{Row: row}}, Marks: []uuid.UUID{message},
	}))
	l, err := x.Load(x.Context(), []uuid.UUID{x.order}, []uuid.UUID{message})
	x.must(err)
	if len(l.Steps) != 1 || len(l.Rows) != 0 || len(l.Seen) != 0 {
		x.Errorf("after a unit that failed: got %d steps, %d rows, %d messages, want 1, 0, 0", len(l.Steps), len(l.Rows), len(l.Seen))
	}
}

func (x *examiner) keepsTombstones() {
	x.begin("act", "me")
	x.begin("move", "")
	x.must(x.TakeIn(x.Context(), &participant.Intake{
		Lease: lease, Intents: []*participant.Record{x.intent("undo", participant.KindUndo, "")},
		Tombstones: []participant.Key{x.key("act"), x.key("gone"), x.key("move")},
	}))
	at := x.now()
	if r := x.find("gone"); r.Kind != participant.KindAction || r.State != participant.StateRefused || r.Reason != participant.ReasonUndone || !r.Undone() || r.DueAt != nil {
		x.Errorf("tombstone of what never came: got %+v, want it refused as undone", r)
	}
	if r := x.find("move"); !r.Undone() || r.DueAt != nil || r.State != participant.StatePending {
		x.Errorf("tombstone of what was due: got %+v, want it pending and not due", r)
	}
	if r := x.find("act"); !r.Undone() || r.DueAt == nil || r.LeaseOwner != "me" {
		x.Errorf("tombstone of what is being called: got %+v, want its lease kept", r)
	}
	x.Pass(time.Hour)
	x.bury("act")
	if r := x.find("act"); !r.UndoneAt.Equal(at) {
		x.Errorf("undone at: got %s, want the first time %s", r.UndoneAt, at)
	}
	x.claim(10, "undo")
}

func (x *examiner) claimsWhatIsDue() {
	x.begin("act", "me")
	x.begin("strange", "")
	x.Pass(time.Second)
	x.begin("move", "")
	x.claim(0)
	x.claim(10, "move")
	if r := x.find("move"); r.LeaseOwner != "other" || r.Token != 1 || r.Attempts != 1 || !r.DueAt.Equal(x.now().Add(lease)) || !r.UpdatedAt.Equal(x.now()) {
		x.Errorf("claimed: got %+v, want the first attempt of other", r)
	}
	first := *x.find("act").FirstAttemptAt
	x.Pass(lease - time.Second - time.Microsecond)
	x.claim(10)
	x.Pass(time.Microsecond)
	got := x.claim(1, "act")
	if r := got.Steps[0]; r.LeaseOwner != "other" || r.Token != 2 || r.Attempts != 2 || !r.FirstAttemptAt.Equal(first) || !got.Now.Equal(x.now()) {
		x.Errorf("taken over: got %+v at %s, want the second attempt", r, got.Now)
	}
	x.Pass(2 * lease)
	x.claim(1, "move") // the longest due
}
