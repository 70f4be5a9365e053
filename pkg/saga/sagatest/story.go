package sagatest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/saga"
)

// Epoch is when each story begins.
var Epoch = time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)

// ID is the saga's id in each story; deadlines follow from it.
var ID = uuid.MustParse("5d1c2f0e-6c1b-5f57-9d5e-0c8f3a1b2c4d")

// Story is one saga in the hands of a test. Its methods either make something happen or say what must have happened; each
// gives the story back. A failure ends the test.
type Story[T proto.Message] struct {
	tb       testing.TB
	def      *saga.Definition[T]
	data     T
	in       saga.Instance
	now      time.Time
	replies  uint32
	unread   []saga.Command
	last     saga.Command
	lastIn   saga.Input
	reported error
	log      []string
}

// Start begins a saga.
func Start[T proto.Message](tb testing.TB, d *saga.Definition[T], data T) *Story[T] {
	tb.Helper()
	s := &Story[T]{tb: tb, def: d, data: data, now: Epoch, in: d.New(ID, "key-1")}
	return s.feed(saga.Started{}, "start")
}

// feed gives an input to the saga and writes down what follows.
func (s *Story[T]) feed(input saga.Input, what string) *Story[T] {
	s.tb.Helper()
	s.noError()
	after, effects, err := s.def.Advance(s.in, s.data, input, s.now)
	s.log = append(s.log, fmt.Sprintf("%8s  %s", "+"+s.now.Sub(Epoch).Round(time.Millisecond).String(), what))
	for _, t := range effects.Transitions {
		step := t.Step
		if step == "" {
			step = "saga"
		}
		s.log = append(s.log, fmt.Sprintf("          | %s: %q to %q, attempt %d", step, t.From, t.To, t.Attempt))
	}
	if err != nil {
		s.log = append(s.log, "          | error: "+err.Error())
	}
	s.in, s.lastIn, s.reported = after, input, err
	s.unread = append(s.unread, effects.Send...)
	return s
}

// noError fails if the last input was refused and nobody has asked for that.
func (s *Story[T]) noError() {
	s.tb.Helper()
	if s.reported != nil {
		s.failf("an input was refused:\n got %v\nwant no error", s.reported)
	}
}

func (s *Story[T]) failf(format string, args ...any) {
	s.tb.Helper()
	s.tb.Fatalf(format+"\nhistory:\n%s", append(args, strings.Join(s.log, "\n"))...)
}

// Sent says that these commands were sent, in this order, and no others, since the last that the story told of.
func (s *Story[T]) Sent(steps ...string) *Story[T] {
	s.tb.Helper()
	s.noError()
	got := make([]string, len(s.unread))
	for i, c := range s.unread {
		got[i] = c.Step
	}
	if !slices.Equal(got, steps) {
		s.failf("commands sent:\n got %v\nwant %v", got, steps)
	}
	if len(s.unread) > 0 {
		s.last = s.unread[len(s.unread)-1]
	}
	s.unread = nil
	return s
}

// SentNothingElse says that no command was sent beside those that the story told of.
func (s *Story[T]) SentNothingElse() *Story[T] {
	s.tb.Helper()
	return s.Sent()
}

// Command gives the last command that the story told of, to look at its participant and payload.
func (s *Story[T]) Command() saga.Command { return s.last }

// Done lets the participant of the last command reply that it is done.
func (s *Story[T]) Done() *Story[T] {
	s.tb.Helper()
	return s.Reply(s.last.Step, saga.OutcomeDone, "")
}

// Refuse lets the participant of the last command refuse it.
func (s *Story[T]) Refuse(reason string) *Story[T] {
	s.tb.Helper()
	return s.Reply(s.last.Step, saga.OutcomeRefused, reason)
}

// Wait lets the participant of the last command reply that it waits for the customer.
func (s *Story[T]) Wait() *Story[T] {
	s.tb.Helper()
	return s.Reply(s.last.Step, saga.OutcomeWaiting, "")
}

