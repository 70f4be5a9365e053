package saga_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

// parallel has two steps side by side before its pivot, and two behind it.
func parallel(t saga.Timing) *saga.Definition[order] {
	return saga.MustDefine("place-order", 2,
		saga.Compensatable("reserve", command("stock", "reserve"), command("stock", "release")).Within(t),
		saga.Parallel(
			saga.Compensatable("authorize", command("payment", "authorize"), command("payment", "void")),
			saga.Compensatable("ship", command("shipping", "ship"), command("shipping", "unship")),
		).Within(t),
		saga.Pivot("capture", command("payment", "capture")).Within(t),
		saga.Parallel(
			saga.Retriable("dispatch", command("shipping", "dispatch")),
			saga.Retriable("thank", command("mail", "thank")),
		).Within(t),
	)
}

// beside plays the saga until both steps of the first group were sent; behind plays it to those of the second.
func beside(t *testing.T) story {
	t.Helper()
	return sagatest.Start(t, parallel(timing), wrapperspb.String("o-1")).Sent("reserve").Done().Sent("authorize", "ship")
}

func behind(t *testing.T) story {
	t.Helper()
	s := beside(t)
	return allDone(s, "authorize", "ship").Sent("capture").Done().Sent("dispatch", "thank")
}

func allDone(s story, steps ...string) story {
	for _, step := range steps {
		s.Reply(step, saga.OutcomeDone, "")
	}
	return s
}

