package participant

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func TestUndoBeforeAction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls, undos counter
	r := d.runner(calls.step(hold, held), undos.step(release, Done{}, hold))
	order := uuid.New()
	d.apply(r, command(order, release))
	rec := d.is(order, hold, StateRefused)
	if !rec.Undone() || rec.Reason != ReasonUndone || rec.DueAt != nil {
		t.Errorf("tombstone: got %+v, want one that is not due", rec)
	}
	d.finish(r)
	d.is(order, release, StateDone)

	late := command(order, hold)
	d.apply(r, late)
	d.claim(r)
	if !d.marked(late.ID) {
		t.Error("inbox mark of the late action: got none, want one")
	}
	d.told(order, "evt.hotel.released 1", "release_room done", "hold_room refused undone")
	calls.is(d, 0)
	undos.is(d, 1)
	d.idle(r)
}

// In one batch the undo goes first, whatever the sequence.
func TestActionBesideItsUndo(t *testing.T) {
	t.Parallel()
	for _, first := range []string{hold, release} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			var calls, undos counter
			r := d.runner(calls.step(hold, held), undos.step(release, Done{}, hold))
			order := uuid.New()
			batch := []messaging.Delivery{command(order, hold), command(order, release)}
			if first == release {
				slices.Reverse(batch)
			}
			d.apply(r, batch...)
			d.finish(r)
			d.claim(r)
			d.told(order, "hold_room refused undone", "evt.hotel.released 1", "release_room done")
			calls.is(d, 0)
			undos.is(d, 1)
			d.idle(r)
		})
	}
}

// Undos and actions of the same orders, in batches of opposite sequences at two instances, all come to an end.
func TestManyUndosAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls, undos counter
	orders := make([]uuid.UUID, 20)
	for i := range orders {
		orders[i] = uuid.New()
	}
	const instances = 4
	errs := make(chan error, instances)
	runners := make([]*Runner, instances)
	for i := range runners {
		cfg := d.config()
		cfg.Pool = pgtest.Open(t, d.url)
		cfg.Concurrency = 2 * len(orders)
		runners[i] = d.runnerWith(cfg, calls.step(hold, held), undos.step(release, Done{}, hold))
		// Odd orders are undone by some instances while others take in their actions.
		var batch []messaging.Delivery
		for n, order := range orders {
			step := []string{hold, release}[(n+i)%2]
			batch = append(batch, command(order, step))
		}
		if i%2 == 1 {
			slices.Reverse(batch)
		}
		go func() {
			for range 100 {
				if err := runners[i].ApplyCommands(t.Context(), batch); inbox.Blame(err) != inbox.Race {
					errs <- err
					return
				}
			}
			errs <- errors.New("still in conflict after 100 tries")
		}()
	}
	for range runners {
		if err := <-errs; err != nil {
			t.Errorf("taking in: %v", err)
		}
	}
	// Until every undo has its outcome: results are recorded, time passes, and what is due is claimed.
	for range 20 {
		for _, r := range runners {
			r.calls.Wait()
			for len(r.results) > 0 {
				d.finish(r)
			}
		}
		d.pass(DefaultSettle)
		for _, r := range runners {
			d.claim(r)
		}
	}
	for _, order := range orders {
		d.is(order, release, StateDone)
		if rec := d.step(order, hold); !rec.Undone() || !rec.State.Finished() || rec.DueAt != nil {
			t.Errorf("action: got %s, undone at %v, due %v, want it finished and undone", rec.State, rec.UndoneAt, rec.DueAt)
		}
	}
	undos.is(d, int64(len(orders)))
	for _, r := range runners {
		d.idle(r)
	}
}

