package saga_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/pkg/saga"
)

func TestTimers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.begin(1)[0]
	first := f.lastWritten(id)

	list := f.answering(nothing, nil)
	if n := f.fire(); n != 0 {
		t.Errorf("timers fired before any was due: got %d, want 0", n)
	}
	f.pass(id, 2*time.Hour)
	f.fire()
	list.want(t, "authorize")
	again := f.lastWritten(id)
	if again.ID == first.ID || again.StepKey != keys.StepKey(id, "authorize") || again.Subject != first.Subject || string(again.Payload) != string(first.Payload) {
		t.Errorf("command after nothing was found: got %+v, want %+v under a new id", again, first)
	}
	if !again.Left {
		t.Errorf("command after a deadline: got handed off, want it left to the sweep")
	}
	f.wantTimers(id, 1)
	if n := f.fire(); n != 0 {
		t.Errorf("timers fired before the next was due: got %d, want 0", n)
	}

	sent := len(f.outbox(id))
	for _, answer := range []saga.Answer{running, silent, waiting} {
		list = f.answering(answer, nil)
		f.pass(id, 5*time.Hour)
		f.fire()
		list.want(t, "authorize")
		f.wantTimers(id, 1)
	}
	list = f.answering(nothing, errors.New("no connection")) // an error is silence, whatever comes with it
	f.pass(id, 5*time.Hour)
	f.fire()
	list.want(t, "authorize")
	if got := len(f.outbox(id)); got != sent {
		t.Errorf("messages after answers that are none: got %d, want %d", got, sent)
	}

	list = f.answering(done, nil)
	f.pass(id, 5*time.Hour)
	f.fire()
	list.want(t, "authorize")
	if got := f.lastWritten(id); got.Step != "ship" || !got.Left {
		t.Errorf("command after a found success: got %+v, want ship, left to the sweep", got)
	}
	f.wantNumber("transitions caused by answers", 1,
		`SELECT count(*) FROM saga_transition WHERE step = 'authorize' AND to_state = 'done' AND cause = 'answer' AND cause_id IS NULL`)
}

// TestTimerOfAStepThatIsOver shows that a timer which finds nothing overdue is set anew for what is under way by then.
func TestTimerOfAStepThatIsOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.begin(1)[0]
	f.pass(id, time.Hour/2)
	f.apply(reply(id, "authorize", saga.OutcomeDone, uuid.Nil))
	f.wantTimers(id, 1) // it fires soon enough for the next step, too
	list := f.answering(running, nil)
	due := f.get(id).Steps[1].Due
	f.exec(`UPDATE saga_timer SET due_at = now() WHERE saga_id = $1`, id)
	f.fire()
	list.want(t)
	f.wantNumber("timer at the next step's deadline", 1, `SELECT count(*) FROM saga_timer WHERE saga_id = $1 AND due_at = $2`, id, due)
	f.wantTimers(id, 1)
	if in := f.get(id); !in.Armed.Equal(due) {
		t.Errorf("armed: got %s, want %s", in.Armed, due)
	}
}

func TestTimersOfSagasWithNothingToAwaitFallAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(3)
	completed, compensated, parked := ids[0], ids[1], ids[2]
	f.upTo(completed, "")
	f.apply(reply(compensated, "authorize", saga.OutcomeRefused, uuid.Nil))
	f.upTo(parked, "ship")
	f.apply(reply(parked, "ship", saga.OutcomeRefused, uuid.Nil), reply(parked, "void", saga.OutcomeRefused, uuid.Nil))
	f.wantStatus(completed, saga.Completed)
	f.wantStatus(compensated, saga.Compensated)
	f.wantStatus(parked, saga.Compensating)
	list := f.answering(done, nil)
	for _, id := range ids {
		f.wantTimers(id, 1) // that of the first step was enough for all
		f.pass(id, 2*time.Hour)
	}
	if got := f.fire(); got != 3 {
		t.Errorf("timers fired: got %d, want 3", got)
	}
	list.want(t)
	for _, id := range ids {
		f.wantTimers(id, 0)
	}

	// What comes late sets a timer again.
	f.apply(reply(compensated, "authorize", saga.OutcomeDone, uuid.Nil), reply(parked, "ship", saga.OutcomeDone, uuid.Nil))
	f.wantTimers(compensated, 1)
	f.wantTimers(parked, 1)
}

