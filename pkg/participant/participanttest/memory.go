package participanttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
)

// Memory is a participant.Store in memory, for simulations. Of a service's business rows it keeps what the runner needs, and its
// errors are those of Postgres. It may be used from several goroutines.
type Memory struct {
	now func() time.Time

	mu    sync.Mutex // guards what follows
	steps map[participant.Key]*participant.Record
	rows  map[uuid.UUID]*participant.Row
	seen  map[uuid.UUID]bool
	// nudged holds the token of the call that was under way when a step was told to look again.
	nudged map[participant.Key]int64
	// outbox is what was written about each order, in sequence.
	outbox map[uuid.UUID][]messaging.Message
}

// NewMemory makes a store with a clock.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{
		now: now, steps: make(map[participant.Key]*participant.Record), rows: make(map[uuid.UUID]*participant.Row),
		seen: make(map[uuid.UUID]bool), nudged: make(map[participant.Key]int64), outbox: make(map[uuid.UUID][]messaging.Message),
	}
}

// Load implements participant.Store.
func (m *Memory) Load(_ context.Context, orders, messages []uuid.UUID) (participant.Loaded, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := participant.Loaded{
		Steps: make(map[participant.Key]*participant.Record), Rows: m.rowsOf(orders), Seen: make(map[uuid.UUID]bool), Now: m.now(),
	}
	for k, r := range m.steps {
		if slices.Contains(orders, k.OrderID) {
			c := *r
			l.Steps[k] = &c
		}
	}
	for _, id := range messages {
		if m.seen[id] {
			l.Seen[id] = true
		}
	}
	return l, nil
}

func (m *Memory) rowsOf(orders []uuid.UUID) map[uuid.UUID]*participant.Row {
	rows := make(map[uuid.UUID]*participant.Row)
	for _, id := range orders {
		if r, ok := m.rows[id]; ok {
			c := *r
			rows[id] = &c
		}
	}
	return rows
}

// TakeIn implements participant.Store.
func (m *Memory) TakeIn(_ context.Context, in *participant.Intake) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.checkRows(in.Changes)
	for _, r := range in.Intents {
		if err == nil && m.steps[r.Key()] != nil {
			err = moved("step is on record")
		}
	}
	marked := make(map[uuid.UUID]bool, len(in.Marks))
	for _, id := range in.Marks {
		if err == nil && (m.seen[id] || marked[id]) {
			err = exists(inbox.Constraint)
		}
		marked[id] = true
	}
	if err != nil {
		return fmt.Errorf("taking in: %w", err)
	}
	now := m.now()
	for _, r := range in.Intents {
		c := *r
		c.State, c.DueAt, c.UpdatedAt = participant.StatePending, &now, now
		c.Token, c.Attempts, c.FirstAttemptAt = 0, 0, nil
		if r.LeaseOwner != "" {
			end := now.Add(in.Lease)
			c.Token, c.Attempts, c.FirstAttemptAt, c.DueAt = 1, 1, &now, &end
		}
		m.steps[c.Key()] = &c
	}
	for _, k := range in.Tombstones {
		m.bury(k, now)
	}
	for _, id := range in.Marks {
		m.seen[id] = true
	}
	m.write(in.Changes, in.Chains)
	return nil
}

func (m *Memory) bury(k participant.Key, now time.Time) {
	r, ok := m.steps[k]
	if !ok {
		m.steps[k] = &participant.Record{
			OrderID: k.OrderID, StepName: k.StepName, Kind: participant.KindAction, State: participant.StateRefused, UndoneAt: &now,
			Reason: participant.ReasonUndone, UpdatedAt: now,
		}
		return
	}
	if r.UndoneAt == nil {
		r.UndoneAt = &now
	}
	if r.LeaseOwner == "" {
		r.DueAt = nil
	}
}

func (m *Memory) checkRows(changes []participant.Change) error {
	for _, c := range changes {
		known := m.rows[c.Row.ID]
		switch {
		case c.Row.Revision == 0 && known != nil:
			return exists("business_row_pkey")
		case c.Row.Revision > 0 && (known == nil || known.Revision != c.Row.Revision):
			return moved("business row has moved")
		}
	}
	return nil
}

func (m *Memory) write(changes []participant.Change, chains []outbox.Chain) {
	for _, c := range changes {
		row := c.Row
		row.Revision++
		m.rows[row.ID] = &row
	}
	for _, c := range chains {
		for _, msg := range c.Messages {
			m.outbox[msg.AggregateID] = append(m.outbox[msg.AggregateID], msg)
		}
	}
}

// Claim implements participant.Store.
func (m *Memory) Claim(_ context.Context, owner string, lease time.Duration, steps []string, limit int, fresh bool) (participant.Claimed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var due []*participant.Record
	for _, r := range m.steps {
		if r.DueAt != nil && !r.DueAt.After(now) && (r.Kind == participant.KindUndo || !r.Undone()) && slices.Contains(steps, r.StepName) && (!fresh || r.Attempts == 0) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *participant.Record) int {
		if c := a.DueAt.Compare(*b.DueAt); c != 0 {
			return c
		}
		return compareKeys(a.Key(), b.Key())
	})
	due = due[:min(len(due), limit)]
	got := participant.Claimed{Now: now}
	var orders []uuid.UUID
	for _, r := range due {
		end := now.Add(lease)
		r.LeaseOwner, r.DueAt, r.UpdatedAt = owner, &end, now
		r.Token++
		r.Attempts++
		if r.FirstAttemptAt == nil {
			r.FirstAttemptAt = &now
		}
		got.Steps = append(got.Steps, *r)
		orders = append(orders, r.OrderID)
	}
	got.Rows = m.rowsOf(orders)
	return got, nil
}