func TestStoriesOfParallelSteps(t *testing.T) {
	t.Parallel()
	stories := map[string]func(*testing.T){
		"all goes well, in either order": func(t *testing.T) {
			for _, order := range [][]string{{"authorize", "ship"}, {"ship", "authorize"}} {
				s := beside(t)
				s.Reply(order[0], saga.OutcomeDone, "").SentNothingElse().Is(saga.Running)
				s.Reply(order[1], saga.OutcomeDone, "").Sent("capture").Done().Sent("dispatch", "thank")
				s.Reply("thank", saga.OutcomeDone, "").SentNothingElse().Is(saga.Running)
				s.Reply("dispatch", saga.OutcomeDone, "").Ended(saga.Completed)
			}
		},
		"one is refused while the other is in flight: it is in doubt, and undone": func(t *testing.T) {
			s := beside(t).Reply("authorize", saga.OutcomeRefused, "card_declined").Is(saga.Compensating).
				Sent("unship").Step("authorize", saga.Refused).Step("ship", saga.Undoing)
			s.Reply("ship", saga.OutcomeDone, "").SentNothingElse().Step("ship", saga.Undoing)
			s.Reply("unship", saga.OutcomeDone, "").Sent("release").Done().Ended(saga.Compensated).Because("card_declined")
			s.Reply("ship", saga.OutcomeDone, "").Ended(saga.Compensated)
		},
		"one is refused after the other is done": func(t *testing.T) {
			beside(t).Reply("authorize", saga.OutcomeDone, "").Reply("ship", saga.OutcomeRefused, "no").
				Sent("void").Done().Sent("release").Done().Ended(saga.Compensated).Because("no")
		},
		"one is refused, and then the other": func(t *testing.T) {
			beside(t).Reply("ship", saga.OutcomeRefused, "first").Sent("void").
				Reply("authorize", saga.OutcomeRefused, "second").SentNothingElse().Step("authorize", saga.Undoing).
				Reply("void", saga.OutcomeDone, "").Sent("release").Done().Ended(saga.Compensated).Because("first")
		},
		"both are undone side by side, and what was before them after both": func(t *testing.T) {
			for _, order := range [][]string{{"void", "unship"}, {"unship", "void"}} {
				s := allDone(beside(t), "authorize", "ship").Sent("capture").Refuse("no_funds").Sent("unship", "void")
				s.Reply(order[0], saga.OutcomeDone, "").SentNothingElse().Is(saga.Compensating)
				s.Reply(order[1], saga.OutcomeDone, "").Sent("release").Done().Ended(saga.Compensated)
			}
		},
		"an undo is refused: the one beside it goes on, the chain stops": func(t *testing.T) {
			s := allDone(beside(t), "authorize", "ship").Sent("capture").Refuse("no_funds").Sent("unship", "void")
			s.Reply("unship", saga.OutcomeRefused, "on_the_truck").NeedsAttention().SentNothingElse()
			s.Reply("void", saga.OutcomeDone, "").NeedsAttention().SentNothingElse().Step("authorize", saga.Undone)
			s.Resolve(saga.MarkDone, "unship").Sent("release").Done().Ended(saga.Compensated)
		},
		"both undos are refused: two decisions": func(t *testing.T) {
			s := allDone(beside(t), "authorize", "ship").Sent("capture").Refuse("no_funds").Sent("unship", "void")
			s.Reply("unship", saga.OutcomeRefused, "a").Reply("void", saga.OutcomeRefused, "b").NeedsAttention()
			s.Resolve(saga.MarkDone, "void").NeedsAttention().SentNothingElse()
			s.Resolve(saga.RetryNow, "").Sent("unship").Done().Sent("release").Done().Ended(saga.Compensated)
		},
		"cancelled with both in flight": func(t *testing.T) {
			s := beside(t).Cancel().Sent("unship", "void")
			allDone(s, "void", "unship").Sent("release").Done().Ended(saga.Compensated).Because(saga.ReasonCancelled)
		},
		"cancelled with one of them done": func(t *testing.T) {
			s := beside(t).Reply("ship", saga.OutcomeDone, "").Cancel().Sent("unship", "void")
			allDone(s, "void", "unship").Sent("release").Cancel().Done().Ended(saga.Compensated)
		},
		"cancelled too late": func(t *testing.T) {
			allDone(beside(t), "ship", "authorize").Sent("capture").Cancel().TooLate()
			behind(t).Cancel().TooLate().Is(saga.Running)
		},
		"each has its own deadline": func(t *testing.T) {
			s := beside(t).PassUntilDue().Overdue("authorize", "ship")
			s.Answer("authorize", running).Overdue("ship").Answer("ship", nothing).Sent("ship").Overdue()
			s.PassUntilDue().Answer("authorize", done).SentNothingElse().Answer("ship", done).Sent("capture")
		},
		"one is out of its budget: both are undone": func(t *testing.T) {
			s := beside(t).Reply("authorize", saga.OutcomeWaiting, "").Pass(20*time.Second).
				Answer("authorize", waiting).Is(saga.Running).Answer("ship", silent).Because(saga.ReasonTimedOut).Sent("unship", "void")
			s.Answer("authorize", done).Answer("ship", nothing).SentNothingElse()
			allDone(s, "unship", "void").Sent("release").Done().Ended(saga.Compensated)
		},
		"a success after the end is undone once": func(t *testing.T) {
			s := beside(t).Reply("ship", saga.OutcomeRefused, "no").Sent("void").Done().Sent("release").Done().Ended(saga.Compensated)
			s.Reply("ship", saga.OutcomeDone, "").Sent("unship").Is(saga.Compensating).Reply("ship", saga.OutcomeDone, "").SentNothingElse().
				Reply("unship", saga.OutcomeDone, "").Ended(saga.Compensated)
		},
		"a success of one that was refused, while the other is undone": func(t *testing.T) {
			s := beside(t).Reply("ship", saga.OutcomeRefused, "no").Sent("void")
			s.Reply("ship", saga.OutcomeDone, "").Sent("unship").Reply("void", saga.OutcomeDone, "").SentNothingElse().
				Reply("unship", saga.OutcomeDone, "").Sent("release").Done().Ended(saga.Compensated)
		},
		"every reply three times, and late": func(t *testing.T) {
			s := beside(t)
			for range 3 {
				s.Reply("authorize", saga.OutcomeDone, "")
			}
			s.Reply("authorize", saga.OutcomeRefused, "late").Step("authorize", saga.Done).Reply("authorize", saga.OutcomeWaiting, "").
				Step("authorize", saga.Done).SentNothingElse()
			s.Reply("ship", saga.OutcomeDone, "").Sent("capture").Again().Again()
		},
		"behind the pivot one is refused while the other is in flight: it is given up, and covered": func(t *testing.T) {
			for _, late := range []saga.Outcome{saga.OutcomeDone, saga.OutcomeRefused, saga.OutcomeWaiting} {
				s := behind(t).Reply("dispatch", saga.OutcomeRefused, "lost").Step("thank", saga.GivenUp).Sent("unship", "void")
				s.Reply("thank", late, "").SentNothingElse().Step("thank", saga.GivenUp)
				allDone(s, "unship", "void").Sent("release").Done().Ended(saga.Compensated).Because("lost")
				s.Reply("thank", late, "").Ended(saga.Compensated)
			}
		},
		"behind the pivot one is refused after the other is done": func(t *testing.T) {
			s := behind(t).Reply("thank", saga.OutcomeDone, "").Reply("dispatch", saga.OutcomeRefused, "lost").Sent("unship", "void")
			allDone(s, "unship", "void").Sent("release").Done().Ended(saga.Compensated).Step("thank", saga.Done)
		},
		"behind the pivot both wait for a person": func(t *testing.T) {
			s := behind(t).Pass(20*time.Second).Answer("dispatch", silent).Answer("thank", silent).NeedsAttention()
			s.Resolve(saga.MarkDone, "thank").NeedsAttention().Is(saga.Running).SentNothingElse()
			s.Resolve(saga.UndoOtherWay, "dispatch").NeedsNoAttention().Sent("unship", "void")
		},
	}
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t)
		})
	}
}