// TestTimerFallsAwayWhileTheSagaWakesUp lets a success arrive for a saga that has ended, just before its old timer falls away:
// the undo must not depend on that timer.
func TestTimerFallsAwayWhileTheSagaWakesUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.begin(1)[0]
	f.apply(reply(id, "authorize", saga.OutcomeRefused, uuid.Nil))
	old := f.get(id).Armed
	f.apply(reply(id, "authorize", saga.OutcomeDone, uuid.Nil))
	f.exec(`DELETE FROM saga_timer WHERE saga_id = $1 AND due_at = $2`, id, old)
	f.wantTimers(id, 1)
}

func TestBudgetOnPostgres(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(2)
	doubt, pivot := ids[0], ids[1]
	f.upTo(pivot, "capture")
	f.answering(saga.Answer{}, errors.New("no connection"))
	f.pass(doubt, 60*time.Hour)
	f.pass(pivot, 60*time.Hour)
	f.fire()
	f.wantStatus(doubt, saga.Compensating)
	if got := f.lastWritten(doubt); got.Step != "void" {
		t.Errorf("command for the step in doubt: got %+v, want void", got)
	}
	f.wantStatus(pivot, saga.Running)
	if in := f.get(pivot); in.Attention == "" {
		t.Errorf("attention of the saga at its pivot: got none, want some")
	}
	f.wantNumber("sagas that need a person", 1, `SELECT count(*) FROM saga_instance WHERE attention <> ''`)
	f.answering(done, nil)
	f.pass(doubt, 60*time.Hour)
	f.pass(pivot, 60*time.Hour)
	f.fire()
	f.wantStatus(doubt, saga.Compensated)
	f.wantNumber("sagas that need a person", 0, `SELECT count(*) FROM saga_instance WHERE attention <> ''`)
}

func TestSilentParticipantDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const each = 60
	silent, others := f.begin(each), f.begin(each)
	for _, id := range others {
		f.upTo(id, "ship")
	}
	for _, id := range append(append([]uuid.UUID(nil), silent...), others...) {
		f.pass(id, 5*time.Hour)
	}
	f.exec(`UPDATE saga_timer SET due_at = due_at - interval '1 day' WHERE saga_id = ANY ($1)`, silent) // they come first
	var mu sync.Mutex
	hung := 0
	f.ask = func(ctx context.Context, participant string, _ uuid.UUID, _ string) (saga.Answer, error) {
		if participant != "payment" {
			return done, nil
		}
		mu.Lock()
		hung++
		mu.Unlock()
		<-ctx.Done()
		return saga.Answer{}, ctx.Err()
	}
	if got, want := f.fire(), 2*each; got != want {
		t.Fatalf("timers fired: got %d, want %d", got, want)
	}
	for _, id := range others {
		if got := f.get(id).Steps[1].Phase; got != saga.Done {
			t.Errorf("step of a participant that answers: got %s, want done", got)
		}
	}
	for _, id := range silent {
		if got := f.get(id).Steps[0]; got.Phase != saga.Sent || got.Asked != 1 {
			t.Errorf("step of a silent participant: got %+v, want it sent and asked about once", got)
		}
	}
	// Those that were under way when it was found to be silent, and no more.
	if limit := saga.Askers + saga.SilentAfter; hung > limit || hung < saga.SilentAfter {
		t.Errorf("questions to the silent participant: got %d, want %d to %d", hung, saga.SilentAfter, limit)
	}
}

