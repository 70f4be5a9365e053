package saga_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

type order = *wrapperspb.StringValue

func command(participant, step string) saga.Builder[order] {
	return func(o order) saga.Command {
		return saga.To(participant, step, wrapperspb.String(step+" of "+o.GetValue()))
	}
}

// timing is short enough to write down: asked after about 1, 3, 7, 11 … seconds, and 20 in all.
var timing = saga.Timing{Ask: time.Second, AskMax: 4 * time.Second, Budget: 20 * time.Second}

func definition(t saga.Timing) *saga.Definition[order] {
	return saga.MustDefine("place-order", 1,
		saga.Compensatable("authorize", command("payment", "authorize"), command("payment", "void")).Within(t),
		saga.Compensatable("ship", command("shipping", "ship"), command("shipping", "unship")).Within(t),
		saga.Pivot("capture", command("payment", "capture")).Within(t),
		saga.Retriable("dispatch", command("shipping", "dispatch")).Within(t),
		saga.Retriable("thank", command("mail", "thank")).Within(t),
	)
}

type story = *sagatest.Story[order]

func start(t *testing.T) story {
	t.Helper()
	return sagatest.Start(t, definition(timing), wrapperspb.String("o-1"))
}

// upTo plays the saga until the named step was sent.
func upTo(t *testing.T, step string) story {
	t.Helper()
	s := start(t)
	for _, name := range []string{"authorize", "ship", "capture", "dispatch", "thank"} {
		s.Sent(name)
		if name == step {
			return s
		}
		s.Done()
	}
	t.Fatalf("step: got %q, want one of the saga", step)
	return nil
}

var (
	nothing = saga.Answer{Finding: saga.FoundNothing}
	running = saga.Answer{Finding: saga.FoundRunning}
	waiting = saga.Answer{Finding: saga.FoundWaiting}
	done    = saga.Answer{Finding: saga.FoundDone}
	refused = saga.Answer{Finding: saga.FoundRefused, Reason: "no"}
	silent  = saga.Answer{Finding: saga.Silent}
)

