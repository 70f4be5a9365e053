package participant

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/messaging"
)

// stopped is this process with a clock that stands still until it is told otherwise.
type stopped struct {
	realProcess
	now time.Time
}

func (s *stopped) Now() time.Time { return s.now }

// TestRetriesAreLetGoAtALimitedRate makes many steps due at once that were attempted before, as an outage does.
func TestRetriesAreLetGoAtALimitedRate(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const n, rate, slots = 50, 10, 8
	var before counter
	first := d.runner(before.step(hold, Unknown{Err: errors.New("no answer"), RetryAfter: time.Hour}))
	commands := make([]messaging.Delivery, n)
	for i := range commands {
		commands[i] = command(uuid.New(), hold)
	}
	d.apply(first, commands...)
	for range commands {
		d.finish(first)
	}
	d.pass(2 * time.Hour)

	cfg, clock := d.config(), &stopped{now: time.Now()}
	cfg.RetryRate, cfg.Concurrency, cfg.Process = rate, slots, clock
	var calls counter
	r := d.runnerWith(cfg, calls.step(hold, held))
	finishAll := func() {
		d.Helper()
		r.calls.Wait()
		for len(r.results) > 0 {
			d.finish(r)
		}
	}
	for range 5 {
		d.claim(r)
		finishAll()
	}
	// What is left of a second's allowance lets one claim through, which must be made up for.
	calls.is(d, 2*slots)
	d.apply(r, command(uuid.New(), hold))
	finishAll()
	calls.is(d, 2*slots+1) // what is new does not wait
	clock.now = clock.now.Add(time.Second / 2)
	d.claim(r)
	calls.is(d, 2*slots+1) // 16 of 15
	clock.now = clock.now.Add(time.Second / 2)
	d.claim(r)
	finishAll()
	calls.is(d, 3*slots+1)

	// Somebody releases them, and those that wait for their next attempt.
	d.exec(`UPDATE step SET due_at = now() + interval '1 hour' WHERE due_at IS NOT NULL`)
	due, err := Release(t.Context(), d.pool)
	if want := int64(n - 3*slots); err != nil || due != want {
		t.Errorf("released: got %d, %v, want %d", due, err, want)
	}
	for range 4 {
		d.claim(r)
		finishAll()
	}
	calls.is(d, n+1)
	d.idle(r)
}

// TestReleaseLeavesAlone has steps that are not to be attempted now.
func TestReleaseLeavesAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	g := newGate()
	r := d.runner(g.step(hold), g.step(tidy))
	called, waiting := uuid.New(), uuid.New()
	d.apply(r, command(waiting, hold))
	g.call(d)
	g.answer <- Waiting{Ask: time.Hour}
	d.finish(r)
	d.apply(r, command(called, hold))
	g.call(d)
	if due, err := Release(t.Context(), d.pool); err != nil || due != 0 {
		t.Errorf("released: got %d, %v, want none", due, err)
	}
	for _, order := range []uuid.UUID{called, waiting} {
		if rec := d.step(order, hold); rec.DueAt.Before(time.Now()) {
			t.Errorf("step that is %s, of owner %q: got due, want it left alone", rec.State, rec.LeaseOwner)
		}
	}
	g.answer <- held
	d.finish(r)
	d.idle(r)
}
