package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/throughline/throughline/pkg/messaging"
)

// Defaults of [Config].
const (
	// DefaultFlushHorizon is how long after its acknowledgement a message may still be lost by the broker: twice the
	// sync_interval of 250 ms that our JetStream servers run with, and as much again for a busy disk.
	DefaultFlushHorizon = time.Second
	// DefaultSweepInterval is how often the sweep looks for rows that were left to it.
	DefaultSweepInterval = 250 * time.Millisecond
	// DefaultSweepAge is how old a row is when the sweep takes it for left behind: longer than a hand-off takes, and than
	// a row waits for its removal.
	DefaultSweepAge = 3 * time.Second
	// DefaultWindow bounds the rows being handed off at one time in one process. What exceeds it is left to the sweep.
	DefaultWindow = 4096
	// DefaultSweepRate bounds what the sweep publishes, in messages per second: below half of what one stream takes, so that
	// a backlog of any size leaves room for who reads it and for what is new.
	DefaultSweepRate = 20_000
	// DefaultRetention is how long it is kept what was sent. It is as long as it can be published again.
	DefaultRetention = 7 * 24 * time.Hour

	sweepLease     = 3 * time.Second
	removeInterval = 200 * time.Millisecond
	removeBatch    = 1000
	sweepRows      = 1000 // looked at in one pass
	sweepPage      = 250  // aggregates whose pending rows are in memory at one time
	// sweepKeys bounds the rows whose keys a full sweep has in memory at one time: some 6 MB. Each page looks at the whole
	// table, so ten million rows are looked at a hundred times in the eight minutes that they take to go out.
	sweepKeys = 100_000
	// maxRefusals is how often the broker may refuse a row for good before the row is set aside.
	maxRefusals = 3
	retryWait   = 500 * time.Millisecond
)

// Config tunes a [Relay]. Every zero value means the default.
type Config struct {
	// Owner names this instance in the sweep's lease.
	Owner string
	// FlushHorizon must be at least twice the broker's sync_interval.
	FlushHorizon  time.Duration
	SweepInterval time.Duration
	SweepAge      time.Duration
	Window        int
	SweepRate     int
	Retention     time.Duration
	Logger        *slog.Logger
	// Meter counts what is published, pending and set aside; nil counts nothing.
	Meter metric.Meter
}

// Relay publishes the rows of one database's outbox. Every instance of a service runs one.
type Relay struct {
	pool *pgxpool.Pool
	conn *messaging.Conn
	cfg  Config
	log  *slog.Logger
	// drain bounds the rate of the sweep.
	drain *rate.Limiter
	told  *instruments
	// nudge wakes the sweep of this process. It is a hint: the sweep looks by itself soon enough.
	nudge chan struct{}
	// pageKeys is sweepKeys, but for tests.
	pageKeys int
	// flying counts the hand-offs in progress, so that a stop can wait for them.
	flying sync.WaitGroup
	// ctx ends when hand-offs must be cut short.
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex        // guards what follows
	open     bool              // hand-off is allowed; written by openLoop
	session  messaging.Session // the one that hand-off is allowed in
	inFlight int               // rows being handed off
	acked    acked
}

