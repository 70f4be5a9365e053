package participant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Defaults of [Config].
const (
	// DefaultLease is how long a claim lasts. The context of the call ends after four fifths of it.
	DefaultLease = 15 * time.Second
	// DefaultConcurrency bounds the calls that are under way at one time in one process.
	DefaultConcurrency = 64
	// DefaultSettle is how long after the end of a lease a request of its owner may still arrive at the outside system.
	DefaultSettle = 2 * time.Second

	// callMargin is the part of its lease that a call leaves for recording its result: 3 s of the default.
	callMargin    = 5
	claimInterval = 250 * time.Millisecond
	// An undo looks four times within the settling time, within these bounds, whether its action is still in flight.
	blockedRetryMin = 50 * time.Millisecond
	blockedRetryMax = 500 * time.Millisecond
	retryFirst      = 500 * time.Millisecond
	retryMax        = time.Minute
)

// Relay publishes what was written to the outbox. *[outbox.Relay] is one.
type Relay interface {
	// HandOff takes chains whose transaction has committed, and returns at once.
	HandOff(chains []outbox.Chain)
}

// Config makes a [Runner].
type Config struct {
	// Pool is the database that steps are kept in. It is not needed beside a Store.
	Pool *pgxpool.Pool
	Gate *postgres.Gate // what results go through on their way to the database, beside other writers of this process; nil is open
	// Store and Process take the place of the database and of this process, in a simulation; nil means the real ones.
	Store     Store
	Process   Process
	Relay     Relay
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
	// RetryRate bounds how many steps that were attempted before are claimed each second, so that what an outage has left behind does not
	// come at once; 0 means DefaultRetryRate. [Release] lifts it for a while.
	RetryRate int
	Logger    *slog.Logger
	// Tracer makes a span for each attempt; nil makes none.
	Tracer trace.Tracer
	// Meter tells how steps are performed; nil tells nobody.
	Meter metric.Meter
}

// Runner takes commands in and performs their steps.
type Runner struct {
	cfg   Config
	store Store
	steps map[string]*Step
	names []string // of the steps, sorted
	// checks names the check of an action that has one.
	checks map[string]string
	told   *instruments
	log    *slog.Logger
	// retries bounds the rate of steps that were attempted before.
	retries *rate.Limiter
	slots   chan struct{}
	// nudge wakes the claiming. It is a hint.
	nudge   chan struct{}
	results chan finished
	// backlog says that steps may be due that found no slot. Then new ones line up behind them. Written by the intake and
	// by the claiming.
	backlog atomic.Bool

	mu      sync.Mutex // guards stopped and, before it is set, calls.Add
	stopped bool       // no call may start any more; written by Run
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
	// around are the steps on record beside this one, by the read that the claim comes from; nil if there was none.
	around map[Key]*Record
	// slot tells that a slot was taken for the call.
	slot bool
	// began is our own clock just before the claim, and known just after it; now is the database's, in between.
	began, known, now time.Time
}

