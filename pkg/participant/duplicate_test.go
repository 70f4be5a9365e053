package participant

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func TestAskedAgainUnderANewMessage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		outcome  Outcome
		unfinish bool // ask before the result is recorded
		undo     bool // undo before asking
		want     string
		payload  bool
	}{
		"while it runs":     {outcome: held, unfinish: true},
		"after it was done": {outcome: held, want: "hold_room done", payload: true},
		"after a refusal":   {outcome: Refused{Reason: "full"}, want: "hold_room refused full"},
		"after its undo":    {outcome: held, undo: true, want: "hold_room refused undone"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			var calls, undos counter
			r := d.runner(calls.step(hold, tt.outcome), undos.step(release, Done{}, hold))
			order := uuid.New()
			d.apply(r, command(order, hold))
			first := d.result(r)
			if !tt.unfinish {
				r.recordAll(t.Context(), []finished{first})
			}
			if tt.undo {
				d.apply(r, command(order, release))
				d.finish(r)
			}
			before := d.outbox(order)
			again := command(order, hold)
			d.apply(r, again)
			if !d.marked(again.ID) {
				t.Error("inbox mark of the second command: got none, want one")
			}
			rows := d.outbox(order)[len(before):]
			if tt.want == "" {
				if len(rows) != 0 {
					t.Errorf("messages for the second command: got %v, want none", rows)
				}
			} else if len(rows) != 1 {
				t.Errorf("messages for the second command: got %v, want a reply", rows)
			} else {
				got := rows[0]
				if words := joined(got.StepName, got.Outcome, got.Reason); words != tt.want {
					t.Errorf("reply: got %q, want %q", words, tt.want)
				}
				if got.LastSeen != again.ID || got.ID == d.step(order, hold).ReplyID {
					t.Errorf("reply: got id %s, last seen %s, want a new id, %s", got.ID, got.LastSeen, again.ID)
				}
				if has := len(got.Payload) > 0; has != tt.payload {
					t.Errorf("reply payload: got %q, want one: %t", got.Payload, tt.payload)
				}
			}
			calls.is(d, 1)
			d.idle(r)
		})
	}
}

// A reply to somebody who has not seen our last message about the order is left to the sweep.
func TestHandOffNeedsProof(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	r := d.runner(calls.step(hold, held), calls.step(tidy, Done{}))
	order := uuid.New()
	d.apply(r, command(order, hold))
	d.finish(r)
	last := d.step(order, hold).ReplyID

	proven := command(order, tidy)
	proven.LastSeen = last
	d.apply(r, proven)
	d.finish(r)
	d.apply(r, command(order, hold)) // its sender has seen nothing
	rows := d.told(order, "evt.hotel.held 1", "hold_room done", "evt.hotel.tidied 2", "tidy_room done", "hold_room done")
	for i, want := range []bool{false, false, false, false, true} {
		if i < len(rows) && rows[i].Left != want {
			t.Errorf("message %d (%s): left to the sweep: got %t, want %t", i, rows[i].Subject, rows[i].Left, want)
		}
	}
}

// Two instances with one message at the same moment perform its step once. (The race is run many times, each with its own
// order.)
func TestOneMessageAtTwoInstances(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	runners := make([]*Runner, 2)
	for i := range runners {
		cfg := d.config()
		cfg.Pool = pgtest.Open(t, d.url)
		runners[i] = d.runnerWith(cfg, calls.step(hold, held))
	}
	const rounds = 30
	for range rounds {
		cmd := command(uuid.New(), hold)
		start, errs := make(chan struct{}), make(chan error, 2)
		for _, r := range runners {
			go func() {
				<-start
				errs <- r.ApplyCommands(t.Context(), []messaging.Delivery{cmd})
			}()
		}
		close(start)
		for range runners {
			if err := <-errs; err != nil && inbox.Blame(err) != inbox.Race {
				t.Fatalf("taking in: %v", err)
			}
		}
		for _, r := range runners {
			d.apply(r, cmd) // what the loser of the race does
			r.calls.Wait()
			for len(r.results) > 0 {
				d.finish(r)
			}
		}
		d.told(cmd.AggregateID, "evt.hotel.held 1", "hold_room done")
	}
	calls.is(d, rounds)
	for _, r := range runners {
		d.idle(r)
	}
}

// Two different messages for one step, in one batch or at two instances, are one step.
func TestTwoMessagesForOneStep(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	r := d.runner(calls.step(hold, held))
	order := uuid.New()
	first, second := command(order, hold), command(order, hold)
	d.apply(r, first, second)
	d.finish(r)
	calls.is(d, 1)
	if !d.marked(first.ID) || !d.marked(second.ID) {
		t.Error("inbox marks: got fewer than two")
	}
	d.told(order, "evt.hotel.held 1", "hold_room done")
	d.idle(r)
}

func TestWrongStepKeyIsPermanent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	r := d.runner(calls.step(hold, held))
	bad := command(uuid.New(), hold)
	bad.StepKey = uuid.New()
	err := r.ApplyCommands(t.Context(), []messaging.Delivery{bad})
	if !errors.Is(err, inbox.ErrPermanent) || !errors.Is(err, ErrStepKey) {
		t.Errorf("got %v, want a permanent error about the step key", err)
	}
	d.idle(r)
}

// What fails on the way in leaves no intent, no mark and no slot behind.
func TestFailedIntakeGivesSlotsBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	cfg := d.config()
	broken := errors.New("no such room")
	cfg.Projector = hotel{fail: func([]Change) error { return broken }}
	cfg.Concurrency = 2
	r := d.runnerWith(cfg, calls.step(hold, held))
	for range 3 {
		cmd := command(uuid.New(), hold)
		if err := r.ApplyCommands(t.Context(), []messaging.Delivery{cmd}); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
		if d.marked(cmd.ID) {
			t.Error("inbox mark: got one, want none")
		}
	}
	calls.is(d, 0)
	d.idle(r)
}
