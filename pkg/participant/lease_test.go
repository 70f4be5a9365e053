package participant

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/messaging"
)

// A call that hangs past its lease is taken over. The slow owner can not record over the new one, in either sequence.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for _, slowFirst := range []bool{true, false} {
		name := "the slow owner ends last"
		if slowFirst {
			name = "the slow owner ends first"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			slowCalls, calls := newGate(), newGate()
			slow, other := d.runner(slowCalls.step(hold)), d.runner(calls.step(hold))
			order := uuid.New()
			d.apply(slow, command(order, hold))
			if c := slowCalls.call(d); c.Attempt != 1 {
				t.Errorf("first attempt: got %d, want 1", c.Attempt)
			}
			d.claim(other)
			d.idle(other) // nothing is due within the lease
			d.pass(DefaultLease)
			d.claim(other)
			c := calls.call(d)
			rec := d.step(order, hold)
			if c.Attempt != 2 || rec.Token != 2 || rec.LeaseOwner != other.cfg.Owner {
				t.Errorf("takeover: got attempt %d, token %d, owner %q, want 2, 2, %q", c.Attempt, rec.Token, rec.LeaseOwner, other.cfg.Owner)
			}
			if rec.FirstAttemptAt == nil || !c.FirstAttemptAt.Equal(*rec.FirstAttemptAt) || !c.FirstAttemptAt.Before(c.Now) {
				t.Errorf("times: got first attempt %v (on record %v), now %v, want the one on record, before now", c.FirstAttemptAt, rec.FirstAttemptAt, c.Now)
			}

			slowCalls.answer <- Refused{Reason: "late"}
			calls.answer <- held
			if slowFirst {
				d.finish(slow)
				d.is(order, hold, StatePending)
				d.finish(other)
			} else {
				d.finish(other)
				d.finish(slow)
			}
			if rec := d.is(order, hold, StateDone); rec.Reference != "r12" || rec.Reason != "" {
				t.Errorf("record: got reference %q, reason %q, want r12 and none", rec.Reference, rec.Reason)
			}
			d.told(order, "evt.hotel.held 1", "hold_room done")
			d.idle(slow)
			d.idle(other)
		})
	}
}

// The context of a call ends before its lease does, counted from before the claim.
func TestCallEndsBeforeItsLease(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	cfg := d.config()
	cfg.Lease = 2 * time.Second
	limits := make(chan time.Time, 1)
	r := d.runnerWith(cfg, Step{Name: hold, Perform: func(ctx context.Context, _ *Call) Outcome {
		limit, _ := ctx.Deadline()
		limits <- limit
		<-ctx.Done()
		return Unknown{Err: context.Cause(ctx), Reference: "r13"}
	}})
	order := uuid.New()
	before := time.Now()
	d.apply(r, command(order, hold))
	after := time.Now()
	margin := cfg.Lease / callMargin
	if limit := <-limits; limit.Before(before.Add(cfg.Lease-margin)) || limit.After(after.Add(cfg.Lease-margin)) {
		t.Errorf("limit: got %s after the beginning of the intake, want %s", limit.Sub(before), cfg.Lease-margin)
	}
	d.finish(r)
	rec := d.is(order, hold, StatePending)
	if !strings.Contains(rec.LastError, context.DeadlineExceeded.Error()) || rec.Reference != "r13" || rec.LeaseOwner != "" {
		t.Errorf("record: got error %q, reference %q, owner %q, want the deadline, r13, none", rec.LastError, rec.Reference, rec.LeaseOwner)
	}
	d.idle(r)
}

// An instance that stood still from the claim until its time was over does not begin.
func TestCallThatIsLateDoesNotBegin(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	r := d.runner(calls.step(hold, held))
	order := uuid.New()
	d.apply(r, command(order, hold))
	d.result(r) // lost with its process
	d.pass(DefaultLease)
	began := time.Now().Add(-DefaultLease)
	r.takeSlot()
	got, err := r.store.Claim(t.Context(), r.cfg.Owner, r.cfg.Lease, r.names, 1, false)
	if err != nil || len(got.Steps) != 1 {
		t.Fatalf("claiming: got %d steps, %v, want 1", len(got.Steps), err)
	}
	r.start(&claim{record: &got.Steps[0], step: r.steps[hold], slot: true, began: began, now: got.Now, row: *got.Rows[order]})
	d.finish(r)
	calls.is(d, 1)
	if rec := d.is(order, hold, StatePending); rec.Attempts != 1 {
		t.Errorf("attempts: got %d, want the one that began", rec.Attempts)
	}
	d.idle(r)
}

