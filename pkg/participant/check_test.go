package participant

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
)

// recheck is the check of hold_room in these tests.
const recheck = "recheck_room"

// checked makes the steps of a hotel that looks after rooms whose holding was in doubt.
func (d *desk) checked(holds, checks *gate) *Runner {
	check := checks.step(recheck)
	check.Checks = []string{hold}
	undo := Step{Name: release, Undoes: []string{hold}, Perform: func(context.Context, *Call) Outcome { return Done{} }}
	return d.runner(holds.step(hold), undo, check)
}

// none fails if a step is on record.
func (d *desk) none(order uuid.UUID, step string) {
	d.Helper()
	if rec, ok, err := Find(d.Context(), d.pool, order, step); ok || err != nil {
		d.Errorf("step %s: got %+v, %v, want none", step, rec, err)
	}
}

func TestNoCheckWithoutADoubt(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]Outcome{"done": Done{}, "refused": Refused{Reason: "full"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			holds := newGate()
			r := d.checked(holds, newGate())
			order := uuid.New()
			d.apply(r, command(order, hold))
			holds.answer <- outcome
			d.finish(r)
			d.none(order, recheck)
			d.apply(r, command(order, release))
			d.finish(r)
			d.is(order, release, StateDone)
			d.none(order, recheck)
		})
	}
	t.Run("never attempted", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		r := d.checked(newGate(), newGate())
		order := uuid.New()
		d.apply(r, command(order, release))
		d.finish(r)
		d.none(order, recheck)
	})
}

// An attempt without an answer may have its effect at any time: a check looks after the step is over, and again after its undo.
func TestCheckAfterADoubt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	holds, checks := newGate(), newGate()
	r := d.checked(holds, checks)
	order := uuid.New()
	d.apply(r, command(order, hold))
	holds.answer <- Unknown{Err: errors.New("no answer")}
	d.finish(r)
	d.none(order, recheck) // the next attempt looks itself
	d.pass(time.Minute)
	d.claim(r)
	holds.answer <- Done{Reference: "r12"}
	d.finish(r)
	rec := d.is(order, recheck, StatePending)
	if rec.Kind != KindCheck || rec.IdempotencyKey != "key-1" || rec.Trace.TraceParent == "" || rec.DueAt.Sub(rec.UpdatedAt) != DefaultSettle {
		t.Errorf("check: got %+v, want one of key-1, in its trace, due after %s", rec, DefaultSettle)
	}
	d.claim(r)
	d.idle(r) // it is not due yet

	d.pass(DefaultSettle)
	d.claim(r)
	if c := checks.call(d); c.OrderID != order || c.Attempt != 1 {
		t.Errorf("check: got %+v, want the first of %s", c, order)
	}
	checks.answer <- Waiting{Ask: time.Hour}
	d.finish(r)
	d.pass(time.Hour)
	d.claim(r)
	checks.call(d)
	checks.answer <- Done{}
	d.finish(r)
	if rec := d.is(order, recheck, StateDone); rec.DueAt != nil {
		t.Errorf("check that has ended: got due at %s, want never", rec.DueAt)
	}

	d.apply(r, command(order, release))
	d.finish(r)
	if rec := d.is(order, recheck, StatePending); rec.DueAt == nil {
		t.Error("check after the undo: got due never, want it to look again")
	}
	// Nobody has asked for a check, so nobody hears of it.
	d.told(order, "evt.hotel.held 1", "hold_room done", "evt.hotel.released 2", "release_room done")
	d.idle(r)
}

// The undo of an action in doubt begins the check, and a check that is looking at that moment looks once more.
func TestCheckAfterTheUndoOfADoubt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	holds, checks := newGate(), newGate()
	r := d.checked(holds, checks)
	order := uuid.New()
	d.apply(r, command(order, hold))
	holds.answer <- Unknown{Err: errors.New("no answer")}
	d.finish(r)
	d.apply(r, command(order, release))
	d.finish(r) // put off for the settling time
	d.pass(DefaultSettle)
	d.claim(r)
	d.finish(r)
	d.is(order, release, StateDone)
	d.is(order, recheck, StatePending)

	d.pass(DefaultSettle)
	d.claim(r)
	checks.call(d)
	d.exec(followSteps, []uuid.UUID{order}, []string{recheck}, []string{"key-1"}, []string{""}, []string{""}, []time.Duration{time.Hour})
	checks.answer <- Done{}
	d.finish(r)
	d.claim(r)
	checks.call(d)
	checks.answer <- Done{}
	d.finish(r)
	d.is(order, recheck, StateDone)
	d.idle(r)
}

func TestCheckIsNoCommand(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := d.checked(newGate(), newGate())
	err := r.ApplyCommands(t.Context(), []messaging.Delivery{command(uuid.New(), recheck)})
	if !errors.Is(err, ErrUnknownStep) || !errors.Is(err, inbox.ErrPermanent) {
		t.Errorf("command for a check: got %v, want %v, for good", err, ErrUnknownStep)
	}
}

// nudge says that something has changed for an order.
func (d *desk) nudge(order uuid.UUID, steps ...string) {
	d.Helper()
	var b pgx.Batch
	QueueNudge(&b, order, steps...)
	if err := postgres.SendAtomic(d.Context(), d.pool, &b); err != nil {
		d.Fatalf("nudging: %v", err)
	}
}