// InFlight implements participant.Store.
func (m *Memory) InFlight(_ context.Context, order uuid.UUID, actions []string, settle time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	flying := false
	for _, name := range actions {
		r := m.steps[participant.Key{OrderID: order, StepName: name}]
		if r == nil || !r.Undone() {
			continue
		}
		switch {
		case r.LeaseOwner != "" && r.DueAt.Add(settle).After(now):
			flying = true
		case r.LeaseOwner != "":
			r.LeaseOwner, r.DueAt = "", nil
			r.Token++
		case r.State == participant.StatePending && r.Attempts > 0 && r.UpdatedAt.Add(settle).After(now):
			flying = true
		}
	}
	return flying, nil
}

// Record implements participant.Store.
func (m *Memory) Record(_ context.Context, f *participant.Findings) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.checkRows(f.Changes)
	for _, e := range f.Ends {
		if r := m.steps[e.Key]; err == nil && (r == nil || r.Token != e.Token) {
			err = moved("step has another token")
		}
	}
	if err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	now := m.now()
	for _, e := range f.Ends {
		r := m.steps[e.Key]
		token, nudged := m.nudged[e.Key]
		nudged = nudged && token == r.Token && (e.Again != nil || r.Kind == participant.KindCheck) && !r.Undone()
		end(r, e, now)
		if nudged {
			r.DueAt = &now
		}
	}
	for _, k := range f.Undone {
		if r := m.steps[k]; r != nil && r.Undone() && !r.State.Finished() {
			r.State, r.Reason, r.DueAt, r.LeaseOwner, r.UpdatedAt = participant.StateRefused, participant.ReasonUndone, nil, "", now
			r.Token++
		}
	}
	for _, c := range f.Follow {
		m.follow(c, now)
	}
	m.write(f.Changes, f.Chains)
	return nil
}

// follow begins a check, or wakes the one that is on record. One that is being called looks again when its call has ended.
func (m *Memory) follow(f participant.Follow, now time.Time) {
	at := now.Add(f.After.Truncate(time.Microsecond))
	r := m.steps[f.Key]
	switch {
	case r == nil:
		m.steps[f.Key] = &participant.Record{
			OrderID: f.OrderID, StepName: f.StepName, Kind: participant.KindCheck, State: participant.StatePending, DueAt: &at,
			IdempotencyKey: f.IdempotencyKey, Trace: f.Trace, UpdatedAt: now,
		}
	case r.LeaseOwner != "":
		m.nudged[f.Key] = r.Token
	default:
		delete(m.nudged, f.Key)
		r.State = participant.StatePending
		if r.DueAt == nil || at.Before(*r.DueAt) {
			r.DueAt = &at
		}
	}
}

func end(r *participant.Record, e participant.End, now time.Time) {
	r.State, r.Reason, r.ResultType, r.Result, r.LastError = e.State, e.Reason, e.ResultType, e.Result, e.LastError
	if e.Reference != "" {
		r.Reference = e.Reference
	}
	if e.ReplyID != uuid.Nil {
		r.ReplyID = e.ReplyID
	}
	r.LeaseOwner, r.DueAt, r.UpdatedAt = "", nil, now
	r.Token++
	if e.Again != nil && !r.Undone() {
		at := now.Add(e.Again.Truncate(time.Microsecond)) // as Postgres keeps it
		r.DueAt = &at
	}
	if e.Deferred {
		if r.Attempts == 1 {
			r.FirstAttemptAt = nil
		}
		r.Attempts--
	}
}

// Reload implements participant.Store.
func (m *Memory) Reload(_ context.Context, orders []uuid.UUID) (map[uuid.UUID]*participant.Row, map[participant.Key]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tokens := make(map[participant.Key]int64)
	for k, r := range m.steps {
		if slices.Contains(orders, k.OrderID) {
			tokens[k] = r.Token
		}
	}
	return m.rowsOf(orders), tokens, nil
}

// Find implements participant.Store.
func (m *Memory) Find(_ context.Context, order uuid.UUID, step string) (participant.Record, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.steps[participant.Key{OrderID: order, StepName: step}]
	if !ok {
		return participant.Record{}, false, nil
	}
	return *r, true, nil
}

// Steps gives the records of all steps, sorted by their keys.
func (m *Memory) Steps() []participant.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]participant.Record, 0, len(m.steps))
	for _, r := range m.steps {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b participant.Record) int { return compareKeys(a.Key(), b.Key()) })
	return all
}

// Outbox gives all messages that were ever written about an order.
func (m *Memory) Outbox(order uuid.UUID) []messaging.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.outbox[order])
}

func compareKeys(a, b participant.Key) int {
	if c := slices.Compare(a.OrderID[:], b.OrderID[:]); c != 0 {
		return c
	}
	return strings.Compare(a.StepName, b.StepName)
}

func moved(what string) error {
	return &pgconn.PgError{Code: postgres.CodeRequire, Message: what}
}

func exists(constraint string) error {
	return &pgconn.PgError{Code: "23505", ConstraintName: constraint, Message: "duplicate key"}
}