// While the action is being called its undo waits, is no attempt, and says nothing.
func TestUndoWaitsForTheRecordOfItsAction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	g := newGate()
	undo := newGate()
	r := d.runner(g.step(hold), undo.step(release, hold))
	order := uuid.New()
	d.apply(r, command(order, hold))
	g.call(d)
	for range 3 {
		if d.step(order, hold).UndoneAt == nil {
			d.apply(r, command(order, release))
		} else {
			d.exec(`UPDATE step SET due_at = now() WHERE step_name = $1`, release)
			d.claim(r)
		}
		if f := d.finish(r); !f.blocked {
			t.Fatalf("undo beside its action: got %+v, want it put off", f)
		}
	}
	rec := d.is(order, release, StatePending)
	if rec.Attempts != 0 || rec.FirstAttemptAt != nil || rec.DueAt == nil {
		t.Errorf("undo on record: got attempts %d, first at %v, due %v, want 0, none, some time", rec.Attempts, rec.FirstAttemptAt, rec.DueAt)
	}
	d.told(order)

	g.answer <- held
	d.finish(r)
	rec = d.is(order, hold, StateDone)
	if !rec.Undone() || rec.DueAt != nil {
		t.Errorf("action: got undone at %v, due %v, want undone and not due", rec.UndoneAt, rec.DueAt)
	}
	d.exec(`UPDATE step SET due_at = now() WHERE step_name = $1`, release)
	d.claim(r)
	if c := undo.call(d); c.Attempt != 1 {
		t.Errorf("attempt of the undo: got %d, want 1", c.Attempt)
	}
	undo.answer <- Done{}
	d.finish(r)
	rows := d.told(order, "evt.hotel.held 1", "hold_room done", "evt.hotel.released 2", "release_room done")
	if len(rows) == 4 && (rows[0].Left || !rows[2].Left) {
		t.Errorf("left to the sweep: got %t and %t, want the first handed off, and the second not: nobody has proved it", rows[0].Left, rows[2].Left)
	}
	d.idle(r)
}

// The owner of an action is frozen. Its undo waits for the lease and the settling time, shuts him out, and goes on; what he
// finds out when he wakes is not recorded.
func TestUndoShutsOutAFrozenOwner(t *testing.T) {
	t.Parallel()
	for _, waiting := range []bool{false, true} {
		t.Run(fmt.Sprintf("waiting %t", waiting), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			g, undo := newGate(), newGate()
			frozen, other := d.runner(g.step(hold), undo.step(release, hold)), d.runner(g.step(hold), undo.step(release, hold))
			order := uuid.New()
			d.apply(frozen, command(order, hold))
			g.call(d)
			want, released := []string{}, 1
			if waiting {
				g.answer <- Waiting{}
				d.finish(frozen)
				d.pass(DefaultLease)
				d.claim(frozen)
				g.call(d)
				want, released = append(want, "evt.hotel.held_on_request 1", "hold_room waiting"), 2
			}
			d.apply(other, command(order, release))
			if f := d.finish(other); !f.blocked {
				t.Fatalf("undo within the lease: got %+v, want it put off", f)
			}
			d.pass(DefaultLease)
			d.claim(other)
			if f := d.finish(other); !f.blocked {
				t.Fatalf("undo within the settling time: got %+v, want it put off", f)
			}
			d.pass(DefaultSettle)
			d.claim(other)
			undo.call(d)

			g.answer <- held // he wakes while the undo is called
			d.finish(frozen)
			d.told(order, want...)
			if rec := d.step(order, hold); rec.State.Finished() || rec.LeaseOwner != "" {
				t.Errorf("action: got %s with owner %q, want it open and without owner", rec.State, rec.LeaseOwner)
			}
			undo.answer <- Done{}
			d.finish(other)
			d.is(order, release, StateDone)
			if rec := d.is(order, hold, StateRefused); rec.Reason != ReasonUndone {
				t.Errorf("reason: got %q, want %q", rec.Reason, ReasonUndone)
			}
			d.told(order, append(want, fmt.Sprintf("evt.hotel.released %d", released), "release_room done")...)
			d.idle(frozen)
			d.idle(other)
		})
	}
}