func TestUnknownIsTriedAgainWithGrowingDelay(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		perform func(context.Context, *Call) Outcome
		failure string
	}{
		"unknown": {func(context.Context, *Call) Outcome { return Unknown{Err: errors.New("bad \x00 gateway \xff")} }, "bad \uFFFD gateway \uFFFD"},
		"panic":   {func(context.Context, *Call) Outcome { panic("oh no") }, "step panicked: oh no"},
		"nothing": {func(context.Context, *Call) Outcome { return nil }, "step gave <nil> instead of an outcome"},
		"pointer": {func(context.Context, *Call) Outcome { return &Done{} }, "step gave *participant.Done instead of an outcome"},
		"page":    {func(context.Context, *Call) Outcome { return Unknown{Err: errors.New(strings.Repeat("é", 5000))} }, strings.Repeat("é", maxError/2)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			r := d.runner(Step{Name: hold, Perform: tt.perform})
			order := uuid.New()
			d.apply(r, command(order, hold))
			for attempt := 1; attempt <= 3; attempt++ {
				d.finish(r)
				rec := d.is(order, hold, StatePending)
				if rec.LastError != tt.failure {
					t.Errorf("error on record: got %q, want %q", rec.LastError, tt.failure)
				}
				delay, want := rec.DueAt.Sub(rec.UpdatedAt), retryFirst<<(attempt-1)
				if rec.Attempts != attempt || delay < want*8/10 || delay > want*12/10 {
					t.Errorf("attempt %d: got attempts %d, next after %s, want about %s", attempt, rec.Attempts, delay, want)
				}
				d.claim(r)
				d.idle(r) // nothing is repeated before its time
				d.pass(2 * want)
				d.claim(r)
			}
			d.finish(r)
			d.told(order)
			d.idle(r)
		})
	}
}

func TestRetryDelayIsBounded(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{8, 15, 16, 1000, 1 << 30} {
		if d := retryDelay(&Record{OrderID: uuid.New(), Attempts: attempts}); d < retryMax*8/10 || d > retryMax*12/10 {
			t.Errorf("delay after %d attempts: got %s, want about %s", attempts, d, retryMax)
		}
	}
	if d := retryDelay(&Record{OrderID: uuid.New()}); d > retryFirst*12/10 {
		t.Errorf("delay after no attempt: got %s, want about %s", d, retryFirst)
	}
}

func TestWaitingIsSaidOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	g := newGate()
	r := d.runner(g.step(hold))
	order := uuid.New()
	d.apply(r, command(order, hold))
	g.call(d)
	g.answer <- Waiting{Ask: time.Minute, Reference: "r14", Result: wrapperspb.String("sign here")}
	d.finish(r)
	rec := d.is(order, hold, StateWaiting)
	if delay := rec.DueAt.Sub(rec.UpdatedAt); delay != time.Minute {
		t.Errorf("asked again: got after %s, want 1m0s", delay)
	}
	d.pass(time.Minute)
	d.claim(r)
	if c := g.call(d); c.Attempt != 2 || c.Reference != "r14" {
		t.Errorf("second attempt: got %d with reference %q, want 2, r14", c.Attempt, c.Reference)
	}
	g.answer <- Waiting{Ask: time.Minute, Result: wrapperspb.String("sign here")}
	d.finish(r)
	first := d.told(order, "evt.hotel.held_on_request 1", "hold_room waiting")[1]
	if want := string(rec.Result); first.Type != "google.protobuf.StringValue" || string(first.Payload) != want || want == "" {
		t.Errorf("reply: got %s with %q, want a StringValue with %q", first.Type, first.Payload, want)
	}
	d.pass(time.Minute)
	d.claim(r)
	g.call(d)
	g.answer <- Unknown{Err: errors.New("no answer")}
	d.finish(r)
	if kept := d.is(order, hold, StateWaiting); string(kept.Result) != string(rec.Result) {
		t.Errorf("what is waited for after an attempt without an answer: got %q, want %q", kept.Result, rec.Result)
	}
	d.pass(time.Minute)
	d.claim(r)
	g.call(d)
	g.answer <- Waiting{Ask: time.Minute, Result: wrapperspb.String("sign there")}
	d.finish(r)
	d.pass(time.Minute)
	d.claim(r)
	g.call(d)
	g.answer <- Done{}
	d.finish(r)
	rows := d.told(order, "evt.hotel.held_on_request 1", "hold_room waiting", "evt.hotel.held_on_request 2", "hold_room waiting",
		"evt.hotel.held 3", "hold_room done")
	if last := rows[len(rows)-1]; last.Type != typeOfNothing || len(last.Payload) != 0 {
		t.Errorf("reply without a result: got %s with %q, want %s and nothing", last.Type, last.Payload, typeOfNothing)
	}
	if rec := d.is(order, hold, StateDone); rec.Reference != "r14" {
		t.Errorf("reference: got %q, want r14", rec.Reference)
	}
	d.idle(r)
}