// WaitFor is [Story.Wait] with what is waited for.
func (s *Story[T]) WaitFor(detail []byte) *Story[T] {
	s.tb.Helper()
	s.replies++
	return s.feed(saga.Replied{Step: s.last.Step, Outcome: saga.OutcomeWaiting, Detail: detail, MessageID: s.messageID()},
		fmt.Sprintf("reply to %s: waiting for %q", s.last.Step, detail))
}

// messageID is that of the newest reply.
func (s *Story[T]) messageID() uuid.UUID {
	return uuid.UUID{0: 1, 15: byte(s.replies), 14: byte(s.replies >> 8)}
}

// Reply lets a participant reply to any step, late or unasked, as a new message.
func (s *Story[T]) Reply(step string, outcome saga.Outcome, reason string) *Story[T] {
	s.tb.Helper()
	s.replies++
	return s.feed(saga.Replied{Step: step, Outcome: outcome, Reason: reason, MessageID: s.messageID()},
		fmt.Sprintf("reply to %s: %s %s", step, outcome, reason))
}

// Again repeats the last input and says that nothing changes by it.
func (s *Story[T]) Again() *Story[T] {
	s.tb.Helper()
	refused := s.reported
	s.reported = nil
	unread, before := len(s.unread), Describe(s.in)
	s.feed(s.lastIn, "the same again")
	if got := Describe(s.in); got != before || len(s.unread) != unread {
		s.failf("the same input again:\n got %s, %d commands\nwant %s, no commands", got, len(s.unread)-unread, before)
	}
	if !errors.Is(s.reported, refused) {
		s.failf("the same input again:\n got error %v\nwant %v", s.reported, refused)
	}
	return s
}

// Pass lets time pass.
func (s *Story[T]) Pass(d time.Duration) *Story[T] {
	s.noError()
	s.now = s.now.Add(d)
	return s
}

// PassUntilDue lets time pass until something must be asked.
func (s *Story[T]) PassUntilDue() *Story[T] {
	s.tb.Helper()
	s.noError()
	var at time.Time
	for _, step := range s.in.Steps {
		if !step.Due.IsZero() && (at.IsZero() || step.Due.Before(at)) {
			at = step.Due
		}
	}
	if at.IsZero() {
		s.failf("deadlines:\n got none\nwant one")
	}
	if at.After(s.now) {
		s.now = at
	}
	return s
}

// Overdue says that these steps must be asked about now, and no others.
func (s *Story[T]) Overdue(steps ...string) *Story[T] {
	s.tb.Helper()
	s.noError()
	got := make([]string, 0, 1)
	for _, q := range s.def.Overdue(s.in, s.now) {
		got = append(got, q.Step)
	}
	if !slices.Equal(got, steps) {
		s.failf("steps to ask about:\n got %v\nwant %v", got, steps)
	}
	return s
}

// Answer lets a participant answer when it is asked about a step, whether the saga is interested or not.
func (s *Story[T]) Answer(step string, answer saga.Answer) *Story[T] {
	s.tb.Helper()
	return s.feed(saga.Asked{Step: step, Answer: answer},
		fmt.Sprintf("asked about %s: %s %s", step, answer.Finding, answer.Reason))
}

// Found lets time pass until the last command is overdue, and its participant then answer so.
func (s *Story[T]) Found(finding saga.Finding) *Story[T] {
	s.tb.Helper()
	return s.PassUntilDue().Overdue(s.last.Step).Answer(s.last.Step, saga.Answer{Finding: finding})
}

// FoundUntil repeats [Story.Found] until so much time has passed since the beginning of the story.
func (s *Story[T]) FoundUntil(finding saga.Finding, since time.Duration) *Story[T] {
	s.tb.Helper()
	for s.now.Sub(Epoch) < since {
		before := s.now
		if s.Found(finding); !s.now.After(before) {
			s.Found(finding) // the first may have been due already, the next is not
		}
		if !s.now.After(before) {
			s.failf("deadline of %s:\n got one that does not move\nwant a later one after each answer", s.last.Step)
		}
	}
	return s
}

