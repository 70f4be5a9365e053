package saga

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/telemetry"
)

// work is one transaction's changes to sagas, folded by saga.
type work[T proto.Message] struct {
	engine *Engine[T]
	now    time.Time // the database's
	began  time.Time // our own
	sagas  map[uuid.UUID]*item[T]
	fired  []Timer // timers that led to this work, and fall away with it
}

// work begins a transaction, at a time that was read from the database.
func (e *Engine[T]) work(now time.Time) *work[T] {
	return &work[T]{engine: e, now: now, began: time.Now(), sagas: make(map[uuid.UUID]*item[T])}
}

// item is what one transaction does to one saga.
type item[T proto.Message] struct {
	record      *Record
	definition  *Definition[T]
	data        T
	before      Instance
	chain       outbox.Chain
	began       bool      // the chain was begun
	last        uuid.UUID // the last row of the last chain before this one
	changed     bool
	transitions []Transition
	trace       telemetry.Carrier // what changed it last belongs to
}

func (w *work[T]) item(r *Record) (*item[T], error) {
	if it, ok := w.sagas[r.ID]; ok {
		return it, nil
	}
	d, err := w.engine.definition(&r.Instance)
	if err != nil {
		return nil, err
	}
	var zero T
	data := zero.ProtoReflect().New().Interface().(T)
	if err := proto.Unmarshal(r.Data, data); err != nil {
		return nil, fmt.Errorf("decoding the data of saga %s: %w", r.ID, err)
	}
	it := &item[T]{record: r, definition: d, data: data, before: r.Instance.clone()}
	w.sagas[r.ID] = it
	return it, nil
}

// advance applies an input to a saga, and appends what follows to its chain.
func (w *work[T]) advance(it *item[T], input Input, lastSeen uuid.UUID, trace telemetry.Carrier) error {
	r := it.record
	before := r.Instance
	after, effects, err := it.definition.Advance(before, it.data, input, w.now)
	if err != nil {
		return err
	}
	if !it.began {
		it.last = r.Aggregate.LastMessageID
		it.chain, it.began = r.Aggregate.Begin(lastSeen), true
	}
	// Of several replies in one transaction, any may be the proof.
	it.chain.Proven = it.chain.Proven || it.last == lastSeen
	if trace.TraceParent == "" {
		trace = r.Trace // timers and operators continue the saga's own trace
	}
	r.Instance, it.trace = after, trace
	it.transitions = append(it.transitions, effects.Transitions...)
	it.changed = true
	return w.engine.fill(&it.chain, r, Change[T]{Before: before, After: after, Data: it.data, At: w.now}, effects, trace)
}

// arm gives the timer that a saga needs, unless one is set that fires soon enough; false if it needs none. While the saga was not due
// at all its timer may have been taken for idle and be falling away at this moment, and does not count.
func (w *work[T]) arm(it *item[T]) (Timer, bool) {
	r := it.record
	due, was := r.due(), it.before.due()
	switch {
	case due.IsZero():
		return Timer{}, false
	case was.IsZero() && due.Equal(r.Armed):
		due = due.Add(time.Microsecond) // a key of its own
	case was.IsZero(), r.Armed.IsZero(), due.Before(r.Armed), !r.Armed.After(w.now):
	default:
		return Timer{}, false
	}
	r.Armed = due
	return Timer{Due: due, SagaID: r.ID}, true
}

// unit gives everything that the work changes. Its chains are what to hand off after the commit.
func (w *work[T]) unit() *Unit {
	items := make([]*item[T], 0, len(w.sagas))
	for _, it := range w.sagas {
		if it.changed {
			items = append(items, it)
		}
	}
	if len(items) == 0 {
		return &Unit{}
	}
	sortItems(items)
	changes := make([]Change[T], len(items))
	u := &Unit{
		Updates: make([]*Record, len(items)), Histories: make([]History, len(items)), Chains: make([]outbox.Chain, len(items)),
		Fired: w.fired,
		Before: func(b *pgx.Batch) error {
			if err := w.engine.cfg.Projector.Queue(b, changes); err != nil {
				return fmt.Errorf("projecting sagas: %w", err)
			}
			return nil
		},
	}
	for i, it := range items {
		if t, ok := w.arm(it); ok {
			u.Set = append(u.Set, t)
		}
		changes[i] = Change[T]{Before: it.before, After: it.record.Instance, Data: it.data, At: w.now}
		u.Updates[i] = it.record
		u.Histories[i] = History{it.record.ID, it.record.Revision + 1, it.transitions}
		u.Chains[i] = it.chain
	}
	return u
}