func TestStories(t *testing.T) {
	t.Parallel()
	stories := map[string]func(*testing.T){
		"all goes well": func(t *testing.T) {
			start(t).Sent("authorize").Done().Sent("ship").Done().Sent("capture").Done().
				Sent("dispatch").Done().Sent("thank").Is(saga.Running).Done().Ended(saga.Completed).Because("")
		},
		"the first step is refused": func(t *testing.T) {
			start(t).Sent("authorize").Refuse("card_declined").Ended(saga.Compensated).Because("card_declined")
		},
		"a later step is refused": func(t *testing.T) {
			upTo(t, "ship").Refuse("address_unknown").Is(saga.Compensating).
				Sent("void").Done().Ended(saga.Compensated).Because("address_unknown")
		},
		"the pivot is refused": func(t *testing.T) {
			upTo(t, "capture").Refuse("no_funds").
				Sent("unship").Done().Sent("void").Done().Ended(saga.Compensated).Because("no_funds").
				Step("capture", saga.Refused)
		},
		"a step after the pivot is refused": func(t *testing.T) {
			upTo(t, "thank").Refuse("lost").
				Sent("unship").Done().Sent("void").Is(saga.Compensating).Done().Ended(saga.Compensated).Because("lost")
		},
		"a refusal without a word": func(t *testing.T) {
			start(t).Sent("authorize").Refuse("").Ended(saga.Compensated).Because(saga.ReasonRefused)
		},
		"a participant cannot say that the client cancelled": func(t *testing.T) {
			s := start(t).Sent("authorize").Refuse(saga.ReasonCancelled).Ended(saga.Compensated).Because(saga.ReasonRefused)
			if in := s.Instance(); in.Cancelled() {
				t.Errorf("cancelled: got true, want false")
			}
		},

		"a compensatable step in doubt is undone when its budget is used up": func(t *testing.T) {
			upTo(t, "ship").FoundUntil(saga.FoundRunning, 15*time.Second).Is(saga.Running).
				Pass(5*time.Second).Answer("ship", running).Is(saga.Compensating).Because(saga.ReasonTimedOut).
				Sent("unship").Done().Sent("void").Done().Ended(saga.Compensated)
		},
		"also when the participant never heard of it": func(t *testing.T) {
			start(t).Sent("authorize").Pass(20*time.Second).Answer("authorize", nothing).
				Sent("void").Done().Ended(saga.Compensated)
		},
		"also when the participant is silent": func(t *testing.T) {
			start(t).Sent("authorize").FoundUntil(saga.Silent, 20*time.Second).Sent("void")
		},
		"the pivot in doubt waits for a person and is asked about for ever": func(t *testing.T) {
			upTo(t, "capture").FoundUntil(saga.Silent, 15*time.Second).NeedsNoAttention().
				FoundUntil(saga.Silent, 20*time.Second).NeedsAttention().Is(saga.Running).
				FoundUntil(saga.Silent, time.Hour).NeedsAttention().SentNothingElse().
				Answer("capture", done).NeedsNoAttention().Sent("dispatch")
		},
		"a reply to the pivot comes after a person was told": func(t *testing.T) {
			upTo(t, "capture").FoundUntil(saga.FoundRunning, 30*time.Second).NeedsAttention().
				Done().NeedsNoAttention().Sent("dispatch")
		},
		"the pivot is refused after a person was told": func(t *testing.T) {
			upTo(t, "capture").FoundUntil(saga.FoundRunning, 30*time.Second).NeedsAttention().
				Refuse("no").NeedsNoAttention().Sent("unship")
		},
		"the pivot's command is lost, also after a person was told": func(t *testing.T) {
			upTo(t, "capture").Found(saga.FoundNothing).Sent("capture").
				Pass(time.Hour).Answer("capture", nothing).NeedsAttention().Sent("capture").Done().Sent("dispatch")
		},
		"a retriable step in doubt waits for a person": func(t *testing.T) {
			upTo(t, "dispatch").FoundUntil(saga.Silent, 20*time.Second).NeedsAttention().Is(saga.Running).
				Done().Sent("thank").NeedsNoAttention()
		},

		"an undo is refused: the chain stops": func(t *testing.T) {
			upTo(t, "capture").Refuse("no").Sent("unship").Refuse("on_the_truck").
				NeedsAttention().Is(saga.Compensating).SentNothingElse().Step("ship", saga.UndoRefused).
				Again().Reply("unship", saga.OutcomeRefused, "on_the_truck").NeedsAttention().SentNothingElse()
		},
		"a refused undo is done after all": func(t *testing.T) {
			upTo(t, "capture").Refuse("no").Sent("unship").Refuse("on_the_truck").
				Done().NeedsNoAttention().Sent("void").Done().Ended(saga.Compensated)
		},
		"a refusal of an undo comes after it was done": func(t *testing.T) {
			upTo(t, "capture").Refuse("no").Sent("unship").Done().Sent("void").
				Reply("unship", saga.OutcomeRefused, "late").NeedsNoAttention().Step("ship", saga.Undone).
				SentNothingElse().Reply("void", saga.OutcomeDone, "").Ended(saga.Compensated)
		},
		"an undo takes too long: a person is told, it goes on, and is confirmed": func(t *testing.T) {
			upTo(t, "ship").Refuse("no").Sent("void").
				FoundUntil(saga.FoundRunning, 20*time.Second).NeedsAttention().
				Found(saga.FoundNothing).Sent("void").NeedsAttention().
				FoundUntil(saga.Silent, time.Hour).NeedsAttention().
				Done().Ended(saga.Compensated)
		},
		"an undo that is said to wait is no excuse": func(t *testing.T) {
			upTo(t, "ship").Refuse("no").Sent("void").Wait().Step("authorize", saga.Undoing).
				FoundUntil(saga.FoundWaiting, 20*time.Second).NeedsAttention()
		},

		"the customer has time": func(t *testing.T) {
			start(t).Sent("authorize").Wait().Step("authorize", saga.Waiting).
				FoundUntil(saga.FoundWaiting, time.Hour).Is(saga.Running).SentNothingElse().
				Found(saga.Silent).Is(saga.Running).Found(saga.FoundRunning).Is(saga.Running).
				Done().Sent("ship")
		},
		"the customer declines": func(t *testing.T) {
			start(t).Sent("authorize").Wait().Refuse("not_authenticated").Ended(saga.Compensated).Because("not_authenticated")
		},
		"the participant falls silent while the customer has time": func(t *testing.T) {
			start(t).Sent("authorize").Found(saga.FoundWaiting).Step("authorize", saga.Waiting).
				FoundUntil(saga.Silent, 15*time.Second).Is(saga.Running).
				Pass(20*time.Second).Answer("authorize", silent).Sent("void")
		},
		"the participant forgets that it waits": func(t *testing.T) {
			start(t).Sent("authorize").Wait().Found(saga.FoundNothing).Sent("authorize").Step("authorize", saga.Sent)
		},
		"a late word that the customer is waited for": func(t *testing.T) {
			upTo(t, "ship").Reply("authorize", saga.OutcomeWaiting, "").Step("authorize", saga.Done).
				SentNothingElse().Reply("ship", saga.OutcomeDone, "").Sent("capture")
		},
		"the pivot waits for the customer after a person was told": func(t *testing.T) {
			upTo(t, "capture").FoundUntil(saga.Silent, 20*time.Second).NeedsAttention().
				Found(saga.FoundWaiting).NeedsNoAttention()
		},

		"a success comes after the saga had given up: it is undone once": func(t *testing.T) {
			s := upTo(t, "ship").Refuse("no").Sent("void").Done().Ended(saga.Compensated).
				Reply("ship", saga.OutcomeDone, "").Is(saga.Compensating).Sent("unship").
				Reply("ship", saga.OutcomeDone, "").SentNothingElse().
				Reply("unship", saga.OutcomeDone, "").Ended(saga.Compensated)
			s.Reply("ship", saga.OutcomeDone, "").Ended(saga.Compensated).Because("no")
		},
		"a success comes while the saga gives up": func(t *testing.T) {
			upTo(t, "ship").Refuse("no").Sent("void").
				Reply("ship", saga.OutcomeDone, "").Sent("unship").
				Reply("void", saga.OutcomeDone, "").SentNothingElse().Is(saga.Compensating).
				Reply("unship", saga.OutcomeDone, "").Ended(saga.Compensated)
		},
		"the same, confirmed the other way round": func(t *testing.T) {
			upTo(t, "ship").Refuse("no").Sent("void").
				Reply("ship", saga.OutcomeDone, "").Sent("unship").Done().SentNothingElse().Is(saga.Compensating).
				Reply("void", saga.OutcomeDone, "").Ended(saga.Compensated)
		},
		"a success of a step that is being undone, or was": func(t *testing.T) {
			start(t).Sent("authorize").Cancel().Sent("void").
				Reply("authorize", saga.OutcomeDone, "").SentNothingElse().Step("authorize", saga.Undoing).
				Reply("void", saga.OutcomeDone, "").Ended(saga.Compensated).
				Reply("authorize", saga.OutcomeDone, "").Ended(saga.Compensated)
		},
		"a refusal of a step that is being undone": func(t *testing.T) {
			start(t).Sent("authorize").Cancel().Sent("void").
				Reply("authorize", saga.OutcomeRefused, "undone").SentNothingElse().Step("authorize", saga.Undoing).
				Reply("void", saga.OutcomeDone, "").Ended(saga.Compensated).Because(saga.ReasonCancelled)
		},
		"a success of the pivot after its refusal needs a person, whatever else is undone": func(t *testing.T) {
			upTo(t, "capture").Refuse("no").Sent("unship").
				Reply("capture", saga.OutcomeDone, "").NeedsAttention().SentNothingElse().
				Reply("unship", saga.OutcomeDone, "").NeedsAttention().
				Sent("void").Done().NeedsAttention().Is(saga.Compensating).SentNothingElse()
		},
		"a success of the pivot after the end opens the saga again": func(t *testing.T) {
			upTo(t, "capture").Refuse("no").Sent("unship").Done().Sent("void").Done().Ended(saga.Compensated).
				Reply("capture", saga.OutcomeDone, "").NeedsAttention().Is(saga.Compensating).SentNothingElse()
		},
		"a refusal after a success is not believed": func(t *testing.T) {
			upTo(t, "ship").Reply("authorize", saga.OutcomeRefused, "late").Is(saga.Running).
				Step("authorize", saga.Done).SentNothingElse()
		},
		"replies to steps that are not there or not yet sent": func(t *testing.T) {
			start(t).Sent("authorize").
				Reply("nonsense", saga.OutcomeDone, "").Reply("", saga.OutcomeDone, "").
				Reply("capture", saga.OutcomeDone, "").Reply("ship", saga.OutcomeRefused, "no").
				Reply("void", saga.OutcomeDone, "").Reply("void", saga.OutcomeRefused, "no").
				Is(saga.Running).SentNothingElse().
				Reply("authorize", saga.OutcomeDone, "").Sent("ship")
		},
		"every reply three times": func(t *testing.T) {
			start(t).Sent("authorize").Done().Sent("ship").Again().Again().Done().Sent("capture").Again().Again().
				Refuse("no").Sent("unship").Again().Again().Done().Sent("void").Again().Again().
				Done().Again().Again().Ended(saga.Compensated)
		},
		"every reply again as a new message": func(t *testing.T) {
			s := upTo(t, "capture").Refuse("no").Sent("unship").Done().Sent("void").Done()
			for range 2 {
				for _, step := range []string{"void", "unship"} {
					s.Reply(step, saga.OutcomeDone, "")
				}
				s.Reply("capture", saga.OutcomeRefused, "no")
				for _, step := range []string{"ship", "authorize"} {
					s.Reply(step, saga.OutcomeDone, "")
				}
			}
			s.Ended(saga.Compensated)
		},

		"cancelled at the first step": func(t *testing.T) {
			s := start(t).Sent("authorize").Cancel().Is(saga.Compensating).Sent("void").Done().
				Ended(saga.Compensated).Because(saga.ReasonCancelled)
			if in := s.Instance(); !in.Cancelled() {
				t.Errorf("cancelled: got false, want true")
			}
		},
		"cancelled at a later step": func(t *testing.T) {
			upTo(t, "ship").Cancel().Sent("unship").Done().Sent("void").Done().Ended(saga.Compensated)
		},
		"cancelled while the customer is waited for": func(t *testing.T) {
			start(t).Sent("authorize").Wait().Cancel().Sent("void").Done().Ended(saga.Compensated)
		},
		"cancelled twice": func(t *testing.T) {
			upTo(t, "ship").Cancel().Sent("unship").Cancel().SentNothingElse().
				Reply("unship", saga.OutcomeDone, "").Sent("void").Cancel().SentNothingElse().
				Done().Ended(saga.Compensated).Cancel().Ended(saga.Compensated)
		},
		"cancelled after it had failed": func(t *testing.T) {
			upTo(t, "ship").Refuse("no").Sent("void").Cancel().SentNothingElse().Because("no").
				Done().Ended(saga.Compensated).Because("no")
		},
		"cancelled too late": func(t *testing.T) {
			upTo(t, "capture").Cancel().TooLate().SentNothingElse().Is(saga.Running).Because("")
			upTo(t, "dispatch").Cancel().TooLate().SentNothingElse().Is(saga.Running)
			upTo(t, "thank").Done().Ended(saga.Completed).Cancel().TooLate().Ended(saga.Completed)
		},

		"asked at the deadline, not before": func(t *testing.T) {
			start(t).Sent("authorize").Pass(700*time.Millisecond).Overdue().Pass(500*time.Millisecond).Overdue("authorize").
				Answer("authorize", silent).Overdue().SentNothingElse().PassUntilDue().Overdue("authorize")
		},
		"an undo is asked about as well": func(t *testing.T) {
			start(t).Sent("authorize").Cancel().Sent("void").PassUntilDue().Overdue("void")
		},
		"sent again only if the participant knows nothing": func(t *testing.T) {
			start(t).Sent("authorize").
				Found(saga.Silent).SentNothingElse().Found(saga.FoundRunning).SentNothingElse().
				Found(saga.FoundNothing).Sent("authorize").Found(saga.FoundNothing).Sent("authorize")
		},
		"answers about steps of no interest": func(t *testing.T) {
			s := upTo(t, "ship")
			before := sagatest.Describe(s.Instance())
			for _, answer := range []saga.Answer{nothing, running, waiting, done, refused, silent} {
				for _, step := range []string{"authorize", "void", "unship", "capture", "dispatch", "nonsense", ""} {
					s.Answer(step, answer).SentNothingElse()
				}
			}
			if got := sagatest.Describe(s.Instance()); got != before {
				t.Errorf("state:\n got %s\nwant %s", got, before)
			}
		},
		"it begins once": func(t *testing.T) {
			s := start(t).Again()
			if got := len(s.Sent("authorize").Instance().Steps); got != 5 {
				t.Errorf("steps: got %d, want 5", got)
			}
		},
	}
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t)
		})
	}
}

