package participant

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// called takes commands in, and gives their results when the calls have ended.
func (d *desk) called(r *Runner, batch ...messaging.Delivery) []finished {
	d.Helper()
	d.apply(r, batch...)
	results := make([]finished, len(batch))
	for i := range results {
		results[i] = d.result(r)
	}
	return results
}

// The database goes away while a result waits. The result is recorded when it is back.
func TestResultWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p, url := newProxy(t, d.url)
	cfg := d.config()
	cfg.Pool = pgtest.Open(t, url)
	var calls counter
	r := d.runnerWith(cfg, calls.step(hold, held))
	order := uuid.New()
	results := d.called(r, command(order, hold))
	p.setAway(true)
	recorded := make(chan struct{})
	go func() {
		defer close(recorded)
		r.recordAll(t.Context(), results)
	}()
	select {
	case <-p.tried:
	case <-time.After(20 * time.Second):
		t.Fatal("the recorder does not look for the database")
	}
	d.is(order, hold, StatePending)
	p.setAway(false)
	select {
	case <-recorded:
	case <-time.After(20 * time.Second):
		t.Fatal("the result is not recorded")
	}
	d.is(order, hold, StateDone)
	d.told(order, "evt.hotel.held 1", "hold_room done")
	calls.is(d, 1)
	d.idle(r)
}

// The commit of a record is made but its answer is lost: the step is done once, and is answered once.
func TestAnswerToTheRecordIsLost(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p, url := newProxy(t, d.url)
	cfg := d.config()
	cfg.Pool = pgtest.Open(t, url)
	var calls counter
	r := d.runnerWith(cfg, calls.step(hold, held))
	order := uuid.New()
	results := d.called(r, command(order, hold))
	p.loseAnswerTo("r12") // the reference; statements were prepared under names
	// The first batch prepares its statements, without arguments; so this is the execution.
	r.recordAll(t.Context(), results)
	select {
	case <-p.lost:
	default:
		t.Error("no answer was lost: the test shows nothing")
	}
	d.is(order, hold, StateDone)
	d.told(order, "evt.hotel.held 1", "hold_room done")
	calls.is(d, 1)
	d.idle(r)
}

// The commit of an intake is made but its answer is lost: the command is taken in once, its slot is free, and the step is
// performed when the lease that nobody uses has ended.
func TestAnswerToTheIntakeIsLost(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p, url := newProxy(t, d.url)
	cfg := d.config()
	cfg.Pool = pgtest.Open(t, url)
	var calls counter
	r := d.runnerWith(cfg, calls.step(hold, held))
	cmd := command(uuid.New(), hold)
	p.loseAnswerTo("payload of " + hold)
	if err := r.ApplyCommands(t.Context(), []messaging.Delivery{cmd}); inbox.Blame(err) != inbox.Race {
		t.Fatalf("got %v, want the unknown outcome of a commit", err)
	}
	<-p.lost
	if !d.marked(cmd.ID) {
		t.Error("inbox mark: got none, want the commit made")
	}
	d.idle(r)
	d.apply(r, cmd)
	d.idle(r)
	d.pass(DefaultLease)
	d.claim(r)
	d.finish(r)
	d.told(cmd.AggregateID, "evt.hotel.held 1", "hold_room done")
	calls.is(d, 1)
	d.idle(r)
}

// A result whose lease is lost does not take its batch down.
func TestLostLeaseCostsOnlyItself(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	var batch []messaging.Delivery
	for range 5 {
		batch = append(batch, command(uuid.New(), hold))
	}
	lost, tries := batch[2].AggregateID, 0
	cfg := d.config()
	cfg.Projector = hotel{fail: func(changes []Change) error {
		for _, c := range changes {
			if c.Row.ID == lost && len(c.Results) > 0 {
				tries++
			}
		}
		return nil
	}}
	r := d.runnerWith(cfg, calls.step(hold, held))
	results := d.called(r, batch...)
	d.exec(`UPDATE step SET token = token + 1 WHERE order_id = $1`, lost)
	r.recordAll(t.Context(), results)
	for _, cmd := range batch {
		if cmd.AggregateID == lost {
			d.is(lost, hold, StatePending)
			d.told(lost)
			continue
		}
		d.is(cmd.AggregateID, hold, StateDone)
		d.told(cmd.AggregateID, "evt.hotel.held 1", "hold_room done")
	}
	if tries != 1 {
		t.Errorf("tries to record what is lost: got %d, want 1", tries)
	}
	d.idle(r)
}