// NewRelay makes a relay. It does nothing before [Relay.Run].
func NewRelay(pool *pgxpool.Pool, conn *messaging.Conn, cfg Config) *Relay {
	setDefault(&cfg.FlushHorizon, DefaultFlushHorizon)
	setDefault(&cfg.SweepInterval, DefaultSweepInterval)
	setDefault(&cfg.SweepAge, DefaultSweepAge)
	setDefault(&cfg.Window, DefaultWindow)
	setDefault(&cfg.SweepRate, DefaultSweepRate)
	setDefault(&cfg.Retention, DefaultRetention)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Owner == "" {
		cfg.Owner = uuid.NewString()
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Relay{
		pool: pool, conn: conn, cfg: cfg, log: cfg.Logger,
		drain: rate.NewLimiter(rate.Limit(cfg.SweepRate), cfg.SweepRate),
		nudge: make(chan struct{}, 1), pageKeys: sweepKeys,
		ctx: ctx, cancel: cancel,
		acked: newAcked(),
	}
	var err error
	if r.told, err = newInstruments(r, cfg.Meter); err != nil {
		r.log.Error("the outbox is not measured", "error", err) // it works all the same
		r.told, _ = newInstruments(r, nil)
	}
	return r
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// HandOff publishes chains from memory. Call it after the commit of the transaction that wrote them, never before. It
// returns at once. What it does not publish, for whatever reason, the sweep will: a chain that is not proven, a broker
// that is away, a window that is full, a process that dies.
func (r *Relay) HandOff(chains []Chain) {
	proven := make([]Chain, 0, len(chains))
	rows, left := 0, false
	for _, c := range chains {
		switch {
		case len(c.Messages) == 0:
		case c.Proven:
			proven = append(proven, c)
			rows += len(c.Messages)
		default:
			left = true
		}
	}
	if left {
		r.wakeSweep()
	}
	session, ok := r.admit(rows)
	if !ok {
		return
	}
	go func() {
		defer r.release(rows)
		failures := r.publish(r.ctx, session, proven, handOff)
		if len(failures) > 0 {
			r.log.Warn("hand-off left to the sweep", "chains", len(failures), "error", failures[0].err)
		}
	}()
}

// admit takes room for rows in the window, unless hand-off is closed.
func (r *Relay) admit(rows int) (session messaging.Session, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rows == 0 || !r.open || r.inFlight+rows > r.cfg.Window {
		return messaging.Session{}, false
	}
	r.inFlight += rows
	r.flying.Add(1)
	return r.session, true
}

func (r *Relay) release(rows int) {
	r.mu.Lock()
	r.inFlight -= rows
	r.mu.Unlock()
	r.flying.Done()
}

func (r *Relay) wakeSweep() {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// Run sweeps, removes what is safe, and keeps hand-off open while the broker is there, until stop ends. Then it waits for
// the hand-offs in progress, until work ends. The writers must have stopped before.
func (r *Relay) Run(stop, work context.Context) error {
	g, ctx := errgroup.WithContext(stop)
	g.Go(func() error { return r.sweepUnderLease(ctx) })
	g.Go(func() error { return r.openLoop(ctx) })
	g.Go(func() error { return r.removeLoop(ctx) })
	g.Go(func() error { return r.upkeep(ctx) })
	err := g.Wait()

	r.shut()
	landed := make(chan struct{})
	go func() {
		r.flying.Wait()
		close(landed)
	}()
	select {
	case <-landed:
	case <-work.Done():
	}
	r.cancel()
	<-landed
	if reg := r.told.registration; reg != nil {
		_ = reg.Unregister() // it only fails for a registration of another provider
	}
	if errors.Is(err, context.Canceled) || stop.Err() != nil {
		return nil //nolint:nilerr // it ended because it was told to
	}
	return err
}

// Ready tells what keeps this process from handing off, for a readiness probe. Writers may go on all the same: their rows
// wait.
func (r *Relay) Ready(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open {
		return ErrClosed
	}
	return nil
}

// openLoop opens hand-off for one session after another, each time after a full sweep that began in that session.
func (r *Relay) openLoop(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.conn.WaitConnected(ctx); err != nil {
			return err
		}
		session := r.conn.Session()
		if !session.Connected {
			continue
		}
		if err := r.awaitFullSweep(ctx, session); err != nil {
			if ctx.Err() == nil {
				r.log.Warn("full sweep not completed yet", "error", err)
			}
			pause(ctx, retryWait)
			continue
		}
		r.mu.Lock()
		r.open, r.session = true, session
		r.mu.Unlock()
		r.log.Info("hand-off is open", "session", session.Number)
		select {
		case <-session.Changed:
		case <-ctx.Done():
		}
		r.shut()
	}
	return ctx.Err()
}

// shut closes hand-off, and forgets the acknowledgements of its session: the broker may have, too.
func (r *Relay) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
	r.acked.forget(r.session.Number)
}

// ended tells whether a session is known to be over.
func ended(s messaging.Session) bool {
	select {
	case <-s.Changed:
		return true
	default:
		return false
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