// finished is a claim with what came of it.
type finished struct {
	*claim
	outcome Outcome
	// follow are actions in doubt that were undone by this step.
	follow []string
	// blocked says that the call did not start: it is an undo whose action may be in flight, or its time was over.
	blocked bool
	trace   telemetry.Carrier
	// history is what is kept of how the call went.
	history string
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
	if cfg.RetryRate <= 0 {
		cfg.RetryRate = DefaultRetryRate
	}
	if cfg.Store == nil && cfg.Pool != nil && cfg.Projector != nil {
		cfg.Store = database{cfg.Pool, cfg.Projector, cfg.Consumer}
	}
	if cfg.Process == nil {
		cfg.Process = newProcess()
	}
	if cfg.Store == nil || cfg.Relay == nil || cfg.Projector == nil || cfg.Consumer == "" || cfg.ReplySubject == "" {
		return nil, errors.New("making a participant: it needs a pool, a relay, a projector, a consumer and a reply subject")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Owner == "" {
		cfg.Owner = uuid.NewString()
	}
	r := &Runner{
		cfg: cfg, store: cfg.Store, log: cfg.Logger, steps: make(map[string]*Step),
		retries: newRetries(&cfg),
		slots:   make(chan struct{}, cfg.Concurrency),
		nudge:   make(chan struct{}, 1),
		// The recorder takes results as they come; a call never waits for it long.
		results: make(chan finished, cfg.Concurrency),
	}
	for i := range steps {
		if steps[i].Name == "" || steps[i].Perform == nil || r.steps[steps[i].Name] != nil {
			return nil, fmt.Errorf("making a participant: step %q needs a name of its own and a function", steps[i].Name)
		}
		r.steps[steps[i].Name] = &steps[i]
		r.names = append(r.names, steps[i].Name)
	}
	slices.Sort(r.names)
	for _, s := range steps {
		for _, action := range s.Undoes {
			if r.steps[action] == nil || len(r.steps[action].Undoes) > 0 {
				return nil, fmt.Errorf("making a participant: %s undoes %q, which is no action here", s.Name, action)
			}
		}
	}
	if err := r.learnChecks(); err != nil {
		return nil, err
	}
	var err error
	if r.told, err = newInstruments(cfg.Meter); err != nil {
		r.log.Error("steps are not measured", telemetry.LogError, err) // they are performed all the same
		r.told, _ = newInstruments(nil)
	}
	r.told.begin(context.Background(), r.names)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Run claims what is due and records results until stop ends. Then it waits for the calls in progress and records them,
// until work ends. The intake of commands should have stopped before; what it takes in later is left to other instances.
// Run must be called once.
func (r *Runner) Run(stop, work context.Context) error {
	recorded := make(chan struct{})
	go func() {
		defer close(recorded)
		r.recordLoop(work)
	}()
	r.reportStrange(stop)
	r.claimLoop(stop)
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()

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

// reportStrange says which steps on record this binary leaves alone, because it does not know them.
func (r *Runner) reportStrange(ctx context.Context) {
	if r.cfg.Pool == nil {
		return
	}
	type strange struct {
		Step string
		N    int64
	}
	found, _ := r.cfg.Pool.Query(ctx, selectStrange, r.names) // CollectRows reports its error
	rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[strange])
	if err != nil && ctx.Err() == nil {
		r.log.Warn("steps on record could not be compared with the steps known here", telemetry.LogError, err)
	}
	for _, s := range rows {
		r.log.Error("steps on record are unknown here, leaving them alone", telemetry.LogStep, s.Step, "steps", s.N)
	}
}

// admit takes a slot for a step that is new, unless others wait for one.
func (r *Runner) admit() bool {
	r.mu.Lock()
	stopped := r.stopped
	r.mu.Unlock()
	return !stopped && !r.backlog.Load() && r.takeSlot()
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
		for more := true; more && stop.Err() == nil; {
			var err error
			if more, err = r.claimDue(stop); err != nil && stop.Err() == nil {
				r.log.Warn("claiming steps failed, trying again", telemetry.LogError, err)
			}
		}
	}
}

// Claim claims steps that are due, as many as can start now, and starts them; Record records the results that are there. Both
// are what [Runner.Run] does by itself; who does not run that calls them by hand. Claim reports whether more may be due that
// could start now.
func (r *Runner) Claim(ctx context.Context) (more bool, err error) { return r.claimDue(ctx) }

// Record records the results of calls that have ended, however long the store takes, and tells how many there were.
func (r *Runner) Record(ctx context.Context) int {
	batch := r.waiting(nil)
	n := len(batch)
	if n > 0 {
		r.recordAll(ctx, batch)
	}
	return n
}

// claimDue claims as many steps as there are free slots, and starts them. It reports whether more may be due that could
// start now.
func (r *Runner) claimDue(ctx context.Context) (more bool, err error) {
	free := 0
	for free < cap(r.slots) && r.takeSlot() {
		free++
	}
	claimed := 0
	defer func() {
		for n := free - claimed; n > 0; n-- {
			r.giveSlot()
		}
	}()
	if free == 0 {
		return false, nil // the end of a call wakes this again, if somebody waits
	}
	r.backlog.Store(false)       // before looking: whoever finds no slot from now on sets it again
	began := r.cfg.Process.Now() // before the claim, so that our idea of the lease ends before the database's
	got, err := r.store.Claim(ctx, r.cfg.Owner, r.cfg.Lease, r.names, free, r.freshOnly(ctx))
	known := r.cfg.Process.Now()
	if err != nil {
		r.backlog.Store(true)
		return false, err
	}
	if len(got.Steps) == free {
		r.backlog.Store(true)
	}
	r.spend(got.Steps)
	for i := range got.Steps {
		record := &got.Steps[i]
		c := &claim{record: record, step: r.steps[record.StepName], slot: true, began: began, known: known, now: got.Now}
		if row := got.Rows[record.OrderID]; row != nil {
			c.row = *row
		}
		c.row.ID = record.OrderID
		claimed++
		r.start(c)
	}
	return claimed == free, nil
}

// start performs a claimed step in a goroutine of its own. The slot is given back when the result is handed to the recorder,
// so that calls do not run ahead of what can be recorded.
func (r *Runner) start(c *claim) {
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		r.giveSlot() // another instance takes the step over when its lease ends
		return
	}
	r.calls.Add(1)
	r.mu.Unlock()
	deadline := c.began.Add(r.cfg.Lease - r.cfg.Lease/callMargin)
	r.cfg.Process.Go(r.ctx, deadline, func(ctx context.Context) {
		defer r.calls.Done()
		r.results <- r.perform(ctx, c)
		r.giveSlot()
		if r.backlog.Load() {
			r.wake()
		}
	})
}

// Wake lets the runner look at once for what is due, as after a nudge. It is a hint.
func (r *Runner) Wake() { r.wake() }

func (r *Runner) wake() {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// retryDelay grows with the attempts, up to retryMax, and is moved by up to a fifth either way so that steps that failed together
// do not come back together. The move follows from the step and the attempt, so that a simulation can be repeated.
func retryDelay(rec *Record) time.Duration {
	d := retryMax
	if rec.Attempts < 16 {
		d = min(retryFirst<<max(rec.Attempts-1, 0), retryMax)
	}
	h := fnv.New64a()
	h.Write(rec.OrderID[:])
	h.Write([]byte(rec.StepName))
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(rec.Attempts))) //nolint:gosec // a count, and any bits do
	part := float64(h.Sum64()%1000) / 1000                               // 0 to 1
	return time.Duration(float64(d) * (0.8 + 0.4*part))
}

func stepKey(order uuid.UUID, step string) uuid.UUID { return keys.StepKey(order, step) }