// An action whose attempt ended without an answer may still have its effect a moment later.
func TestUndoWaitsAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls, undos counter
	r := d.runner(calls.step(hold, Unknown{Err: errors.New("no answer")}), undos.step(release, Done{}, hold))
	order := uuid.New()
	d.apply(r, command(order, hold))
	d.finish(r)
	d.apply(r, command(order, release))
	if rec := d.step(order, hold); rec.DueAt != nil {
		t.Errorf("undone action: got due at %v, want never", rec.DueAt)
	}
	if f := d.finish(r); !f.blocked {
		t.Fatalf("undo right after the attempt: got %+v, want it put off", f)
	}
	d.pass(DefaultSettle)
	d.claim(r)
	d.finish(r)
	d.is(order, release, StateDone)
	d.is(order, hold, StateRefused)
	d.told(order, "evt.hotel.released 1", "release_room done")
	calls.is(d, 1)
	undos.is(d, 1)
	d.idle(r)
}

// The attempt ends without an answer after the undo has come: it is the last, and the undo waits out the settling time.
func TestUnknownOutcomeAfterTheTombstone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	g := newGate()
	var undos counter
	r := d.runner(g.step(hold), undos.step(release, Done{}, hold))
	order := uuid.New()
	d.apply(r, command(order, hold))
	g.call(d)
	d.apply(r, command(order, release))
	d.finish(r) // put off
	g.answer <- Unknown{Err: errors.New("no answer"), Reference: "r15"}
	d.finish(r)
	if rec := d.is(order, hold, StatePending); rec.DueAt != nil || rec.Reference != "r15" {
		t.Errorf("undone action: got due at %v, reference %q, want never, r15", rec.DueAt, rec.Reference)
	}
	d.exec(`UPDATE step SET due_at = now() WHERE step_name = $1`, release)
	d.claim(r)
	if f := d.finish(r); !f.blocked {
		t.Fatalf("undo right after the attempt: got %+v, want it put off", f)
	}
	d.pass(DefaultSettle)
	d.claim(r)
	d.finish(r)
	d.is(order, release, StateDone)
	undos.is(d, 1)
	d.idle(r)
}

// An undo settles the actions of its own order, and no others.
func TestUndoSettlesItsOwnOrderOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const untidy = "untidy_room"
	g := newGate()
	var undos counter
	r := d.runner(g.step(hold), g.step(tidy), undos.step(release, Done{}, hold), undos.step(untidy, Done{}, tidy))
	x, y := uuid.New(), uuid.New()
	d.apply(r, command(x, hold)) // in flight, while the two undos below end together
	g.call(d)
	d.apply(r, command(x, release))
	d.finish(r) // put off
	d.apply(r, command(x, untidy), command(y, release))
	r.recordAll(t.Context(), []finished{d.result(r), d.result(r)})
	d.is(x, untidy, StateDone)
	d.is(y, release, StateDone)

	g.answer <- held
	d.finish(r)
	d.is(x, hold, StateDone)
	d.idle(r)
}

// The tombstone is committed between the reading and the writing of an intake of its action.
func TestActionThatLosesTheRaceWithItsTombstone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls, undos counter
	slow := d.config()
	other := d.runner(calls.step(hold, held), undos.step(release, Done{}, hold))
	order := uuid.New()
	overtaken := false
	slow.Projector = hotel{fail: func([]Change) error {
		if !overtaken {
			overtaken = true
			d.apply(other, command(order, release))
			d.finish(other)
		}
		return nil
	}}
	r := d.runnerWith(slow, calls.step(hold, held), undos.step(release, Done{}, hold))
	late := command(order, hold)
	if err := r.ApplyCommands(t.Context(), []messaging.Delivery{late}); inbox.Blame(err) != inbox.Race {
		t.Fatalf("overtaken intake: got %v, want a race", err)
	}
	d.idle(r)
	d.apply(r, late)
	d.told(order, "evt.hotel.released 1", "release_room done", "hold_room refused undone")
	calls.is(d, 0)
	d.idle(r)
}
