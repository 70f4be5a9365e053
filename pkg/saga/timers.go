package saga

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/telemetry"
)

// A saga whose deadline could not be dealt with waits so long before it is looked at again, twice as long each time, up to the most.
const (
	timerRetry    = 5 * time.Second
	timerRetryMax = 10 * time.Minute
)

// silentAfter is how many questions in a row must run out of time before a participant counts as silent: more than one,
// since one may have met a locked row.
const silentAfter = 3

// FireTimers takes a batch of timers that are due, asks about the steps that are overdue, and applies the answers. It
// reports how many timers it took. Sagas are asked about side by side and written one by one, so that one that fails costs
// only itself; it is looked at again after the others. [Engine.RunTimers] does this again and again; who does not run that
// calls it by hand.
func (e *Engine[T]) FireTimers(ctx context.Context) (int, error) { return e.fireTimers(ctx, nil) }

// fireTimers is FireTimers at a bounded rate. What the rate leaves behind stays due, and is the first of the next batch.
func (e *Engine[T]) fireTimers(ctx context.Context, limit *throttle) (int, error) {
	timers, err := e.store.Due(ctx, e.plans, timerBatch)
	if err != nil || len(timers) == 0 {
		return 0, err
	}
	fired := make(map[uuid.UUID][]Timer)
	ids := make([]uuid.UUID, 0, len(timers))
	for _, t := range timers {
		if fired[t.SagaID] == nil {
			ids = append(ids, t.SagaID)
		}
		fired[t.SagaID] = append(fired[t.SagaID], t)
	}
	l, err := e.store.Load(ctx, ids, nil)
	if err != nil {
		return 0, fmt.Errorf("reading sagas whose timers are due: %w", err)
	}
	var idle []Timer // timers that nothing depends on any more
	taken, due := len(timers), ids[:0]
	for _, id := range ids { // in the sequence in which they came due
		if r, ok := l.Sagas[id]; ok && !r.due().IsZero() {
			due = append(due, id)
		} else {
			idle = append(idle, fired[id]...)
		}
	}
	allowed := limit.allow(ctx, len(due))
	for _, id := range due[allowed:] {
		taken -= len(fired[id])
	}
	p := &pass{silent: make(map[string]int)}
	// No group context: a saga that fails must not cut the others short.
	var g errgroup.Group
	g.SetLimit(askers)
	for _, id := range due[:allowed] {
		r := l.Sagas[id]
		g.Go(func() error {
			e.fireOrPutOff(ctx, p, r, l.Now, fired[id])
			return nil
		})
	}
	_ = g.Wait() // failures were dealt with one by one
	if len(idle) > 0 {
		if err := e.store.Commit(ctx, &Unit{Fired: idle}); err != nil {
			return 0, fmt.Errorf("deleting timers: %w", err)
		}
	}
	return taken, nil
}

// pass is one batch of timers.
type pass struct {
	mu sync.Mutex
	// silent counts, for each participant, the questions in a row that ran out of time.
	silent map[string]int
}

// fireOrPutOff deals with the deadline of one saga, and looks again later if that fails.
func (e *Engine[T]) fireOrPutOff(ctx context.Context, p *pass, r *Record, now time.Time, fired []Timer) {
	err := e.fire(ctx, p, r, now, fired)
	if err == nil || isRace(err) || ctx.Err() != nil {
		return // after a race the timer is still there, and is due
	}
	failures := 1
	for _, t := range fired {
		failures = max(failures, t.Failures+1)
	}
	wait := putOff(r.ID, failures)
	ctx = telemetry.Extract(ctx, r.Trace)
	e.log.WarnContext(ctx, "saga's deadline could not be dealt with, trying again", telemetry.LogOrderID, r.ID, telemetry.LogError, err,
		"failures", failures, "in", wait)
	// The saga is not touched. What it believes about its timer is now wrong, but in the past, so that it sets another
	// when something happens to it.
	later := &Unit{Fired: fired, Set: []Timer{{Due: now.Add(wait), SagaID: r.ID, Failures: failures}}}
	if err := e.store.Commit(ctx, later); err != nil && ctx.Err() == nil {
		e.log.WarnContext(ctx, "timer not put off, it stays due", telemetry.LogOrderID, r.ID, telemetry.LogError, err)
	}
}

