package sagatest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
)

// Memory is a saga.Store in memory, for simulations. It keeps what the one on Postgres keeps but the owner's own rows, and
// its errors are those of Postgres. It may be used from several goroutines.
type Memory struct {
	now func() time.Time

	mu    sync.Mutex // guards what follows
	sagas map[uuid.UUID]*saga.Record
	// timers tells for each how often it was put off.
	timers map[timerKey]int
	seen   map[uuid.UUID]bool
	// outbox is what was written about each saga, in sequence.
	outbox map[uuid.UUID][]messaging.Message
}

type timerKey struct {
	due int64 // in microseconds, as Postgres keeps it
	id  uuid.UUID
}

// NewMemory makes a store with a clock.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{
		now: now, sagas: make(map[uuid.UUID]*saga.Record), timers: make(map[timerKey]int), seen: make(map[uuid.UUID]bool),
		outbox: make(map[uuid.UUID][]messaging.Message),
	}
}

// Load implements saga.Store.
func (m *Memory) Load(_ context.Context, sagas, messages []uuid.UUID) (saga.Loaded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := saga.Loaded{Sagas: make(map[uuid.UUID]*saga.Record, len(sagas)), Seen: make(map[uuid.UUID]bool), Now: m.now()}
	for _, id := range sagas {
		if r, ok := m.sagas[id]; ok {
			l.Sagas[id] = copyOf(r)
		}
	}
	for _, id := range messages {
		if m.seen[id] {
			l.Seen[id] = true
		}
	}
	return l, nil
}

// Commit implements saga.Store.
func (m *Memory) Commit(_ context.Context, u *saga.Unit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(u); err != nil {
		return fmt.Errorf("committing sagas: %w", err)
	}
	now := m.now()
	for _, r := range u.Births {
		stored := copyOf(r)
		stored.Revision, stored.CreatedAt, stored.UpdatedAt = 1, now, now
		m.sagas[r.ID] = stored
	}
	for _, r := range u.Updates {
		stored := copyOf(r)
		stored.Revision, stored.UpdatedAt = r.Revision+1, now
		m.sagas[r.ID] = stored
	}
	for _, t := range u.Fired {
		delete(m.timers, keyOf(t))
	}
	for _, t := range u.Set {
		if _, ok := m.timers[keyOf(t)]; !ok {
			m.timers[keyOf(t)] = t.Failures
		}
	}
	for _, c := range u.Chains {
		for _, msg := range c.Messages {
			m.outbox[msg.AggregateID] = append(m.outbox[msg.AggregateID], msg)
		}
	}
	for _, id := range u.Marks {
		m.seen[id] = true
	}
	return nil
}

func (m *Memory) check(u *saga.Unit) error {
	for _, r := range u.Births {
		if m.sagas[r.ID] != nil {
			return &pgconn.PgError{Code: "23505", ConstraintName: "saga_instance_pkey", Message: "saga exists"}
		}
	}
	for _, r := range u.Updates {
		if known := m.sagas[r.ID]; known == nil || known.Revision != r.Revision {
			return &pgconn.PgError{Code: postgres.CodeRequire, Message: "saga has moved"}
		}
	}
	marked := make(map[uuid.UUID]bool, len(u.Marks))
	for _, id := range u.Marks {
		if m.seen[id] || marked[id] {
			return &pgconn.PgError{Code: "23505", ConstraintName: inbox.Constraint, Message: "message was dealt with"}
		}
		marked[id] = true
	}
	return nil
}

// Due implements saga.Store.
func (m *Memory) Due(_ context.Context, plans []saga.Plan, limit int) ([]saga.Timer, error) {
	timers := m.Timers()
	now := m.now()
	due := timers[:0]
	for _, t := range timers {
		if len(due) < limit && !t.Due.After(now) && !m.strange(t.SagaID, plans) {
			due = append(due, t)
		}
	}
	return due, nil
}

// strange tells whether a saga has not ended and has none of the plans.
func (m *Memory) strange(id uuid.UUID, plans []saga.Plan) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.sagas[id]
	return ok && !r.Status.Ended() && !slices.ContainsFunc(plans, func(p saga.Plan) bool { return p.Of(&r.Instance) })
}

// Timers gives all timers, the earliest first.
func (m *Memory) Timers() []saga.Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	timers := make([]saga.Timer, 0, len(m.timers))
	for k, failures := range m.timers {
		timers = append(timers, saga.Timer{Due: time.UnixMicro(k.due).UTC(), SagaID: k.id, Failures: failures})
	}
	slices.SortFunc(timers, func(a, b saga.Timer) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return slices.Compare(a.SagaID[:], b.SagaID[:])
	})
	return timers
}

// Outbox gives all messages that were ever written about a saga.
func (m *Memory) Outbox(id uuid.UUID) []messaging.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.outbox[id])
}

func keyOf(t saga.Timer) timerKey { return timerKey{t.Due.UnixMicro(), t.SagaID} }

// copyOf copies what an engine may change.
func copyOf(r *saga.Record) *saga.Record {
	c := *r
	c.Steps, c.Seen = slices.Clone(r.Steps), maps.Clone(r.Seen)
	if c.Seen == nil {
		c.Seen = make(map[string]uuid.UUID)
	}
	return &c
}