// TestFindings goes through each finding in each phase in which a step is asked about.
func TestFindings(t *testing.T) {
	t.Parallel()
	forward := func(t *testing.T) story { return start(t).Sent("authorize") }
	waits := func(t *testing.T) story { return start(t).Sent("authorize").Wait() }
	pivot := func(t *testing.T) story { return upTo(t, "capture") }
	back := func(t *testing.T) story { return start(t).Sent("authorize").Cancel().Sent("void") }
	const soon, late = 2 * time.Second, time.Minute
	none := []string{}
	tests := map[string]struct {
		phase     func(*testing.T) story
		after     time.Duration
		answer    saga.Answer
		sent      []string
		want      saga.Phase
		attention bool
	}{
		"sent, nothing":          {forward, soon, nothing, []string{"authorize"}, saga.Sent, false},
		"sent, running":          {forward, soon, running, none, saga.Sent, false},
		"sent, waiting":          {forward, soon, waiting, none, saga.Waiting, false},
		"sent, done":             {forward, soon, done, []string{"ship"}, saga.Done, false},
		"sent, refused":          {forward, soon, refused, none, saga.Refused, false},
		"sent, silent":           {forward, soon, silent, none, saga.Sent, false},
		"sent, late, nothing":    {forward, late, nothing, []string{"void"}, saga.Undoing, false},
		"sent, late, running":    {forward, late, running, []string{"void"}, saga.Undoing, false},
		"sent, late, waiting":    {forward, late, waiting, none, saga.Waiting, false},
		"sent, late, done":       {forward, late, done, []string{"ship"}, saga.Done, false},
		"sent, late, refused":    {forward, late, refused, none, saga.Refused, false},
		"sent, late, silent":     {forward, late, silent, []string{"void"}, saga.Undoing, false},
		"waiting, nothing":       {waits, soon, nothing, []string{"authorize"}, saga.Sent, false},
		"waiting, running":       {waits, soon, running, none, saga.Waiting, false},
		"waiting, waiting":       {waits, soon, waiting, none, saga.Waiting, false},
		"waiting, done":          {waits, soon, done, []string{"ship"}, saga.Done, false},
		"waiting, refused":       {waits, soon, refused, none, saga.Refused, false},
		"waiting, silent":        {waits, soon, silent, none, saga.Waiting, false},
		"waiting, late, nothing": {waits, late, nothing, []string{"void"}, saga.Undoing, false},
		"waiting, late, running": {waits, late, running, []string{"void"}, saga.Undoing, false},
		"waiting, late, waiting": {waits, late, waiting, none, saga.Waiting, false},
		"waiting, late, done":    {waits, late, done, []string{"ship"}, saga.Done, false},
		"waiting, late, refused": {waits, late, refused, none, saga.Refused, false},
		"waiting, late, silent":  {waits, late, silent, []string{"void"}, saga.Undoing, false},
		"pivot, nothing":         {pivot, soon, nothing, []string{"capture"}, saga.Sent, false},
		"pivot, refused":         {pivot, soon, refused, []string{"unship"}, saga.Refused, false},
		"pivot, late, nothing":   {pivot, late, nothing, []string{"capture"}, saga.Sent, true},
		"pivot, late, running":   {pivot, late, running, none, saga.Sent, true},
		"pivot, late, waiting":   {pivot, late, waiting, none, saga.Waiting, false},
		"pivot, late, done":      {pivot, late, done, []string{"dispatch"}, saga.Done, false},
		"pivot, late, refused":   {pivot, late, refused, []string{"unship"}, saga.Refused, false},
		"pivot, late, silent":    {pivot, late, silent, none, saga.Sent, true},
		"undoing, nothing":       {back, soon, nothing, []string{"void"}, saga.Undoing, false},
		"undoing, running":       {back, soon, running, none, saga.Undoing, false},
		"undoing, waiting":       {back, soon, waiting, none, saga.Undoing, false},
		"undoing, done":          {back, soon, done, none, saga.Undone, false},
		"undoing, refused":       {back, soon, refused, none, saga.UndoRefused, true},
		"undoing, silent":        {back, soon, silent, none, saga.Undoing, false},
		"undoing, late, nothing": {back, late, nothing, []string{"void"}, saga.Undoing, true},
		"undoing, late, running": {back, late, running, none, saga.Undoing, true},
		"undoing, late, waiting": {back, late, waiting, none, saga.Undoing, true},
		"undoing, late, done":    {back, late, done, none, saga.Undone, false},
		"undoing, late, refused": {back, late, refused, none, saga.UndoRefused, true},
		"undoing, late, silent":  {back, late, silent, none, saga.Undoing, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := test.phase(t)
			asked := s.Command().Step
			s.Pass(test.after).Overdue(asked).Answer(asked, test.answer).Sent(test.sent...)
			step := map[string]string{"void": "authorize"}[asked]
			if step == "" {
				step = asked
			}
			s.Step(step, test.want)
			if test.attention {
				s.NeedsAttention()
			} else {
				s.NeedsNoAttention()
			}
		})
	}
}