// More commands than slots: the rest waits without a lease, in line, and is claimed as slots come free.
func TestOnlyWhatCanStartIsLeased(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	g := newGate()
	cfg := d.config()
	cfg.Concurrency = 2
	r := d.runnerWith(cfg, g.step(hold))
	leased := func() (n int) {
		t.Helper()
		if err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM step WHERE lease_owner <> ''`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var batch []messaging.Delivery
	for range 5 {
		batch = append(batch, command(uuid.New(), hold))
	}
	d.apply(r, batch...)
	g.call(d)
	g.call(d)
	if n := leased(); n != 2 {
		t.Errorf("leases: got %d, want 2", n)
	}
	d.claim(r)
	if n := leased(); n != 2 {
		t.Errorf("leases while all slots are taken: got %d, want 2", n)
	}
	g.answer <- held
	d.finish(r)
	select {
	case <-r.nudge:
	case <-time.After(20 * time.Second):
		t.Fatal("the end of a call with a backlog does not wake the claiming")
	}
	// A new one does not overtake those that wait, although a slot is free.
	late := command(uuid.New(), hold)
	d.apply(r, late)
	if rec := d.step(late.AggregateID, hold); rec.LeaseOwner != "" {
		t.Error("new step: got a lease, want it in line")
	}
	for range 5 {
		r.slots <- struct{}{} // the call that ended last has given its slot back
		r.giveSlot()
		d.claim(r)
		g.answer <- held
		d.finish(r)
	}
	d.claim(r)
	for len(g.called) > 0 {
		<-g.called
	}
	for _, cmd := range append(batch, late) {
		if rec := d.is(cmd.AggregateID, hold, StateDone); rec.Attempts != 1 {
			t.Errorf("attempts: got %d, want 1", rec.Attempts)
		}
	}
	if r.backlog.Load() {
		t.Error("backlog: got one, want none once all is claimed")
	}
	d.idle(r)
}

// Steps of another release are left alone: no lease, no attempt, no slot.
func TestStrangeStepsAreLeftAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	newer, older := d.runner(calls.step(tidy, Unknown{})), d.runner(calls.step(hold, held))
	order := uuid.New()
	d.apply(newer, command(order, tidy))
	d.finish(newer)
	d.pass(time.Hour)
	d.claim(older)
	d.idle(older)
	if rec := d.step(order, tidy); rec.Token != 2 || rec.Attempts != 1 || rec.LeaseOwner != "" {
		t.Errorf("strange step: got token %d, attempts %d, owner %q, want it untouched: 2, 1, none", rec.Token, rec.Attempts, rec.LeaseOwner)
	}
	older.reportStrange(t.Context())
	d.claim(newer)
	d.finish(newer)
	calls.is(d, 2)
}

func TestSiblings(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	seen := make(chan Record, 1)
	r := d.runner(calls.step(hold, held), Step{Name: tidy, Perform: func(ctx context.Context, c *Call) Outcome {
		rec, ok, err := c.Sibling(ctx, hold)
		if _, none, noErr := c.Sibling(ctx, "paint_room"); !ok || err != nil || none || noErr != nil {
			return Refused{Reason: "no sibling"}
		}
		seen <- rec
		return Done{}
	}})
	order := uuid.New()
	d.apply(r, command(order, hold))
	d.finish(r)
	d.apply(r, command(order, tidy))
	d.finish(r)
	d.is(order, tidy, StateDone)
	if rec := <-seen; rec.State != StateDone || rec.Reference != "r12" {
		t.Errorf("sibling: got %s, %q, want done, r12", rec.State, rec.Reference)
	}
}

func TestNewRunnerRefuses(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	perform := func(context.Context, *Call) Outcome { return Done{} }
	tests := map[string]struct {
		change func(*Config)
		steps  []Step
	}{
		"no name":             {steps: []Step{{Perform: perform}}},
		"no function":         {steps: []Step{{Name: hold}}},
		"one name twice":      {steps: []Step{{Name: hold, Perform: perform}, {Name: hold, Perform: perform}}},
		"undo of nothing":     {steps: []Step{{Name: release, Undoes: []string{hold}, Perform: perform}}},
		"undo of an undo":     {steps: []Step{{Name: hold, Perform: perform}, {Name: release, Undoes: []string{hold}, Perform: perform}, {Name: tidy, Undoes: []string{release}, Perform: perform}}},
		"undo and check":      {steps: []Step{{Name: hold, Perform: perform}, {Name: tidy, Undoes: []string{hold}, Checks: []string{hold}, Perform: perform}}},
		"check of nothing":    {steps: []Step{{Name: tidy, Checks: []string{hold}, Perform: perform}}},
		"check of an undo":    {steps: []Step{{Name: hold, Perform: perform}, {Name: release, Undoes: []string{hold}, Perform: perform}, {Name: tidy, Checks: []string{release}, Perform: perform}}},
		"two checks":          {steps: []Step{{Name: hold, Perform: perform}, {Name: release, Checks: []string{hold}, Perform: perform}, {Name: tidy, Checks: []string{hold}, Perform: perform}}},
		"no pool":             {change: func(c *Config) { c.Pool = nil }},
		"no consumer":         {change: func(c *Config) { c.Consumer = "" }},
		"nowhere to reply to": {change: func(c *Config) { c.ReplySubject = "" }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := d.config()
			if tt.change != nil {
				tt.change(&cfg)
			}
			if _, err := NewRunner(cfg, tt.steps...); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}
