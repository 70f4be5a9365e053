package sagatest_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

type text = *wrapperspb.StringValue

func to(participant, step string) saga.Builder[text] {
	return func(d text) saga.Command { return saga.To(participant, step, wrapperspb.String(d.GetValue())) }
}

// plan is what is recorded; each change of it must be found.
func plan(version int, steps ...saga.Step[text]) *saga.Definition[text] {
	if len(steps) == 0 {
		steps = []saga.Step[text]{
			saga.Compensatable("a", to("p", "a"), to("p", "undo_a")), saga.Compensatable("b", to("q", "b"), to("q", "undo_b")),
			saga.Pivot("c", to("p", "c")),
		}
	}
	return saga.MustDefine("s", version, steps...)
}

func TestRecordAndReplay(t *testing.T) {
	t.Parallel()
	done, refused := saga.OutcomeDone, saga.OutcomeRefused
	recorded := sagatest.Record(t, plan(1), sagatest.ID, "key-1", wrapperspb.String("o-1"),
		saga.Asked{Step: "a", Answer: saga.Answer{Finding: saga.FoundNothing}},
		saga.Asked{Step: "a", Answer: saga.Answer{Finding: saga.Silent}},
		saga.Replied{Step: "a", Outcome: done},
		saga.Asked{Step: "b", Answer: saga.Answer{Finding: saga.FoundDone}},
		saga.Replied{Step: "c", Outcome: refused, Reason: "no"},
		saga.Replied{Step: "undo_b", Outcome: refused, Reason: "too_late"},
		saga.Resolved{Decision: saga.MarkDone, Step: "undo_b"},
		saga.CancelRequested{},
		saga.Replied{Step: "undo_a", Outcome: done},
	)
	raw, err := json.Marshal(recorded)
	if err != nil {
		t.Fatal(err)
	}
	read := func() *sagatest.Recording {
		var r sagatest.Recording
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatal(err)
		}
		return &r
	}
	if err := sagatest.Replay(plan(1), read()); err != nil {
		t.Fatalf("replaying on what it was recorded with: %v\n%s", err, raw)
	}
	if n := len(recorded.Events); n != 10 || len(recorded.Events[0].Sent) != 1 || len(recorded.Events[1].Sent) != 1 || len(recorded.Events[2].History) != 0 {
		t.Errorf("recording: got %s, want each event with what followed", raw)
	}

	a, b := saga.Compensatable("a", to("p", "a"), to("p", "undo_a")), saga.Compensatable("b", to("q", "b"), to("q", "undo_b"))
	pivot := saga.Pivot("c", to("p", "c"))
	for name, d := range map[string]*saga.Definition[text]{
		"another version":     plan(2),
		"another sequence":    plan(1, b, a, pivot),
		"a step less":         plan(1, a, pivot),
		"a step more":         plan(1, a, b, pivot, saga.Retriable("d", to("q", "d"))),
		"another undo":        plan(1, a, saga.Compensatable("b", to("q", "b"), to("q", "undo_it")), pivot),
		"another participant": plan(1, a, saga.Compensatable("b", to("x", "b"), to("q", "undo_b")), pivot),
		"side by side":        plan(1, saga.Parallel(a, b), pivot),
		// What no hash tells.
		"another command": plan(1, a, saga.Compensatable("b", func(d text) saga.Command { return saga.To("q", "b", wrapperspb.String("not "+d.GetValue())) }, to("q", "undo_b")), pivot),
		"another message": plan(1, a, saga.Compensatable("b", func(text) saga.Command { return saga.To("q", "b", wrapperspb.Int64(1)) }, to("q", "undo_b")), pivot),
		"another budget":  plan(1, a.Within(saga.Timing{Budget: 1}), b, pivot),
	} {
		if err := sagatest.Replay(d, read()); !errors.Is(err, sagatest.ErrOtherwise) {
			t.Errorf("%s: got %v, want %v", name, err, sagatest.ErrOtherwise)
		}
	}
	for name, change := range map[string]func(*sagatest.Recording){
		"another history": func(r *sagatest.Recording) {
			r.Events[3].History[0] = strings.Replace(r.Events[3].History[0], "done", "refused", 1)
		},
		"a command too many": func(r *sagatest.Recording) { r.Events[2].Sent = []string{"p.a"} },
		"another end":        func(r *sagatest.Recording) { r.State[0].Phase = saga.Refused },
		"an impossible event": func(r *sagatest.Recording) {
			r.Events[1] = sagatest.Recorded{At: r.Events[1].At, Kind: "resolved", Decision: saga.MarkDone}
		},
	} {
		r := read()
		change(r)
		if err := sagatest.Replay(plan(1), r); !errors.Is(err, sagatest.ErrOtherwise) {
			t.Errorf("%s: got %v, want %v", name, err, sagatest.ErrOtherwise)
		}
	}
	r := read()
	r.Events[1].Kind = "dreamt"
	if err := sagatest.Replay(plan(1), r); err == nil {
		t.Error("an event that nobody planned for: got no error, want one")
	}
}
