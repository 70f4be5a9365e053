package participant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Defaults of [Config].
const (
	// DefaultLease is how long a claim lasts. The call must end before it, by CallMargin.
	DefaultLease = 15 * time.Second
	// DefaultConcurrency bounds the calls that are under way at one time in one process.
	DefaultConcurrency = 64
	// DefaultSettle is how long after the end of a lease a request of its owner may still arrive at the outside system.
	DefaultSettle = 2 * time.Second

	// callMargin is what a call leaves of its lease for recording its result.
	callMargin    = 3 * time.Second
	claimInterval = 250 * time.Millisecond
	// blockedRetry is how long an undo waits before it looks again whether its action is still in flight.
	blockedRetry = 500 * time.Millisecond
	retryFirst   = 500 * time.Millisecond
	retryMax     = time.Minute
)

// Config makes a [Runner].
type Config struct {
	Pool      *pgxpool.Pool
	Relay     *outbox.Relay
	Projector Projector
	// Source names the service in messages, such as "/payment".
	Source string
	// ReplySubject is where replies go.
	ReplySubject string
	// Consumer is the inbox consumer under which commands are marked.
	Consumer string
	// Owner names this instance in leases.
	Owner string
	// Lease, Concurrency and Settle default to the constants above.
	Lease       time.Duration
	Concurrency int
	Settle      time.Duration
	Logger      *slog.Logger
	// Tracer makes a span for each attempt; nil makes none.
	Tracer trace.Tracer
}

// Runner takes commands in and performs their steps.
type Runner struct {
	cfg   Config
	steps map[string]*Step
	log   *slog.Logger
	slots chan struct{}
	// nudge wakes the claiming. It is a hint.
	nudge   chan struct{}
	results chan finished
	calls   sync.WaitGroup

	// ctx ends when calls in progress must be cut short. It is not the context of any message: a stop, or a message's end,
	// does not cancel a call.
	ctx    context.Context
	cancel context.CancelFunc
}

// claim is a step that this process owns.
type claim struct {
	record *Record
	step   *Step
	// row is the business row as it was when the step was claimed: a guess that the compare-and-set checks.
	row Row
	// slot tells that a slot was taken for the call.
	slot bool
	// began is our own clock just before the claim; now is the database's.
	began time.Time
	now   time.Time
}

// finished is a claim with what came of it.
type finished struct {
	*claim
	outcome Outcome
	// blocked says that the undo did not start, because its action may be in flight.
	blocked bool
	trace   telemetry.Carrier
}

