package saga_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

// parked plays the saga until a step at or after the pivot waits for a person.
func parked(t *testing.T, step string) story {
	t.Helper()
	return upTo(t, step).FoundUntil(saga.Silent, 30*time.Second).NeedsAttention()
}

// stopped plays the saga until its first undo was refused.
func stopped(t *testing.T) story {
	t.Helper()
	return upTo(t, "capture").Refuse("no_funds").Sent("unship").Refuse("already_dispatched").NeedsAttention()
}

func TestStoriesOfAPersonsDecisions(t *testing.T) {
	t.Parallel()
	stories := map[string]func(*testing.T){
		"nothing to resolve": func(t *testing.T) {
			for _, decision := range []saga.Decision{saga.RetryNow, saga.UndoOtherWay, saga.MarkDone, "sell it"} {
				start(t).Sent("authorize").Resolve(decision, "").NothingToResolve().SentNothingElse()
				upTo(t, "thank").Done().Resolve(decision, "").NothingToResolve().Ended(saga.Completed)
				start(t).Sent("authorize").Refuse("no").Resolve(decision, "").NothingToResolve().Ended(saga.Compensated)
			}
		},
		"not for the step that was named": func(t *testing.T) {
			parked(t, "capture").Resolve(saga.MarkDone, "dispatch").NothingToResolve().NeedsAttention()
			stopped(t).Resolve(saga.MarkDone, "void").NothingToResolve().NeedsAttention()
		},
		"not in a way that there is": func(t *testing.T) {
			parked(t, "capture").Resolve("sell it", "").NothingToResolve().NeedsAttention().SentNothingElse()
		},
		"the pivot is tried again": func(t *testing.T) {
			parked(t, "capture").Resolve(saga.RetryNow, "capture").Sent("capture").NeedsNoAttention().Is(saga.Running).
				Done().Sent("dispatch")
		},
		"the pivot is tried again, with a whole budget, and is parked again": func(t *testing.T) {
			s := parked(t, "capture").Resolve(saga.RetryNow, "").Sent("capture")
			began := s.Now()
			s.FoundUntil(saga.Silent, began.Add(15*time.Second).Sub(sagatest.Epoch)).NeedsNoAttention().
				FoundUntil(saga.Silent, began.Add(20*time.Second).Sub(sagatest.Epoch)).NeedsAttention()
		},
		"the pivot is taken as done": func(t *testing.T) {
			parked(t, "capture").Resolve(saga.MarkDone, "").NeedsNoAttention().Sent("dispatch").Done().Sent("thank").Done().
				Ended(saga.Completed)
		},
		"the last step is taken as done": func(t *testing.T) {
			parked(t, "thank").Resolve(saga.MarkDone, "thank").Ended(saga.Completed)
		},
		"the pivot is given up": func(t *testing.T) {
			parked(t, "capture").Resolve(saga.UndoOtherWay, "capture").Step("capture", saga.GivenUp).Is(saga.Compensating).
				Sent("unship").Done().Sent("void").Done().Ended(saga.Compensated).Because(saga.ReasonGivenUp)
		},
		"what is heard of a pivot that was given up changes nothing": func(t *testing.T) {
			for _, outcome := range []saga.Outcome{saga.OutcomeDone, saga.OutcomeRefused, saga.OutcomeWaiting} {
				parked(t, "capture").Resolve(saga.UndoOtherWay, "").Sent("unship").
					Reply("capture", outcome, "no").SentNothingElse().Step("capture", saga.GivenUp).
					Reply("unship", saga.OutcomeDone, "").Sent("void").Done().
					Reply("capture", outcome, "no").Answer("capture", done).Ended(saga.Compensated)
			}
		},
		"a step after the pivot is given up: the pivot is undone as well": func(t *testing.T) {
			parked(t, "dispatch").Resolve(saga.UndoOtherWay, "").Sent("unship").Done().Sent("void").Done().
				Ended(saga.Compensated).Step("capture", saga.Done).Step("dispatch", saga.GivenUp)
		},
		"a participant cannot say that somebody gave up": func(t *testing.T) {
			start(t).Sent("authorize").Refuse(saga.ReasonGivenUp).Ended(saga.Compensated).Because(saga.ReasonRefused)
		},
		"a refused undo is tried again": func(t *testing.T) {
			stopped(t).Resolve(saga.RetryNow, "unship").Sent("unship").NeedsNoAttention().Step("ship", saga.Undoing).
				Done().Sent("void").Done().Ended(saga.Compensated)
		},
		"a refused undo is tried again and refused again": func(t *testing.T) {
			stopped(t).Resolve(saga.RetryNow, "ship").Sent("unship").Refuse("already_dispatched").NeedsAttention().SentNothingElse()
		},
		"a refused undo is taken as done: the chain goes on": func(t *testing.T) {
			for _, decision := range []saga.Decision{saga.MarkDone, saga.UndoOtherWay} {
				stopped(t).Resolve(decision, "unship").NeedsNoAttention().Step("ship", saga.Undone).Sent("void").Done().
					Ended(saga.Compensated).Because("no_funds")
			}
		},
		"an undo that takes too long is tried again": func(t *testing.T) {
			s := start(t).Sent("authorize").Cancel().Sent("void").FoundUntil(saga.FoundRunning, 30*time.Second).NeedsAttention()
			s.Resolve(saga.RetryNow, "void").Sent("void").NeedsNoAttention().Is(saga.Compensating).Done().Ended(saga.Compensated)
		},
		"an undo that takes too long is taken as done": func(t *testing.T) {
			start(t).Sent("authorize").Cancel().Sent("void").FoundUntil(saga.Silent, 30*time.Second).
				Resolve(saga.MarkDone, "").Ended(saga.Compensated).Reply("void", saga.OutcomeDone, "").Ended(saga.Compensated)
		},
		"a success of the pivot after the end is dealt with": func(t *testing.T) {
			s := upTo(t, "capture").Refuse("no").Sent("unship").Done().Sent("void").Done().Ended(saga.Compensated).
				Reply("capture", saga.OutcomeDone, "").NeedsAttention().Is(saga.Compensating)
			s.Resolve(saga.RetryNow, "").NothingToResolve().NeedsAttention()
			s.Resolve(saga.MarkDone, "capture").Ended(saga.Compensated)
		},
		"what is waited for is kept while it is": func(t *testing.T) {
			s := start(t).Sent("authorize").WaitFor([]byte("a signature"))
			wantDetail(t, s, "a signature")
			wantDetail(t, s.Found(saga.FoundWaiting), "a signature")
			wantDetail(t, s.WaitFor([]byte("two signatures")), "two signatures")
			wantDetail(t, s.Found(saga.FoundNothing).Sent("authorize"), "")
			wantDetail(t, s.WaitFor([]byte("a signature")).Done().Sent("ship"), "")
		},
		"what is waited for is forgotten when the client cancels": func(t *testing.T) {
			wantDetail(t, start(t).Sent("authorize").WaitFor([]byte("a signature")).Cancel().Sent("void"), "")
		},
	}
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t)
		})
	}
}

