package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// abandonAfter is how long a component may still run once it is told to stop and
// its work context is cancelled. Cancelled calls return in milliseconds; this leaves room for a rollback on a
// slow database, and stays below the 10 s after which service managers kill.
const abandonAfter = 5 * time.Second

// Component is one long-running part of a process.
type Component interface {
	// Run does the component's work until stop is done, then finishes what is in
	// hand and returns nil. When work is done it drops what is in hand and returns
	// soon; work is never done before stop. Run calls ready once it does
	// its work: a server when it listens, a consumer when it is subscribed. The components added
	// after it wait for that call. Extra calls of ready do nothing.
	//
	// Everything that belongs to the work in hand (queries, calls) uses work;
	// everything that waits for new work uses stop.
	Run(stop, work context.Context, ready func()) error
}

// Func is a function as a [Component].
type Func func(stop, work context.Context, ready func()) error

// Run calls f.
func (f Func) Run(stop, work context.Context, ready func()) error { return f(stop, work, ready) }

// Group runs components; see the package comment. Use [New].
type Group struct {
	logger *slog.Logger
	grace  time.Duration

	mu       sync.Mutex
	members  []*member
	state    error // nil when all are ready, else what Check reports
	starting string
}

type member struct {
	name      string
	component Component
	stop      context.CancelFunc
	ready     chan struct{}
	done      chan struct{}
	err       error // read after done is closed
}

// New returns an empty group. At shutdown its components together have grace to
// finish the work in hand; 0 means none. A nil logger logs nothing.
func New(logger *slog.Logger, grace time.Duration) *Group {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Group{logger: logger, grace: grace, state: ErrStarting}
}

// Add appends a component. The name is for logs, errors and readiness. Add must
// not be called after Run.
func (g *Group) Add(name string, c Component) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, &member{name: name, component: c, ready: make(chan struct{}), done: make(chan struct{})})
}

// AddFunc appends a function as a component.
func (g *Group) AddFunc(name string, f Func) { g.Add(name, f) }

// Check returns nil while all components are ready and none was told to stop. It
// has the form of a [Health] check, which makes readiness follow the group.
func (g *Group) Check(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(g.state, ErrStarting) && g.starting != "" {
		return fmt.Errorf("%s: %w", g.starting, g.state)
	}
	return g.state
}

// Run starts the components and returns when all have ended: nil when stop was
// done and every component ended without an error, else the joined errors of
// those that did not, each with its component's name. work cancels the work in
// hand of all at once; it should outlive stop. ready, if not nil, is called when
// all components are ready. A group runs once.
func (g *Group) Run(stop, work context.Context, ready func()) error {
	work, cancelWork := context.WithCancel(work)
	defer cancelWork()
	// failed tells of the first component that ended on its own. One place is enough:
	// what the others have to say is collected when they have ended.
	failed := make(chan *member, 1)

	started, allReady := g.start(stop, work, failed)
	if allReady {
		g.setState(nil, "")
		if ready != nil {
			ready()
		}
		select {
		case <-stop.Done():
		case <-work.Done():
		case m := <-failed:
			g.logger.Error("component ended by itself, stopping all", "component", m.name, "error", m.err)
		}
	}
	g.setState(ErrStopping, "")
	return g.end(started, work, cancelWork)
}

// start starts components one after another until all are ready, and tells which
// were started and whether all are ready.
func (g *Group) start(stop, work context.Context, failed chan<- *member) (started []*member, allReady bool) {
	// Not derived from stop: each component is told when its turn comes.
	taking := context.WithoutCancel(stop)
	for _, m := range g.members {
		if stop.Err() != nil || work.Err() != nil {
			return started, false
		}
		g.setState(ErrStarting, m.name)
		own, cancel := context.WithCancel(taking)
		m.stop = cancel
		started = append(started, m)
		go func() {
			defer close(m.done)
			m.err = m.run(own, work)
			if m.err != nil {
				select {
				case failed <- m:
				default:
				}
			}
		}()
		select {
		case <-m.ready:
			g.logger.Debug("component ready", "component", m.name)
		case <-m.done:
			return started, false
		case <-stop.Done():
			return started, false
		case <-work.Done():
			return started, false
		}
	}
	return started, true
}

func (m *member) run(stop, work context.Context) error {
	var once sync.Once
	err := m.component.Run(stop, work, func() { once.Do(func() { close(m.ready) }) })
	switch {
	case err == nil && stop.Err() == nil:
		err = ErrEnded
	case errors.Is(err, context.Canceled) && stop.Err() != nil:
		// It was told to stop and says so: that is how an end looks.
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// end stops the started components, last first, and collects their errors.
func (g *Group) end(started []*member, work context.Context, cancelWork context.CancelFunc) error {
	grace := time.AfterFunc(g.grace, func() {
		g.logger.Warn("grace period is over, cancelling work in hand", "grace", g.grace)
		cancelWork()
	})
	defer grace.Stop()
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		m := started[i]
		m.stop()
		if !m.ended(work) {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, ErrStuck))
			continue
		}
		g.logger.Debug("component ended", "component", m.name)
		if m.err != nil {
			errs = append(errs, m.err)
		}
	}
	return errors.Join(errs...)
}

// ended waits for the end of m, which was told to stop. It gives up, and returns
// false, when work has been cancelled and abandonAfter has passed.
func (m *member) ended(work context.Context) bool {
	select {
	case <-m.done:
		return true
	case <-work.Done():
	}
	select {
	case <-m.done:
		return true
	case <-time.After(abandonAfter):
		return false
	}
}

func (g *Group) setState(err error, starting string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state, g.starting = err, starting
}
