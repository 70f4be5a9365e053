package saga_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

// walker takes one saga through any inputs in any order, including those that no sound participant would give, and keeps
// books of its own on what may be believed.
type walker struct {
	d     *saga.Definition[order]
	in    saga.Instance
	now   time.Time
	data  order
	trace []saga.Input

	sent      map[string]bool // commands that were sent
	done      map[string]bool // actions of which a success was heard after they were sent
	refused   map[string]bool // the same for a refusal
	confirmed map[string]bool // undos that were confirmed since their last sending
}

var undoOf = map[string]string{"authorize": "void", "ship": "unship"}

func (w *walker) step(input saga.Input) error {
	w.trace = append(w.trace, input)
	before := w.in
	before.Steps, before.Seen = slices.Clone(w.in.Steps), maps.Clone(w.in.Seen)
	after, effects, err := w.d.Advance(w.in, w.data, input, w.now)
	if !reflect.DeepEqual(w.in, before) {
		return fmt.Errorf("the state before was changed:\n got %s\nwant %s", sagatest.Describe(w.in), sagatest.Describe(before))
	}
	if err != nil && (!reflect.DeepEqual(after, before) || len(effects.Send)+len(effects.Transitions) > 0) {
		return fmt.Errorf("an input that was refused changed something: %w", err)
	}
	for _, c := range effects.Send {
		if w.sent[c.Step] = true; undoOf[c.Step] == "" {
			w.confirmed[c.Step] = false
		}
	}
	switch r := input.(type) {
	case saga.Replied:
		w.hear(r.Step, r.Outcome)
	case saga.Asked:
		switch r.Answer.Finding {
		case saga.FoundDone:
			w.hear(r.Step, saga.OutcomeDone)
		case saga.FoundRefused:
			w.hear(r.Step, saga.OutcomeRefused)
		}
	}
	w.in = after

	// A repeat changes nothing and sends nothing; an answer, which has no identity, may count as another question.
	if _, ok := input.(saga.Asked); !ok {
		again, effects, _ := w.d.Advance(after, w.data, input, w.now)
		if !reflect.DeepEqual(again, after) || len(effects.Send)+len(effects.Transitions) > 0 {
			return fmt.Errorf("a repeat changed something:\n got %s %v\nwant %s", sagatest.Describe(again), effects, sagatest.Describe(after))
		}
	}
	return w.check(effects)
}

func (w *walker) hear(step string, outcome saga.Outcome) {
	undo := undoOf[step] == ""
	switch {
	case !w.sent[step]:
	case outcome == saga.OutcomeRefused:
		w.refused[step] = true
	case outcome == saga.OutcomeDone && undo:
		w.confirmed[step] = true
	case outcome == saga.OutcomeDone:
		w.done[step] = true
	}
}

func (w *walker) check(effects saga.Effects) error {
	if len(effects.Send) > 1 {
		return fmt.Errorf("commands for one input: got %d, want at most 1", len(effects.Send))
	}
	awaited := false
	for _, s := range w.in.Steps {
		waits := s.Phase == saga.Sent || s.Phase == saga.Waiting || s.Phase == saga.Undoing
		awaited = awaited || waits
		if waits == s.Due.IsZero() {
			return fmt.Errorf("deadline of %s, which is %s: got %s", s.Name, s.Phase, s.Due)
		}
		if waits && s.Due.Before(w.now) && len(effects.Send) > 0 && effects.Send[0].Step == s.Name {
			return fmt.Errorf("deadline of %s: got %s, want it after %s", s.Name, s.Due, w.now)
		}
	}
	if !awaited && !w.in.Status.Ended() && w.in.Attention == "" {
		return fmt.Errorf("the saga awaits nothing, has not ended, and tells nobody: %s", sagatest.Describe(w.in))
	}
	switch w.in.Status {
	case saga.Completed:
		for _, s := range w.in.Steps {
			if s.Phase != saga.Done {
				return fmt.Errorf("completed with step %s %s", s.Name, s.Phase)
			}
		}
	case saga.Compensated:
		if w.in.Attention != "" {
			return fmt.Errorf("compensated, but needs a person: %s", w.in.Attention)
		}
		for step, undo := range undoOf {
			nothing := w.refused[step] && !w.done[step]
			if w.sent[step] && !w.confirmed[undo] && !nothing {
				return fmt.Errorf("compensated, but %s was sent, and neither refused nor undone", step)
			}
		}
	case saga.Running:
		for _, undo := range undoOf {
			if w.sent[undo] {
				return fmt.Errorf("running, but %s was sent", undo)
			}
		}
	}
	return nil
}

// random gives an input. Half of them are about what the saga waits for, so that walks get somewhere.
func (w *walker) random(r *rand.Rand) saga.Input {
	steps := []string{"authorize", "void", "ship", "unship", "capture", "dispatch", "thank", "nonsense"}
	step := steps[r.IntN(len(steps))]
	if r.IntN(2) == 0 {
		for _, q := range w.d.Overdue(w.in, w.now.Add(time.Hour)) {
			step = q.Step
		}
	}
	w.now = w.now.Add(time.Duration(r.Int64N(int64(8 * time.Second))))
	outcomes := []saga.Outcome{saga.OutcomeDone, saga.OutcomeDone, saga.OutcomeDone, saga.OutcomeDone, saga.OutcomeRefused, saga.OutcomeWaiting, "nonsense"}
	findings := []saga.Finding{saga.FoundNothing, saga.FoundRunning, saga.FoundWaiting, saga.FoundDone, saga.FoundRefused, saga.Silent, "nonsense"}
	switch n := r.IntN(30); {
	case n == 0:
		return saga.CancelRequested{}
	case n == 1:
		return saga.Started{}
	case n < 20:
		id := uuid.UUID{0: byte(r.IntN(8)), 1: byte(r.IntN(256))}
		return saga.Replied{Step: step, Outcome: outcomes[r.IntN(len(outcomes))], Reason: "no", MessageID: id}
	default:
		return saga.Asked{Step: step, Answer: saga.Answer{Finding: findings[r.IntN(len(findings))], Reason: "no"}}
	}
}

// TestWalks takes sagas through random inputs and checks after each one what must hold whatever happens: above all that no
// saga ends as compensated while a step that was sent is neither undone nor refused.
func TestWalks(t *testing.T) {
	t.Parallel()
	const walks, longest = 5_000, 60
	d := definition(timing)
	data := wrapperspb.String("o")
	ends := make(map[saga.Status]int)
	attention := 0
	for seed := range uint64(walks) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := &walker{d: d, in: d.New(sagatest.ID, "k"), now: sagatest.Epoch, data: data, sent: make(map[string]bool),
			done: make(map[string]bool), refused: make(map[string]bool), confirmed: make(map[string]bool)}
		err := w.step(saga.Started{})
		length := r.IntN(longest)
		for i := 0; i < length && err == nil; i++ {
			err = w.step(w.random(r))
		}
		if err != nil {
			t.Fatalf("seed %d: %v\nafter %+v", seed, err, w.trace)
		}
		ends[w.in.Status]++
		if w.in.Attention != "" {
			attention++
		}
	}
	t.Logf("%d walks ended as %v, %d of them in need of a person", walks, ends, attention)
	for _, status := range []saga.Status{saga.Running, saga.Compensating, saga.Completed, saga.Compensated} {
		if ends[status] < walks/100 {
			t.Errorf("walks that ended %s: got %d of %d, want enough of them to show something", status, ends[status], walks)
		}
	}
}
