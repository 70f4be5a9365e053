package participanttest

import (
	"time"

	"github.com/throughline/throughline/pkg/participant"
)

func (x *examiner) claimsFreshOnly() {
	x.begin("act", "me")
	x.Pass(lease)
	x.begin("move", "")
	got, err := x.Claim(x.Context(), "other", lease, []string{"act", "move"}, 10, true)
	if err != nil || len(got.Steps) != 1 || got.Steps[0].StepName != "move" {
		x.Errorf("claimed of what was never attempted: got %+v, %v, want move", got.Steps, err)
	}
	x.claim(10, "act")
}

// follow records the end of act with a check that begins.
func (x *examiner) follow(token int64, after time.Duration) {
	x.Helper()
	x.must(x.Record(x.Context(), &participant.Findings{
		Ends:   []participant.End{{Key: x.key("act"), Token: token, State: participant.StateDone}},
		Follow: []participant.Follow{{Key: x.key("check"), After: after, IdempotencyKey: "key-1"}, {Key: x.key("check"), After: after, IdempotencyKey: "key-1"}},
	}))
}

func (x *examiner) followsUp() {
	x.begin("act", "me")
	x.follow(1, settle)
	at := x.now().Add(settle)
	r := x.find("check")
	if r.Kind != participant.KindCheck || r.State != participant.StatePending || r.DueAt == nil || !r.DueAt.Equal(at) || r.IdempotencyKey != "key-1" || r.Attempts != 0 {
		x.Errorf("check: got %+v, want it pending and due at %s", r, at)
	}
	x.claim(10)
	x.Pass(settle)
	token := x.claim(10, "check").Steps[0].Token
	x.must(x.record(participant.End{Key: x.key("check"), Token: token, State: participant.StateDone}))
	if r := x.find("check"); r.DueAt != nil || r.State != participant.StateDone {
		x.Errorf("check that has ended: got %+v, want it done", r)
	}
	// The undo of the action finds it in doubt, too: the check looks again, and no later than it would have.
	x.follow(2, time.Hour)
	x.follow(3, time.Minute)
	x.follow(4, time.Hour)
	at = x.now().Add(time.Minute)
	if r := x.find("check"); r.State != participant.StatePending || r.DueAt == nil || !r.DueAt.Equal(at) {
		x.Errorf("check that was woken: got %+v, want it pending and due at %s", r, at)
	}
}

func (x *examiner) followsUpWhatIsBeingCalled() {
	x.begin("act", "me")
	x.follow(1, settle)
	x.Pass(settle)
	got := x.claim(10, "check").Steps[0]
	x.follow(2, settle)
	if r := x.find("check"); r.LeaseOwner != "other" || !r.DueAt.Equal(*got.DueAt) || r.Token != got.Token {
		x.Errorf("check that is being called: got %+v, want its lease kept", r)
	}
	x.must(x.record(participant.End{Key: x.key("check"), Token: got.Token, State: participant.StateDone}))
	if r := x.find("check"); r.DueAt == nil || !r.DueAt.Equal(x.now()) {
		x.Errorf("check that was told to look again: got due at %v, want now", r.DueAt)
	}
	token := x.claim(10, "check").Steps[0].Token
	x.must(x.record(participant.End{Key: x.key("check"), Token: token, State: participant.StateDone}))
	if r := x.find("check"); r.DueAt != nil {
		x.Errorf("check that has looked again: got due at %v, want never", r.DueAt)
	}
}