func TestNudge(t *testing.T) {
	t.Parallel()
	t.Run("a step that waits looks now", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		g := newGate()
		r := d.runner(g.step(hold))
		order, other := uuid.New(), uuid.New()
		for _, id := range []uuid.UUID{order, other} {
			d.apply(r, command(id, hold))
			g.call(d)
			g.answer <- Waiting{Ask: time.Hour}
			d.finish(r)
		}
		d.nudge(order, hold, release)
		d.claim(r)
		if c := g.call(d); c.OrderID != order || c.Attempt != 2 {
			t.Errorf("attempt after the nudge: got %d of %s, want the second of %s", c.Attempt, c.OrderID, order)
		}
		g.answer <- Done{}
		d.finish(r)
		d.nudge(order, hold) // finished
		d.nudge(uuid.New(), hold)
		d.claim(r)
		d.idle(r)
	})
	t.Run("a step that is being called looks again", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		g := newGate()
		r := d.runner(g.step(hold))
		order := uuid.New()
		d.apply(r, command(order, hold))
		g.call(d)
		d.nudge(order, hold)
		g.answer <- Waiting{Ask: time.Hour} // it looked before the change
		d.finish(r)
		d.claim(r)
		g.call(d)
		g.answer <- Waiting{Ask: time.Hour}
		d.finish(r)
		d.claim(r)
		d.idle(r) // once
	})
	t.Run("a step that is being called and ends stays ended", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		g := newGate()
		r := d.runner(g.step(hold))
		order := uuid.New()
		d.apply(r, command(order, hold))
		g.call(d)
		d.nudge(order, hold)
		g.answer <- Done{}
		d.finish(r)
		if rec := d.is(order, hold, StateDone); rec.DueAt != nil {
			t.Errorf("finished step: got due at %s, want never", rec.DueAt)
		}
	})
	t.Run("an action that was undone stays undone", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		g := newGate()
		r := d.runner(g.step(hold), (&counter{}).step(release, Unknown{Err: errors.New("no answer")}, hold))
		order := uuid.New()
		d.apply(r, command(order, hold))
		g.call(d)
		g.answer <- Waiting{Ask: time.Hour}
		d.finish(r)
		d.apply(r, command(order, release))
		d.finish(r)
		d.nudge(order, hold)
		if rec := d.step(order, hold); rec.DueAt != nil {
			t.Errorf("undone action after a nudge: got due at %s, want never", rec.DueAt)
		}
	})
}

func TestRetry(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	holds, undos := newGate(), newGate()
	r := d.runner(holds.step(hold), undos.step(release, hold))
	order := uuid.New()
	retry := func(step string, want bool) {
		t.Helper()
		if rec, ok, err := Retry(t.Context(), d.pool, order, step); err != nil || ok != want || ok && rec.StepName != step {
			t.Errorf("retrying %s: got %+v, %v, %v, want %v", step, rec, ok, err, want)
		}
	}
	retry(hold, false) // not there
	d.apply(r, command(order, hold))
	holds.call(d)
	holds.answer <- Unknown{Err: errors.New("no answer"), RetryAfter: time.Hour}
	d.finish(r)
	retry(hold, true)
	d.claim(r)
	holds.call(d)
	holds.answer <- Done{}
	d.finish(r)
	retry(hold, false) // done

	d.apply(r, command(order, release))
	undos.call(d)
	undos.answer <- Refused{Reason: "still in bed"}
	d.finish(r)
	retry(release, true)
	retry(release, true) // it may be repeated
	d.is(order, release, StatePending)
	d.claim(r)
	undos.call(d)
	undos.answer <- Done{}
	d.finish(r)
	d.is(order, release, StateDone)
	retry(release, false)
	d.told(order, "evt.hotel.held 1", "hold_room done", "evt.hotel.released_refused 2", "release_room refused still in bed",
		"evt.hotel.released 3", "release_room done")
	d.idle(r)

	refused := uuid.New()
	d.apply(r, command(refused, hold))
	holds.call(d)
	holds.answer <- Refused{Reason: "full"}
	d.finish(r)
	if _, ok, err := Retry(t.Context(), d.pool, refused, hold); ok || err != nil {
		t.Errorf("retrying a refused action: got %v, %v, want no", ok, err)
	}
}

// What the first attempt knows as its time is what all later ones know.
func TestTimeOfTheFirstAttempt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	g := newGate()
	r := d.runner(g.step(hold))
	order := uuid.New()
	d.apply(r, command(order, hold))
	first := g.call(d)
	g.answer <- Unknown{Err: errors.New("no answer")}
	d.finish(r)
	d.exec(`UPDATE step SET due_at = now()`)
	d.claim(r)
	if second := g.call(d); !second.FirstAttemptAt.Equal(first.FirstAttemptAt) || !first.FirstAttemptAt.Equal(first.Now) {
		t.Errorf("time of the first attempt: got %s, and in the second %s, want %s", first.FirstAttemptAt, second.FirstAttemptAt, first.Now)
	}
	g.answer <- Done{}
	d.finish(r)
}
