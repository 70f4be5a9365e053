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
	got, err := x.Claim(x.Context(), "other", lease, []string{"act", "move", "undo"}, limit)
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

func (x *examiner) recordsUnderItsToken() {
	x.begin("act", "me")
	reply := keys.NewMessageID()
	x.Pass(time.Second)
	done := participant.End{
		Key: x.key("act"), Token: 1, State: participant.StateDone, Reference: "ref", ResultType: "test.Done", Result: []byte("result"), ReplyID: reply,
	}
	x.must(x.record(done))
	r := x.find("act")
	if r.State != participant.StateDone || r.Reference != "ref" || r.ResultType != "test.Done" || string(r.Result) != "result" || r.ReplyID != reply ||
		r.LeaseOwner != "" || r.DueAt != nil || r.Token != 2 || !r.UpdatedAt.Equal(x.now()) {
		x.Errorf("recorded: got %+v, want it done", r)
	}
	x.conflict(x.record(done)) // once
	x.begin("move", "me")
	x.Pass(lease)
	x.claim(10, "move")
	x.conflict(x.record(participant.End{Key: x.key("move"), Token: 1, State: participant.StateDone}))
	if r := x.find("move"); r.State != participant.StatePending || r.LeaseOwner != "other" {
		x.Errorf("after the result of an owner that lost its lease: got %+v, want it with the new owner", r)
	}
	x.conflict(x.record(participant.End{Key: x.key("gone"), Token: 0, State: participant.StateDone}))
}

func (x *examiner) recordsAllOrNothing() {
	x.begin("act", "me")
	x.begin("move", "me")
	row := participant.Row{Aggregate: outbox.Aggregate{ID: x.order}}
	x.conflict(x.Record(x.Context(), &participant.Findings{
		Ends:    []participant.End{{Key: x.key("act"), Token: 1, State: participant.StateDone}, {Key: x.key("move"), Token: 7, State: participant.StateDone}},
		Changes: []participant.Change{{Row: row}},
	}))
	if r := x.find("act"); r.State != participant.StatePending || r.Token != 1 {
		x.Errorf("step of a unit that failed: got %+v, want it unchanged", r)
	}
	rows, tokens, err := x.Reload(x.Context(), []uuid.UUID{x.order})
	if err != nil || len(rows) != 0 || len(tokens) != 2 || tokens[x.key("act")] != 1 {
		x.Errorf("reloaded: got %d rows, tokens %v, %v, want no row, and the tokens", len(rows), tokens, err)
	}
}

func (x *examiner) recordsWhatIsLeftToDo() {
	x.begin("act", "me")
	wait := time.Minute
	x.must(x.record(participant.End{Key: x.key("act"), Token: 1, State: participant.StatePending, Again: &wait, Reference: "ref", LastError: "timeout"}))
	if r := x.find("act"); r.DueAt == nil || !r.DueAt.Equal(x.now().Add(wait)) || r.LastError != "timeout" || r.Attempts != 1 || r.FirstAttemptAt == nil {
		x.Errorf("unknown: got %+v, want it due in a minute", r)
	}
	x.Pass(wait)
	token := x.claim(10, "act").Steps[0].Token
	x.must(x.record(participant.End{Key: x.key("act"), Token: token, State: participant.StatePending, Again: &wait, Deferred: true}))
	if r := x.find("act"); r.Attempts != 1 || r.FirstAttemptAt == nil || r.Reference != "ref" {
		x.Errorf("put off: got %d attempts, reference %q, want 1, and the one on record", r.Attempts, r.Reference)
	}
	x.begin("move", "me")
	x.must(x.record(participant.End{Key: x.key("move"), Token: 1, State: participant.StatePending, Again: &wait, Deferred: true}))
	if r := x.find("move"); r.Attempts != 0 || r.FirstAttemptAt != nil {
		x.Errorf("put off before the first attempt: got %d attempts, first at %v, want none", r.Attempts, r.FirstAttemptAt)
	}
}

func (x *examiner) waitsForOwners() {
	x.begin("act", "me")
	x.flying(false, "act") // without a tombstone it is none of an undo's business
	x.bury("act")
	x.flying(true, "act", "gone")
	x.Pass(lease + settle - time.Microsecond)
	x.flying(true, "act")
	x.claim(10)
	if r := x.find("act"); r.Token != 1 {
		x.Errorf("token while in flight: got %d, want 1", r.Token)
	}
	x.Pass(time.Microsecond)
	x.flying(false, "act")
	if r := x.find("act"); r.LeaseOwner != "" || r.DueAt != nil || r.Token != 2 || r.State != participant.StatePending {
		x.Errorf("owner whose time is over: got %+v, want him shut out", r)
	}
	x.conflict(x.record(participant.End{Key: x.key("act"), Token: 1, State: participant.StateDone}))
	x.flying(false, "act")
}