// putOff is how long a saga waits after so many failures in a row.
func putOff(id uuid.UUID, failures int) time.Duration {
	d := timerRetryMax
	if failures <= 8 { // beyond that it is more than the most anyway
		d = min(timerRetry<<(failures-1), timerRetryMax)
	}
	return moved(id, failures, d)
}

// fire asks about the overdue steps of one saga and applies the answers. A saga that changed meanwhile is left to its next
// timer, which is due at once.
func (e *Engine[T]) fire(ctx context.Context, p *pass, r *Record, now time.Time, fired []Timer) (err error) {
	w := e.work(now)
	w.fired = fired
	it, err := w.item(r)
	if err != nil {
		return err
	}
	questions := it.definition.Overdue(r.Instance, now)
	if len(questions) == 0 {
		return e.rearm(ctx, r, fired)
	}
	r.Armed = time.Time{} // all timers of this saga that we know of have fired
	ctx, span := e.within(ctx, r, "timer")
	defer func() {
		telemetry.Fail(span, err)
		span.End()
	}()
	for _, q := range questions {
		fault.At(fault.SagaTimerFired, r.ID, q.Step)
		answer, err := e.ask(ctx, p, r.ID, q)
		if err != nil {
			return err
		}
		fault.At(fault.SagaAsked, r.ID, q.Step)
		if err := w.advance(it, Asked{Step: q.Step, Answer: answer}, uuid.Nil, e.carrier(ctx)); err != nil {
			return err
		}
	}
	mark(span, r)
	u := w.unit()
	if err := e.store.Commit(ctx, u); err != nil {
		return fmt.Errorf("applying answers to saga %s: %w", r.ID, err)
	}
	for _, q := range questions {
		fault.At(fault.SagaAnswered, r.ID, q.Step)
	}
	e.cfg.Relay.HandOff(u.Chains)
	w.committed(ctx)
	return nil
}

// rearm sets the timer of a saga whose deadline has moved since its timers were set. It does so by compare-and-set:
// whoever changes the saga at this moment may rely on one of the timers that fall away.
func (e *Engine[T]) rearm(ctx context.Context, r *Record, fired []Timer) error {
	r.Armed = r.due()
	again := &Unit{Updates: []*Record{r}, Fired: fired, Set: []Timer{{Due: r.Armed, SagaID: r.ID}}}
	if err := e.store.Commit(ctx, again); err != nil {
		return fmt.Errorf("setting the timer of saga %s anew: %w", r.ID, err)
	}
	return nil
}

// ask asks a participant. Its error is silence, but a stop of ours is not. A participant that has let several questions
// in a row run out of time is not asked again in this batch, so that waiting for it costs the sagas of others little.
func (e *Engine[T]) ask(ctx context.Context, p *pass, id uuid.UUID, q Question) (Answer, error) {
	p.mu.Lock()
	gone := p.silent[q.Participant] >= silentAfter
	p.mu.Unlock()
	if gone {
		return Answer{Finding: Silent}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, e.cfg.AskTimeout)
	defer cancel()
	answer, err := e.cfg.Asker.Ask(bounded, q.Participant, id, q.Step, keys.StepKey(id, q.Step))
	if ctx.Err() != nil {
		return Answer{}, fmt.Errorf("asking about %s of saga %s: %w", q.Step, id, ctx.Err())
	}
	p.mu.Lock()
	if err != nil && bounded.Err() != nil {
		p.silent[q.Participant]++
	} else {
		p.silent[q.Participant] = 0
	}
	p.mu.Unlock()
	if err != nil {
		e.log.WarnContext(ctx, "participant did not answer", telemetry.LogOrderID, id, telemetry.LogStep, q.Step, telemetry.LogError, err)
		return Answer{Finding: Silent}, nil
	}
	return answer, nil
}