// TestOneThatFailsCostsOnlyItself has sagas whose rows cannot be written, more than a batch of timers holds: they are put off for longer
// each time, and others get their turn.
func TestOneThatFailsCostsOnlyItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(saga.TimerBatch + 2)
	blocked, healthy := ids[:saga.TimerBatch+1], ids[saga.TimerBatch+1]
	f.exec(`CREATE TABLE blocked AS SELECT unnest($1::uuid[]) AS id`, blocked)
	f.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.id IN (SELECT id FROM blocked) THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON sale FOR EACH ROW EXECUTE FUNCTION refuse()`)
	f.exec(`UPDATE saga_timer SET due_at = now() - interval '1 hour' - (saga_id = ANY ($1))::int * interval '1 day'`, blocked)
	f.exec(`UPDATE saga_instance SET state = jsonb_set(state, '{steps,0,due}', to_jsonb(now() - interval '1 hour'))`)
	f.answering(done, nil)
	for range 2 { // those that fail come first, and are more than one batch holds
		f.fire()
	}
	if got := f.get(healthy).Steps[0].Phase; got != saga.Done {
		t.Errorf("step of the saga that does not fail: got %s, want done", got)
	}
	if !strings.Contains(f.logged.String(), "order_id="+blocked[0].String()) {
		t.Errorf("log:\n got %s\nwant a line about %s", f.logged, blocked[0])
	}
	if n := f.fire(); n != 0 {
		t.Errorf("timers fired again: got %d, want 0", n)
	}
	waits := map[time.Duration]bool{}
	want, id := 5*time.Second, blocked[0]
	for failures := 1; failures <= 10; failures++ {
		var wait time.Duration
		var counted int
		if err := f.pool.QueryRow(t.Context(), `SELECT due_at - now(), failures FROM saga_timer WHERE saga_id = $1`, id).Scan(&wait, &counted); err != nil {
			t.Fatalf("reading the timer: %v", err)
		}
		// Some time has passed since it was put off.
		if counted != failures || wait > want*12/10 || wait < want*8/10-4*time.Second {
			t.Errorf("after failure %d: got put off by %s the %d. time, want about %s", failures, wait, counted, want)
		}
		waits[wait] = true
		want = min(2*want, 10*time.Minute)
		f.exec(`DELETE FROM saga_timer WHERE saga_id <> $1`, id)
		f.exec(`UPDATE saga_timer SET due_at = now()`)
		f.fire()
	}
	if in := f.get(id); in.Revision != 1 {
		t.Errorf("revision of a saga that failed: got %d, want 1", in.Revision)
	}
	f.exec(`DELETE FROM blocked`)
	f.exec(`UPDATE saga_timer SET due_at = now()`)
	f.fire()
	f.wantNumber("failures on record after a success", 0, `SELECT coalesce(max(failures), 0) FROM saga_timer WHERE saga_id = $1`, id)
}

// TestReplyRacesTimer lets a reply and the answer to a question come at once.
func TestReplyRacesTimer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.newEngine(pgtest.Open(t, f.url), rows{}, definition(slow))
	for round, id := range f.begin(50) {
		f.pass(id, 2*time.Hour)
		f.answering(done, nil)
		gate := make(chan struct{})
		var group sync.WaitGroup
		var errReply, errTimer error
		group.Go(func() {
			<-gate
			errReply = apply(t.Context(), other, reply(id, "authorize", saga.OutcomeDone, uuid.Nil))
		})
		group.Go(func() {
			<-gate
			_, errTimer = f.engine.FireTimers(t.Context())
		})
		close(gate)
		group.Wait()
		if err := errors.Join(errReply, errTimer); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		f.wantSubjects(id, "evt.sale.running", "cmd.payment.authorize", "cmd.shipping.ship")
		// Whatever came first, something will look at the next step.
		f.wantNumber("timers that fire by the next deadline", 1,
			`SELECT count(*) FROM (SELECT FROM saga_timer WHERE saga_id = $1 AND due_at <= $2 LIMIT 1) AS t`, id, f.get(id).Steps[1].Due)
		f.exec(`DELETE FROM saga_timer WHERE saga_id = $1`, id)
	}
}

// TestStopInTheMiddleOfAQuestion shows that our own stop is not taken for a participant's silence.
func TestStopInTheMiddleOfAQuestion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.begin(1)[0]
	f.pass(id, 60*time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	f.ask = func(ctx context.Context, _ string, _ uuid.UUID, _ string) (saga.Answer, error) {
		cancel()
		return saga.Answer{}, ctx.Err()
	}
	_, _ = f.engine.FireTimers(ctx) // whatever it says
	if in := f.get(id); in.Revision != 1 || in.Steps[0].Phase != saga.Sent {
		t.Errorf("saga after a stop: got %+v, want it untouched", in)
	}
	f.wantTimers(id, 1)
}

func TestTimersUnderLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(2)
	asked := make(chan uuid.UUID, 10)
	f.ask = func(_ context.Context, _ string, id uuid.UUID, _ string) (saga.Answer, error) {
		asked <- id
		return done, nil
	}
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		e := f.newEngine(pgtest.Open(t, f.url), rows{}, definition(slow))
		go func() { ended <- e.RunTimers(ctx) }()
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("running timers: got %v, want nil after a stop", err)
			}
		})
		t.Cleanup(stop)
		return stop
	}
	first := run()
	f.pass(ids[0], 2*time.Hour)
	if got := <-asked; got != ids[0] {
		t.Errorf("asked about: got %s, want %s", got, ids[0])
	}
	run()
	first()
	f.pass(ids[1], 2*time.Hour)
	// The first may have been stopped before it wrote down what it had heard; then that is asked again.
	for id := range asked {
		if id == ids[1] {
			break
		}
	}
}