func TestDefineRefusesGroups(t *testing.T) {
	t.Parallel()
	a := saga.Compensatable("a", command("p", "a"), command("p", "undo_a"))
	b := saga.Compensatable("b", command("p", "b"), command("p", "undo_b"))
	c := saga.Compensatable("c", command("p", "c"), command("p", "undo_c"))
	pivot, after := saga.Pivot("pivot", command("p", "pivot")), saga.Retriable("after", command("p", "after"))
	tests := map[string]struct {
		steps []saga.Step[order]
		want  string
	}{
		"nothing":            {[]saga.Step[order]{saga.Parallel[order]()}, "needs two"},
		"one step":           {[]saga.Step[order]{saga.Parallel(a)}, "needs two"},
		"a group in a group": {[]saga.Step[order]{saga.Parallel(a, saga.Parallel(b, c))}, "group in it"},
		"a pivot":            {[]saga.Step[order]{saga.Parallel(pivot, a)}, "pivot pivot cannot run beside"},
		"a pivot, second":    {[]saga.Step[order]{saga.Parallel(a, pivot)}, "pivot pivot cannot run beside"},
		"kinds":              {[]saga.Step[order]{a, pivot, saga.Parallel(after, b)}, "compensatable step b cannot run beside retriable step after"},
		"a name twice":       {[]saga.Step[order]{saga.Parallel(a, a)}, "used twice"},
		"retriable first":    {[]saga.Step[order]{saga.Parallel(after, saga.Retriable("more", command("p", "more")))}, "does not follow a pivot"},
	}
	for name, test := range tests {
		_, err := saga.Define("s", 1, test.steps...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, test.want)
		}
	}
}

// TestHashOfGroups shows that the hash tells which steps run side by side, and is what it was for those that do not.
func TestHashOfGroups(t *testing.T) {
	t.Parallel()
	step := func(name string) saga.Step[order] {
		return saga.Compensatable(name, command("p", name), command("p", "undo_"+name))
	}
	a, b, c := step("a"), step("b"), step("c")
	hashes := map[string][]byte{}
	for name, steps := range map[string][]saga.Step[order]{
		"in a row": {a, b, c}, "the first two": {saga.Parallel(a, b), c}, "the last two": {a, saga.Parallel(b, c)}, "all": {saga.Parallel(a, b, c)},
	} {
		hash := saga.MustDefine("s", 1, steps...).Hash()
		for other, known := range hashes {
			if bytes.Equal(hash, known) {
				t.Errorf("hash of %s: got that of %s, want another", name, other)
			}
		}
		hashes[name] = hash
	}
	if got, want := definition(timing).Hash(), []byte{0x22, 0xe8, 0x87, 0x5a, 0xef, 0xe9, 0x28, 0x6a}; !bytes.Equal(got, want) {
		t.Errorf("hash of a definition without groups: got %x, want %x, which sagas are stored with", got, want)
	}
}

// TestParallelStepsOnPostgres takes a group through the database: two open steps, one timer, replies in one batch, undos.
func TestParallelStepsOnPostgres(t *testing.T) {
	t.Parallel()
	f := newFixture(t, parallel(slow))
	ids := []uuid.UUID{f.newID(), f.newID()}
	sold, refused := ids[0], ids[1]
	if err := f.queueBirths([]*saga.Birth{f.birth(t.Context(), parallel(slow), sold), f.birth(t.Context(), parallel(slow), refused)}); err != nil {
		t.Fatalf("beginning: %v", err)
	}
	for _, id := range ids {
		f.apply(reply(id, "reserve", saga.OutcomeDone, uuid.Nil))
	}
	both := []string{"evt.sale.running", "cmd.stock.reserve", "cmd.payment.authorize", "cmd.shipping.ship"}
	f.wantSubjects(sold, both...)

	// The deadline of both: one is done by the answer, and the other is not known.
	f.ask = func(_ context.Context, participant string, _ uuid.UUID, _ string) (saga.Answer, error) {
		if participant == "payment" {
			return done, nil
		}
		return nothing, nil
	}
	f.pass(sold, 5*time.Hour)
	f.fire()
	f.wantSubjects(sold, append(both, "cmd.shipping.ship")...)
	f.wantTimers(sold, 1)
	f.apply(reply(sold, "ship", saga.OutcomeDone, uuid.Nil))
	f.apply(reply(sold, "capture", saga.OutcomeDone, uuid.Nil))
	f.apply(reply(sold, "thank", saga.OutcomeDone, uuid.Nil), reply(sold, "dispatch", saga.OutcomeDone, uuid.Nil))
	f.wantStatus(sold, saga.Completed)

	// Both replies in one transaction, the refusal first.
	f.apply(reply(refused, "authorize", saga.OutcomeRefused, uuid.Nil), reply(refused, "ship", saga.OutcomeDone, uuid.Nil))
	f.wantStatus(refused, saga.Compensating)
	f.apply(reply(refused, "unship", saga.OutcomeDone, uuid.Nil))
	f.apply(reply(refused, "release", saga.OutcomeDone, uuid.Nil))
	f.wantStatus(refused, saga.Compensated)
	f.wantSubjects(refused, append(both, "evt.sale.compensating", "cmd.shipping.unship", "cmd.stock.release", "evt.sale.compensated")...)
}