// A result that the service can not store, or not make events of, costs only itself. That it failed is on record, and it
// is tried again.
func TestResultThatCanNotBeRecorded(t *testing.T) {
	t.Parallel()
	bad := errors.New("no such room")
	tests := map[string]func(mine func(uuid.UUID) bool) hotel{
		"storing fails": func(mine func(uuid.UUID) bool) hotel {
			return hotel{fail: func(changes []Change) error {
				for _, c := range changes {
					if mine(c.Row.ID) && len(c.Results) > 0 {
						return bad
					}
				}
				return nil
			}}
		},
		"events fail": func(mine func(uuid.UUID) bool) hotel {
			return hotel{broken: func(r Result) error {
				if mine(r.OrderID) {
					return bad
				}
				return nil
			}}
		},
		"events panic": func(mine func(uuid.UUID) bool) hotel {
			return hotel{broken: func(r Result) error {
				if mine(r.OrderID) {
					panic(bad)
				}
				return nil
			}}
		},
	}
	for name, projector := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			var calls counter
			var batch []messaging.Delivery
			for range 7 {
				batch = append(batch, command(uuid.New(), hold))
			}
			poison, healed := batch[3].AggregateID, false
			cfg := d.config()
			cfg.Projector = projector(func(id uuid.UUID) bool { return id == poison && !healed })
			r := d.runnerWith(cfg, calls.step(hold, held))
			r.recordAll(t.Context(), d.called(r, batch...))
			for _, cmd := range batch {
				if cmd.AggregateID != poison {
					d.is(cmd.AggregateID, hold, StateDone)
				}
			}
			rec := d.is(poison, hold, StatePending)
			if !strings.Contains(rec.LastError, bad.Error()) || rec.Reference != "r12" || rec.LeaseOwner != "" || rec.DueAt == nil {
				t.Errorf("record: got error %q, reference %q, owner %q, due %v, want the error, r12, none, some time", rec.LastError, rec.Reference, rec.LeaseOwner, rec.DueAt)
			}
			healed = true
			d.pass(retryMax)
			d.claim(r)
			d.finish(r)
			d.is(poison, hold, StateDone)
			d.told(poison, "evt.hotel.held 1", "hold_room done")
			d.idle(r)
		})
	}
}

// The order's row moves between call and record, as often as it likes.
func TestBusinessRowMoves(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	cfg := d.config()
	moves := 0
	cfg.Projector = hotel{fail: func(changes []Change) error {
		if len(changes[0].Results) > 0 && moves < recordConflicts+2 {
			moves++
			d.exec(`UPDATE room SET revision = revision + 1, event_seq = event_seq + 1`)
		}
		return nil
	}}
	r := d.runnerWith(cfg, calls.step(hold, held))
	order := uuid.New()
	r.recordAll(t.Context(), d.called(r, command(order, hold)))
	d.is(order, hold, StateDone)
	d.told(order, "evt.hotel.held 6", "hold_room done")
	if moves != recordConflicts+2 {
		t.Errorf("moves: got %d, want %d: the test shows nothing", moves, recordConflicts+2)
	}
	d.idle(r)
}

// Results of one order are folded: one change of its row, events in sequence.
func TestResultsOfOneOrderAreFolded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	r := d.runner(calls.step(hold, held), calls.step(tidy, Refused{Reason: "too dirty", Reference: "t1"}))
	order := uuid.New()
	results := d.called(r, command(order, hold), command(order, tidy))
	r.recordAll(t.Context(), results)
	d.told(order, "evt.hotel.held 1", "hold_room done", "evt.hotel.tidied_refused 2", "tidy_room refused too dirty")
	if _, revision := d.status(order); revision != 2 {
		t.Errorf("revision of the business row: got %d, want 2", revision)
	}
	if rec := d.is(order, tidy, StateRefused); rec.Reason != "too dirty" || rec.Reference != "t1" || rec.DueAt != nil {
		t.Errorf("refused: got reason %q, reference %q, due %v, want too dirty, t1, never", rec.Reason, rec.Reference, rec.DueAt)
	}

	// A later intake has read the row at another revision than an earlier claim.
	other := uuid.New()
	first := d.called(r, command(other, hold))
	d.exec(`UPDATE room SET revision = revision + 1 WHERE order_id = $1`, other)
	second := d.called(r, command(other, tidy))
	r.recordAll(t.Context(), append(first, second...))
	d.told(other, "evt.hotel.held 1", "hold_room done", "evt.hotel.tidied_refused 2", "tidy_room refused too dirty")
	d.idle(r)
}

// When work ends a result is dropped, and its step comes back when its lease has ended.
func TestWorkEndsWhileAResultWaits(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	r := d.runner(calls.step(hold, held))
	order := uuid.New()
	results := d.called(r, command(order, hold))
	over, end := context.WithCancel(t.Context())
	end()
	r.recordAll(over, results)
	d.is(order, hold, StatePending)
	d.pass(DefaultLease)
	d.claim(r)
	if f := d.finish(r); f.record.Attempts != 2 {
		t.Errorf("attempt: got %d, want 2", f.record.Attempts)
	}
	d.is(order, hold, StateDone)
	d.idle(r)
}
