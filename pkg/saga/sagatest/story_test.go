package sagatest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

type order = *wrapperspb.StringValue

func command(participant, step string) saga.Builder[order] {
	return func(o order) saga.Command { return saga.To(participant, step, wrapperspb.String(o.GetValue())) }
}

var definition = saga.MustDefine("sale", 1,
	saga.Compensatable("hold", command("bank", "hold"), command("bank", "release")),
	saga.Pivot("charge", command("bank", "charge")),
)

// recorder is a testing.TB that keeps the failure instead of failing.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf tells a story and gives the failure it ends with.
func failureOf(tell func(*sagatest.Story[order])) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tell(sagatest.Start(r, definition, wrapperspb.String("o-1")))
	}()
	<-done
	return r.failure
}

func TestStoriesThatAreWrongFail(t *testing.T) {
	t.Parallel()
	type story = *sagatest.Story[order]
	tests := map[string]struct {
		tell func(story)
		want string
	}{
		"another command":         {func(s story) { s.Sent("charge") }, "commands sent:\n got [hold]\nwant [charge]"},
		"no command":              {func(s story) { s.SentNothingElse() }, "commands sent:\n got [hold]\nwant []"},
		"a command too many":      {func(s story) { s.Sent("hold").Sent("hold") }, "commands sent:\n got []\nwant [hold]"},
		"another status":          {func(s story) { s.Is(saga.Completed) }, "status:\n got running\nwant completed"},
		"not ended":               {func(s story) { s.Sent("hold").Ended(saga.Running) }, "status:\n got running\nwant one that is final"},
		"ended untold":            {func(s story) { s.Sent("hold").Done().Sent("charge").Cancel().Done() }, "an input was refused"},
		"a command left at end":   {func(s story) { s.Sent("hold").Done().Ended(saga.Running) }, "commands sent"},
		"another phase":           {func(s story) { s.Step("hold", saga.Done) }, "phase of hold:\n got \"sent\"\nwant \"done\""},
		"no such step":            {func(s story) { s.Step("x", saga.Done) }, "phase of x:\n got no such step"},
		"another reason":          {func(s story) { s.Because("x") }, "reason:\n got \"\"\nwant \"x\""},
		"attention":               {func(s story) { s.NeedsAttention() }, "attention:\n got none needed"},
		"no attention":            {func(s story) { attention(s).NeedsNoAttention() }, "attention:\n got \"charge has no outcome"},
		"ended in need":           {func(s story) { attention(s).Ended(saga.Running) }, "attention:\n got \"charge has no outcome"},
		"not too late":            {func(s story) { s.Sent("hold").Cancel().TooLate() }, "cancelling:\n got error <nil>"},
		"not overdue":             {func(s story) { s.Sent("hold").Overdue("hold") }, "steps to ask about:\n got []\nwant [hold]"},
		"overdue":                 {func(s story) { s.Sent("hold").PassUntilDue().Overdue() }, "steps to ask about:\n got [hold]\nwant []"},
		"nothing due":             {func(s story) { s.Sent("hold").Refuse("no").PassUntilDue() }, "deadlines:\n got none"},
		"a repeat that is no one": {func(s story) { s.Sent("hold").PassUntilDue().Answer("hold", saga.Answer{}).Again() }, "the same input again"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := failureOf(test.tell)
			if !strings.Contains(got, test.want) {
				t.Errorf("failure: got %q, want one with %q", got, test.want)
			}
			if !strings.Contains(got, "history:\n     +0s  start\n          | saga: \"\" to \"running\", attempt 0\n") {
				t.Errorf("failure: got %q, want the history in it", got)
			}
		})
	}
}

func attention(s *sagatest.Story[order]) *sagatest.Story[order] {
	return s.Sent("hold").Done().Sent("charge").FoundUntil(saga.Silent, time.Hour)
}

func TestStory(t *testing.T) {
	t.Parallel()
	s := sagatest.Start(t, definition, wrapperspb.String("o-1")).Sent("hold")
	if c := s.Command(); c.Participant != "bank" || c.Payload.(order).GetValue() != "o-1" {
		t.Errorf("command: got %+v, want one for bank with the data", c)
	}
	s.Wait().Step("hold", saga.Waiting).Done().Again().Sent("charge").Cancel().Again().TooLate().
		Found(saga.FoundNothing).Sent("charge").Reply("charge", saga.OutcomeRefused, "no").Sent("release").Done().
		Ended(saga.Compensated).Because("no").NeedsNoAttention()
	if s.Instance().ID != sagatest.ID || !s.Now().After(sagatest.Epoch) {
		t.Errorf("saga and time: got %s at %s, want %s after %s", s.Instance().ID, s.Now(), sagatest.ID, sagatest.Epoch)
	}
}