// NewRunner makes a runner. It does nothing before [Runner.Run].
func NewRunner(cfg Config, steps ...Step) (*Runner, error) {
	if cfg.Lease <= 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.Settle <= 0 {
		cfg.Settle = DefaultSettle
	}
	if cfg.Lease <= callMargin {
		return nil, fmt.Errorf("making a participant: the lease of %s leaves no time for a call, it must be longer than %s", cfg.Lease, callMargin)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Owner == "" {
		cfg.Owner = uuid.NewString()
	}
	r := &Runner{
		cfg: cfg, log: cfg.Logger, steps: make(map[string]*Step),
		slots: make(chan struct{}, cfg.Concurrency),
		nudge: make(chan struct{}, 1),
		// The recorder takes results as they come; a call never waits for it long.
		results: make(chan finished, cfg.Concurrency),
	}
	for i := range steps {
		if steps[i].Name == "" || steps[i].Perform == nil || r.steps[steps[i].Name] != nil {
			return nil, fmt.Errorf("making a participant: step %q needs a name of its own and a function", steps[i].Name)
		}
		r.steps[steps[i].Name] = &steps[i]
	}
	for _, s := range steps {
		for _, action := range s.Undoes {
			if r.steps[action] == nil || len(r.steps[action].Undoes) > 0 {
				return nil, fmt.Errorf("making a participant: %s undoes %q, which is no action here", s.Name, action)
			}
		}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Run claims what is due and records results until stop ends. Then it waits for the calls in progress and records them,
// until work ends. The intake of commands must have stopped before.
func (r *Runner) Run(stop, work context.Context) error {
	recorded := make(chan struct{})
	go func() {
		defer close(recorded)
		r.recordLoop(work)
	}()
	r.claimLoop(stop)

	over := make(chan struct{})
	go func() {
		r.calls.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-work.Done():
		r.cancel()
		<-over
	}
	close(r.results)
	<-recorded
	r.cancel()
	return nil
}

func (r *Runner) takeSlot() bool {
	select {
	case r.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r *Runner) giveSlot() { <-r.slots }

// claimLoop claims as many steps as there are free slots, whenever something may be due.
func (r *Runner) claimLoop(stop context.Context) {
	timer := time.NewTicker(claimInterval)
	defer timer.Stop()
	for {
		select {
		case <-stop.Done():
			return
		case <-timer.C:
		case <-r.nudge:
		}
		for stop.Err() == nil {
			n, err := r.claimDue(stop)
			if err != nil && stop.Err() == nil {
				r.log.Warn("claiming steps failed, trying again", telemetry.LogError, err)
			}
			if n == 0 {
				break
			}
		}
	}
}

func (r *Runner) claimDue(ctx context.Context) (int, error) {
	free := 0
	for free < cap(r.slots) && r.takeSlot() {
		free++
	}
	claimed := 0
	defer func() {
		for ; free > claimed; free-- {
			r.giveSlot()
		}
	}()
	if free == 0 {
		return 0, nil
	}
	began := time.Now() // before the claim, so that our idea of the lease ends before the database's
	records, now, rows, err := r.claimRows(ctx, free)
	if err != nil {
		return 0, err
	}
	for i := range records {
		record := &records[i]
		step, ok := r.steps[record.StepName]
		if !ok {
			r.log.Error("step on record is unknown here, leaving it alone", telemetry.LogOrderID, record.OrderID, telemetry.LogStep, record.StepName)
			continue
		}
		c := &claim{record: record, step: step, slot: true, began: began, now: now}
		if row := rows[record.OrderID]; row != nil {
			c.row = *row
		}
		c.row.ID = record.OrderID
		claimed++
		r.start(c)
	}
	return claimed, nil
}

func (r *Runner) claimRows(ctx context.Context, n int) (records []Record, now time.Time, rows map[uuid.UUID]*Row, err error) {
	found, err := r.cfg.Pool.Query(ctx, claimSteps, n, r.cfg.Owner, r.cfg.Lease)
	if err != nil {
		return nil, now, nil, fmt.Errorf("claiming steps: %w", err)
	}
	if records, err = pgx.CollectRows(found, scanRecord); err != nil {
		return nil, now, nil, fmt.Errorf("claiming steps: %w", err)
	}
	if len(records) == 0 {
		return nil, now, nil, nil
	}
	orders := make([]uuid.UUID, len(records))
	for i := range records {
		orders[i] = records[i].OrderID
		now = records[i].UpdatedAt // the time of the claim
	}
	rows = make(map[uuid.UUID]*Row)
	var b pgx.Batch
	r.cfg.Projector.QueueLoad(&b, orders, rows)
	if err := r.cfg.Pool.SendBatch(ctx, &b).Close(); err != nil {
		// The steps stay claimed, and come back when their lease ends.
		return nil, now, nil, fmt.Errorf("reading business rows of claimed steps: %w", err)
	}
	return records, now, rows, nil
}

// start performs a claimed step in a goroutine of its own.
func (r *Runner) start(c *claim) {
	r.calls.Add(1)
	go func() {
		defer r.calls.Done()
		ctx, cancel := context.WithDeadline(r.ctx, c.began.Add(r.cfg.Lease-callMargin))
		f := r.perform(ctx, c)
		cancel()
		r.giveSlot()
		r.wake() // somebody may wait for the slot
		r.results <- f
	}()
}

func (r *Runner) wake() {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

func (r *Runner) perform(ctx context.Context, c *claim) (f finished) {
	rec := c.record
	f = finished{claim: c, trace: rec.Trace}
	ctx = telemetry.Extract(ctx, rec.Trace)
	if r.cfg.Tracer != nil {
		var span trace.Span
		ctx, span = r.cfg.Tracer.Start(ctx, "perform "+rec.StepName, trace.WithAttributes(
			telemetry.OrderID.String(rec.OrderID.String()), telemetry.IdempotencyKey.String(rec.IdempotencyKey),
			telemetry.Step.String(rec.StepName), telemetry.Attempt.Int(rec.Attempts)))
		ctx = telemetry.WithAttributes(ctx, telemetry.OrderID.String(rec.OrderID.String()),
			telemetry.IdempotencyKey.String(rec.IdempotencyKey), telemetry.Step.String(rec.StepName))
		defer func() {
			span.SetAttributes(telemetry.Outcome.String(outcomeName(f)))
			span.End()
		}()
		f.trace = telemetry.Inject(ctx)
	}
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("step panicked", telemetry.LogOrderID, rec.OrderID, telemetry.LogStep, rec.StepName, "panic", p, "stack", string(debug.Stack()))
			f.outcome = Unknown{Err: fmt.Errorf("step panicked: %v", p)}
		}
	}()
	if len(c.step.Undoes) > 0 {
		blocked, err := r.inFlight(ctx, rec.OrderID, c.step.Undoes)
		if err != nil {
			f.outcome = Unknown{Err: err}
			return f
		}
		if blocked {
			f.blocked, f.outcome = true, Unknown{Err: errors.New("the action may be in flight"), RetryAfter: blockedRetry}
			return f
		}
	}
	call := &Call{
		OrderID: rec.OrderID, StepName: rec.StepName, StepKey: stepKey(rec.OrderID, rec.StepName), IdempotencyKey: rec.IdempotencyKey,
		Payload: rec.Payload, Attempt: rec.Attempts, Now: c.now, Reference: rec.Reference, FirstAttemptAt: c.now,
		siblings: func(ctx context.Context, step string) (Record, bool, error) {
			return Find(ctx, r.cfg.Pool, rec.OrderID, step)
		},
	}
	if rec.FirstAttemptAt != nil {
		call.FirstAttemptAt = *rec.FirstAttemptAt
	}
	f.outcome = c.step.Perform(ctx, call)
	if f.outcome == nil {
		f.outcome = Unknown{Err: errors.New("step gave no outcome")}
	}
	return f
}

// inFlight tells whether a call of one of the actions may still be under way.
func (r *Runner) inFlight(ctx context.Context, order uuid.UUID, actions []string) (bool, error) {
	var n int
	if err := r.cfg.Pool.QueryRow(ctx, selectInFlight, order, actions, r.cfg.Settle).Scan(&n); err != nil {
		return false, fmt.Errorf("looking for actions in flight: %w", err)
	}
	return n > 0, nil
}

// retryDelay grows with the attempts, up to retryMax, and is moved by up to a fifth so that steps that failed together do
// not come back together.
func retryDelay(attempts int) time.Duration {
	d := retryMax
	if attempts < 16 {
		d = min(retryFirst<<max(attempts-1, 0), retryMax)
	}
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

func outcomeName(f finished) string {
	switch {
	case f.blocked:
		return "blocked"
	case f.outcome == nil:
		return "unknown"
	}
	switch f.outcome.(type) {
	case Done:
		return messaging.OutcomeDone
	case Refused:
		return messaging.OutcomeRefused
	case Waiting:
		return messaging.OutcomeWaiting
	default:
		return "unknown"
	}
}

func stepKey(order uuid.UUID, step string) uuid.UUID { return keys.StepKey(order, step) }
