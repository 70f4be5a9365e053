// Package ending tells those who wait for orders when these have ended.
//
// However many wait, there is one query for all of them: every 250 ms while anybody waits, and at once when this
// instance has handled a reply for one of their orders. The latter is a hint, which other instances do not give; the query is the truth.
package ending

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/services/order/internal/postgres"
)

// pollInterval is what an end on another instance may be noticed late: unseen by people, and four queries a second.
const pollInterval = 250 * time.Millisecond

// Watcher watches the orders that somebody waits for.
type Watcher struct {
	pool *pgxpool.Pool
	log  *slog.Logger

	nudged  chan struct{} // has room for one
	began   chan struct{} // has room for one: somebody waits where nobody did
	stopped chan struct{} // closed by Stop
	once    sync.Once

	mu      sync.Mutex
	waiting map[uuid.UUID]*watched // written by Wait and by Run
}

// watched is one order that somebody waits for.
type watched struct {
	ended chan struct{} // closed when it has ended
	by    int           // how many wait
}

// NewWatcher makes a watcher. It notices nothing before [Watcher.Run].
func NewWatcher(pool *pgxpool.Pool, log *slog.Logger) *Watcher {
	return &Watcher{
		pool: pool, log: log, nudged: make(chan struct{}, 1), began: make(chan struct{}, 1), stopped: make(chan struct{}),
		waiting: make(map[uuid.UUID]*watched),
	}
}

// Wait waits until an order has ended, most is over, ctx ends, or the watcher stops. What is true then is the caller's to read.
func (w *Watcher) Wait(ctx context.Context, id uuid.UUID, most time.Duration) {
	order := w.enter(id)
	defer w.leave(id, order)
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-order.ended:
	case <-timer.C:
	case <-ctx.Done():
	case <-w.stopped:
	}
}

func (w *Watcher) enter(id uuid.UUID) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	order := w.waiting[id]
	if order == nil {
		order = &watched{ended: make(chan struct{})}
		w.waiting[id] = order
		signal(w.began)
	}
	order.by++
	return order
}

func (w *Watcher) leave(id uuid.UUID, order *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if order.by--; order.by == 0 && w.waiting[id] == order {
		delete(w.waiting, id)
	}
}

// Nudge says that something has happened to an order. It never waits.
func (w *Watcher) Nudge(id uuid.UUID) {
	w.mu.Lock()
	_, waited := w.waiting[id]
	w.mu.Unlock()
	if waited {
		signal(w.nudged)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Stop lets nobody wait any more, now and from now on. It may be called again.
func (w *Watcher) Stop() { w.once.Do(func() { close(w.stopped) }) }

// Run watches until stop ends, and then stops.
func (w *Watcher) Run(stop, _ context.Context) error {
	defer w.Stop()
	for {
		select {
		case <-w.began:
		case <-stop.Done():
			return nil
		}
		w.watch(stop)
		if stop.Err() != nil {
			return nil
		}
	}
}

// watch asks for as long as anybody waits. The first question comes at once: the order may have ended while it was entered.
func (w *Watcher) watch(stop context.Context) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		ids := w.all()
		if len(ids) == 0 {
			return
		}
		ended, err := postgres.Ended(stop, w.pool, ids)
		if err != nil && stop.Err() == nil {
			w.log.WarnContext(stop, "ended orders not looked for, trying again", "error", err)
		}
		w.tell(ended)
		select {
		case <-tick.C:
		case <-w.nudged:
		case <-stop.Done():
			return
		}
	}
}

func (w *Watcher) all() []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(w.waiting))
	for id := range w.waiting {
		ids = append(ids, id)
	}
	return ids
}

func (w *Watcher) tell(ended []uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ended {
		if order := w.waiting[id]; order != nil {
			close(order.ended)
			delete(w.waiting, id) // whoever comes now reads the end first
		}
	}
}