func (x *examiner) waitsForWhatHasNoAnswer() {
	x.begin("act", "me")
	wait := time.Minute
	x.must(x.record(participant.End{Key: x.key("act"), Token: 1, State: participant.StatePending, Again: &wait}))
	x.bury("act")
	x.flying(true, "act")
	x.Pass(settle - time.Microsecond)
	x.flying(true, "act")
	x.Pass(time.Microsecond)
	x.flying(false, "act")
}

func (x *examiner) doesNotWaitForWhatHasEnded() {
	x.begin("act", "me")
	x.must(x.record(participant.End{Key: x.key("act"), Token: 1, State: participant.StateDone}))
	x.begin("move", "")
	x.bury("act")
	x.bury("move")
	x.bury("gone")
	x.flying(false, "act", "gone", "move")
}

func (x *examiner) closesWhatWasUndone() {
	x.begin("act", "me")
	x.must(x.record(participant.End{Key: x.key("act"), Token: 1, State: participant.StateDone, Reference: "ref"}))
	x.begin("move", "")
	x.begin("other", "")
	x.must(x.TakeIn(x.Context(), &participant.Intake{
		Lease: lease, Intents: []*participant.Record{x.intent("undo", participant.KindUndo, "me")},
		Tombstones: []participant.Key{x.key("act"), x.key("move")},
	}))
	x.must(x.Record(x.Context(), &participant.Findings{
		Ends:   []participant.End{{Key: x.key("undo"), Token: 1, State: participant.StateDone}},
		Undone: []participant.Key{x.key("act"), x.key("move"), x.key("other"), x.key("gone")},
	}))
	if r := x.find("act"); r.State != participant.StateDone || !r.Undone() {
		x.Errorf("what was done: got %s, want it done and undone", r.State)
	}
	if r := x.find("move"); r.State != participant.StateRefused || r.Reason != participant.ReasonUndone || r.DueAt != nil || r.Token != 1 {
		x.Errorf("what had no outcome: got %+v, want it refused as undone, under another token", r)
	}
	if r := x.find("other"); r.State != participant.StatePending {
		x.Errorf("what has no tombstone: got %s, want it pending", r.State)
	}
}

func (x *examiner) movesRowsByCompareAndSet() {
	row := participant.Row{Aggregate: outbox.Aggregate{ID: x.order, EventSeq: 1}}
	x.must(x.TakeIn(x.Context(), &participant.Intake{Changes: []participant.Change{{Row: row}}}))
	if err := x.TakeIn(x.Context(), &participant.Intake{Changes: []participant.Change{{Row: row}}}); !postgres.IsUniqueViolation(err) {
		x.Errorf("a business row again: got %v, want a unique violation", err)
	}
	row.Revision, row.EventSeq, row.LastMessageID = 1, 5, keys.NewMessageID()
	x.must(x.Record(x.Context(), &participant.Findings{Changes: []participant.Change{{Row: row}}}))
	x.conflict(x.Record(x.Context(), &participant.Findings{Changes: []participant.Change{{Row: row}}}))
	rows, _, err := x.Reload(x.Context(), []uuid.UUID{x.order})
	x.must(err)
	if got := rows[x.order]; got.Revision != 2 || got.Aggregate != row.Aggregate {
		x.Errorf("business row: got %+v, want revision 2 of %+v", got, row)
	}
	x.begin("act", "")
	if got := x.claim(10, "act"); got.Rows[x.order] == nil || got.Rows[x.order].Revision != 2 {
		x.Errorf("business row of a claim: got %+v, want revision 2", got.Rows[x.order])
	}
}

func (x *examiner) leavesLateResultsOutOfQueue() {
	x.begin("act", "me")
	x.bury("act")
	wait := time.Second
	x.must(x.record(participant.End{Key: x.key("act"), Token: 1, State: participant.StatePending, Again: &wait, LastError: "timeout"}))
	if r := x.find("act"); r.DueAt != nil {
		x.Errorf("unknown of what was undone: got due at %s, want never", r.DueAt)
	}
	x.Pass(time.Hour)
	x.claim(10)
}