func wantDetail(t *testing.T, s story, want string) {
	t.Helper()
	if got := string(s.Instance().Steps[0].Detail); got != want {
		t.Errorf("detail: got %q, want %q", got, want)
	}
}

func TestTroubled(t *testing.T) {
	t.Parallel()
	d := definition(timing)
	for name, test := range map[string]struct {
		story story
		want  saga.Question
		ok    bool
	}{
		"nobody":  {start(t), saga.Question{}, false},
		"an undo": {stopped(t), saga.Question{Participant: "shipping", Step: "unship"}, true},
		"a step":  {parked(t, "capture"), saga.Question{Participant: "payment", Step: "capture"}, true},
	} {
		if got, ok := d.Troubled(test.story.Instance(), ""); got != test.want || ok != test.ok {
			t.Errorf("%s: got %v, %v, want %v, %v", name, got, ok, test.want, test.ok)
		}
	}
	var asked []string
	for _, q := range d.Questions(stopped(t).Instance()) {
		asked = append(asked, q.Participant+" "+q.Step)
	}
	want := []string{"payment authorize", "shipping ship", "shipping unship", "payment capture"}
	if !slices.Equal(asked, want) {
		t.Errorf("questions: got %v, want %v", asked, want)
	}
}

// TestResolve resolves on the database: decision, record of it and history in one transaction; a decision that loses a race is
// taken anew on what is there then.
func TestResolve(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`CREATE TABLE decision (who text NOT NULL, was text NOT NULL, is_now text NOT NULL)`)
	id := f.begin(1)[0]
	f.upTo(id, "capture")
	f.apply(reply(id, "capture", saga.OutcomeRefused, uuid.Nil), reply(id, "unship", saga.OutcomeRefused, uuid.Nil))
	decide := func(d saga.Decision, who string) (saga.Instance, error) {
		return f.engine.Resolve(t.Context(), id, saga.Resolved{Decision: d}, func(b *pgx.Batch, before, after saga.Instance) error {
			b.Queue(`INSERT INTO decision VALUES ($1, $2, $3)`, who, before.Steps[1].Phase, after.Steps[1].Phase)
			return nil
		})
	}
	in, err := decide(saga.MarkDone, "the first")
	if err != nil || in.Attention != "" || in.Steps[1].Phase != saga.Undone {
		t.Fatalf("marking the undo done: got %s, %v, want it undone and no attention", sagatest.Describe(in), err)
	}
	if last := f.lastWritten(id); last.Step != "void" || !last.Left {
		t.Errorf("command after the decision: got %+v, want void, left to the sweep", last)
	}
	if _, err := decide(saga.MarkDone, "the second"); !errors.Is(err, saga.ErrNothingToResolve) {
		t.Errorf("deciding again: got %v, want %v", err, saga.ErrNothingToResolve)
	}
	if _, err := f.engine.Resolve(t.Context(), uuid.New(), saga.Resolved{}, nil); !errors.Is(err, saga.ErrNotFound) {
		t.Errorf("deciding about no saga: got %v, want %v", err, saga.ErrNotFound)
	}
	f.wantNumber("decisions on record", 1, `SELECT count(*) FROM decision WHERE who = 'the first' AND was = 'undo_refused' AND is_now = 'undone'`)
	history, err := saga.ReadHistory(t.Context(), f.pool, id)
	if err != nil || len(history) < 3 {
		t.Fatalf("history: got %d entries, %v", len(history), err)
	}
	var last []string
	for _, e := range history[len(history)-3:] {
		last = append(last, e.Step+" "+e.From+" "+e.To+" "+e.Cause)
	}
	want := []string{"unship undo_refused undone operator", "void done undoing operator", " needs_attention compensating operator"}
	if !slices.Equal(last, want) {
		t.Errorf("end of the history: got %q, want %q", last, want)
	}
}
