package participanttest

import (
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
)

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