// Cancel lets the client cancel.
func (s *Story[T]) Cancel() *Story[T] {
	s.tb.Helper()
	return s.feed(saga.CancelRequested{}, "cancel")
}

// Resolve lets a person decide about a step that needs one; "" is the first of them.
func (s *Story[T]) Resolve(decision saga.Decision, step string) *Story[T] {
	s.tb.Helper()
	return s.feed(saga.Resolved{Decision: decision, Step: step}, fmt.Sprintf("a person decides: %s %s", decision, step))
}

// NothingToResolve says that the last input was refused because there was nothing to decide.
func (s *Story[T]) NothingToResolve() *Story[T] {
	s.tb.Helper()
	if !errors.Is(s.reported, saga.ErrNothingToResolve) {
		s.failf("resolving:\n got error %v\nwant %v", s.reported, saga.ErrNothingToResolve)
	}
	s.reported = nil
	return s
}

// TooLate says that the last input was refused because the saga could no longer be cancelled.
func (s *Story[T]) TooLate() *Story[T] {
	s.tb.Helper()
	if !errors.Is(s.reported, saga.ErrTooLate) {
		s.failf("cancelling:\n got error %v\nwant %v", s.reported, saga.ErrTooLate)
	}
	s.reported = nil
	return s
}

// Is says how far the saga is as a whole.
func (s *Story[T]) Is(want saga.Status) *Story[T] {
	s.tb.Helper()
	s.noError()
	if s.in.Status != want {
		s.failf("status:\n got %s\nwant %s", s.in.Status, want)
	}
	return s
}

// Step says how far one step is.
func (s *Story[T]) Step(name string, want saga.Phase) *Story[T] {
	s.tb.Helper()
	s.noError()
	for _, step := range s.in.Steps {
		if step.Name != name {
			continue
		}
		if step.Phase != want {
			s.failf("phase of %s:\n got %q\nwant %q", name, step.Phase, want)
		}
		return s
	}
	s.failf("phase of %s:\n got no such step\nwant %q", name, want)
	return s
}

// Because says why the saga turned back.
func (s *Story[T]) Because(want string) *Story[T] {
	s.tb.Helper()
	s.noError()
	if s.in.Reason != want {
		s.failf("reason:\n got %q\nwant %q", s.in.Reason, want)
	}
	return s
}

// NeedsAttention says that the saga waits for a person.
func (s *Story[T]) NeedsAttention() *Story[T] {
	s.tb.Helper()
	s.noError()
	if s.in.Attention == "" {
		s.failf("attention:\n got none needed\nwant it needed")
	}
	return s
}

// NeedsNoAttention says that no person is needed.
func (s *Story[T]) NeedsNoAttention() *Story[T] {
	s.tb.Helper()
	s.noError()
	if s.in.Attention != "" {
		s.failf("attention:\n got %q\nwant none needed", s.in.Attention)
	}
	return s
}

// Ended says that the saga has ended so: nothing is left to be told, to be awaited, or for a person to do.
func (s *Story[T]) Ended(want saga.Status) *Story[T] {
	s.tb.Helper()
	s.Is(want).SentNothingElse().NeedsNoAttention()
	if !s.in.Status.Ended() {
		s.failf("status:\n got %s\nwant one that is final", s.in.Status)
	}
	for _, step := range s.in.Steps {
		if !step.Due.IsZero() {
			s.failf("deadline of %s:\n got %s\nwant none, since the saga has ended", step.Name, step.Due)
		}
	}
	return s
}

// Now is the time in the story.
func (s *Story[T]) Now() time.Time { return s.now }

// Instance is the saga's state.
func (s *Story[T]) Instance() saga.Instance { return s.in }

// Describe writes a saga's state on one line, in full.
func Describe(in saga.Instance) string {
	return fmt.Sprintf("%s reason=%q attention=%q steps=%+v seen=%v", in.Status, in.Reason, in.Attention, in.Steps, in.Seen)
}
