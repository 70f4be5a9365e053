package saga

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Change is what one transaction does to one saga.
type Change[T proto.Message] struct {
	Before, After Instance
	// Data is the saga's data.
	Data T
	// At is the database's time of the change.
	At time.Time
}

// Projector lets the owner of a saga keep rows of his own in step with it. Both functions are called for each transaction,
// before it is sent.
type Projector[T proto.Message] interface {
	// Events gives the events that a change means, in sequence. Of each it fills in Subject, Type, Source and
	// Payload. It must be a pure function.
	Events(Change[T]) ([]messaging.Message, error)
	// Queue adds the statements that bring the owner's rows to the state after the changes. They run before the saga's own
	// compare-and-set, in the same transaction; the changes are sorted by saga id.
	Queue(*pgx.Batch, []Change[T]) error
}

// Asker asks participants. An error is silence, and so is an answer that takes longer than AskTimeout, when ctx ends.
type Asker interface {
	Ask(ctx context.Context, participant string, sagaID uuid.UUID, step string, stepKey uuid.UUID) (Answer, error)
}

// DefaultAskTimeout is how long a participant may take to answer. It looks up one row.
const DefaultAskTimeout = 3 * time.Second

// Config makes an [Engine].
type Config[T proto.Message] struct {
	Pool      *pgxpool.Pool
	Conn      *messaging.Conn
	Relay     *outbox.Relay
	Projector Projector[T]
	Asker     Asker
	// AskTimeout bounds one question; 0 means DefaultAskTimeout.
	AskTimeout time.Duration
	// Source names the service in messages, such as "/order".
	Source string
	// Consumer is the inbox consumer under which replies are marked.
	Consumer string
	// Owner names this instance in leases.
	Owner  string
	Logger *slog.Logger
}

// Engine runs sagas of one data type on Postgres. Any number of instances may run side by side.
type Engine[T proto.Message] struct {
	cfg Config[T]
	// definitions are the plans known here, by name and version.
	definitions map[planKey]*Definition[T]
	log         *slog.Logger
}

type planKey struct {
	name    string
	version int
}

// NewEngine makes an engine for the given plans.
func NewEngine[T proto.Message](cfg Config[T], definitions ...*Definition[T]) *Engine[T] {
	e := &Engine[T]{cfg: cfg, definitions: make(map[planKey]*Definition[T]), log: cfg.Logger}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.cfg.AskTimeout <= 0 {
		e.cfg.AskTimeout = DefaultAskTimeout
	}
	for _, d := range definitions {
		e.definitions[planKey{d.name, d.version}] = d
	}
	return e
}

func (e *Engine[T]) definition(in *Instance) (*Definition[T], error) {
	d, ok := e.definitions[planKey{in.Definition, in.Version}]
	// Of another plan with the same number the steps are not known either.
	if !ok || !bytes.Equal(d.hash, in.Hash) {
		return nil, fmt.Errorf("%w: %s version %d of saga %s", ErrUnknownDefinition, in.Definition, in.Version, in.ID)
	}
	return d, nil
}

// Birth is a saga that is about to begin.
type Birth struct {
	record  *record
	chain   outbox.Chain
	history history
}

// ID is the saga's id.
func (b *Birth) ID() uuid.UUID { return b.record.ID }

// Begin prepares a saga without touching the database. id is the id of what the saga is about, such as the order id; key
// is the client's idempotency key; now is about now: it only sets the first deadline.
func (e *Engine[T]) Begin(ctx context.Context, d *Definition[T], id uuid.UUID, key string, data T, now time.Time) (*Birth, error) {
	encoded, err := marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encoding the data of saga %s: %w", id, err)
	}
	now = now.Truncate(time.Microsecond) // as the database keeps it
	before := d.New(id, key)
	after, effects, err := d.Advance(before, data, Started{}, now)
	if err != nil {
		return nil, fmt.Errorf("beginning saga %s: %w", id, err)
	}
	r := &record{Instance: after, data: encoded, aggregate: outbox.Aggregate{ID: id}, trace: telemetry.Inject(ctx)}
	r.Armed, r.Revision = r.due(), 1
	chain := r.aggregate.Begin(uuid.Nil)
	if err := e.fill(&chain, r, Change[T]{Before: before, After: after, Data: data, At: now}, effects, r.trace); err != nil {
		return nil, err
	}
	return &Birth{record: r, chain: chain, history: history{id, 1, effects.Transitions}}, nil
}

// QueueBirths adds the rows of sagas that begin to a batch, which runs as one transaction: the sagas, their first
// messages, and a timer each. A saga whose id exists already makes it fail with a violation of saga_instance_pkey. Call
// [Engine.Born] after the commit.
func (e *Engine[T]) QueueBirths(b *pgx.Batch, births []*Birth) error {
	records, histories, timers := make([]*record, len(births)), make([]history, len(births)), make([]timer, len(births))
	for i, birth := range births {
		records[i], histories[i] = birth.record, birth.history
		timers[i] = timer{birth.record.Armed, birth.record.ID}
	}
	if err := queueInsert(b, records); err != nil {
		return err
	}
	queueTransitions(b, histories)
	queueTimers(b, insertTimers, timers)
	return outbox.Queue(b, chains(births))
}

// Born hands the first messages of the sagas over to the relay.
func (e *Engine[T]) Born(births []*Birth) { e.cfg.Relay.HandOff(chains(births)) }

func chains(births []*Birth) []outbox.Chain {
	all := make([]outbox.Chain, len(births))
	for i, b := range births {
		all[i] = b.chain
	}
	return all
}

// fill appends what a change means to a chain: its events, then its commands.
func (e *Engine[T]) fill(chain *outbox.Chain, r *record, change Change[T], effects Effects, trace telemetry.Carrier) error {
	events, err := e.cfg.Projector.Events(change)
	if err != nil {
		return fmt.Errorf("making the events of saga %s: %w", r.ID, err)
	}
	for _, m := range events {
		m.Kind = messaging.Event
		m.IdempotencyKey = r.IdempotencyKey
		m.TraceParent, m.TraceState = trace.TraceParent, trace.TraceState
		r.aggregate.Append(chain, m)
	}
	for _, cmd := range effects.Send {
		payload, err := marshal(cmd.Payload)
		if err != nil {
			return fmt.Errorf("encoding command %s of saga %s: %w", cmd.Step, r.ID, err)
		}
		r.aggregate.Append(chain, messaging.Message{
			Kind:           messaging.Command,
			Subject:        messaging.CommandPrefix + cmd.Participant + "." + cmd.Step,
			Type:           string(cmd.Payload.ProtoReflect().Descriptor().FullName()),
			Source:         e.cfg.Source,
			IdempotencyKey: r.IdempotencyKey,
			StepName:       cmd.Step,
			StepKey:        keys.StepKey(r.ID, cmd.Step),
			LastSeen:       r.Seen[cmd.Participant],
			TraceParent:    trace.TraceParent,
			TraceState:     trace.TraceState,
			Payload:        payload,
		})
	}
	return nil
}

// work is one transaction's changes to sagas, folded by saga.
type work[T proto.Message] struct {
	engine *Engine[T]
	now    time.Time
	sagas  map[uuid.UUID]*item[T]
	fired  []timer // timers that led to this work, and fall away with it
}

// item is what one transaction does to one saga.
type item[T proto.Message] struct {
	record      *record
	definition  *Definition[T]
	data        T
	before      Instance
	chain       outbox.Chain
	began       bool      // the chain was begun
	last        uuid.UUID // the last row of the last chain before this one
	changed     bool
	transitions []Transition
	armed       []timer
}

func (w *work[T]) item(r *record) (*item[T], error) {
	if it, ok := w.sagas[r.ID]; ok {
		return it, nil
	}
	d, err := w.engine.definition(&r.Instance)
	if err != nil {
		return nil, err
	}
	var zero T
	data := zero.ProtoReflect().New().Interface().(T)
	if err := proto.Unmarshal(r.data, data); err != nil {
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
		it.last = r.aggregate.LastMessageID
		it.chain, it.began = r.aggregate.Begin(lastSeen), true
	}
	// Of several replies in one transaction, any may be the proof.
	it.chain.Proven = it.chain.Proven || it.last == lastSeen
	if trace.TraceParent == "" {
		trace = r.trace // timers and operators continue the saga's own trace
	}
	r.Instance = after
	it.transitions = append(it.transitions, effects.Transitions...)
	it.changed = true
	w.arm(it, before.due())
	return w.engine.fill(&it.chain, r, Change[T]{Before: before, After: after, Data: it.data, At: w.now}, effects, trace)
}

// arm sets a timer for a saga unless one is set that fires soon enough. was is when the saga was due before: while it was
// not due at all its timer may have been taken for idle and be falling away at this moment, and does not count.
func (w *work[T]) arm(it *item[T], was time.Time) {
	r := it.record
	due := r.due()
	switch {
	case due.IsZero():
		return
	case was.IsZero() && due.Equal(r.Armed):
		due = due.Add(time.Microsecond) // a key of its own
	case was.IsZero(), r.Armed.IsZero(), due.Before(r.Armed), !r.Armed.After(w.now):
	default:
		return
	}
	r.Armed = due
	it.armed = append(it.armed, timer{due, r.ID})
}

// queue adds everything that the work changes to a batch, and gives the chains to hand off after the commit.
func (w *work[T]) queue(b *pgx.Batch) ([]outbox.Chain, error) {
	items := make([]*item[T], 0, len(w.sagas))
	for _, it := range w.sagas {
		if it.changed {
			items = append(items, it)
		}
	}
	sortItems(items)
	var (
		changes   = make([]Change[T], len(items))
		records   = make([]*record, len(items))
		histories = make([]history, len(items))
		chains    = make([]outbox.Chain, len(items))
		timers    []timer
	)
	for i, it := range items {
		changes[i] = Change[T]{Before: it.before, After: it.record.Instance, Data: it.data, At: w.now}
		records[i] = it.record
		histories[i] = history{it.record.ID, it.record.Revision + 1, it.transitions}
		chains[i] = it.chain
		timers = append(timers, it.armed...)
	}
	if len(items) > 0 {
		if err := w.engine.cfg.Projector.Queue(b, changes); err != nil {
			return nil, fmt.Errorf("projecting sagas: %w", err)
		}
		if err := queueUpdate(b, records); err != nil {
			return nil, err
		}
		queueTransitions(b, histories)
		queueTimers(b, deleteTimers, w.fired)
		queueTimers(b, insertTimers, timers)
	}
	return chains, outbox.Queue(b, chains)
}

// Get gives the state of a saga. The error wraps [ErrNotFound] if there is none.
func (e *Engine[T]) Get(ctx context.Context, id uuid.UUID) (Instance, error) {
	r, _, err := load(ctx, e.cfg.Pool, id)
	if err != nil {
		return Instance{}, err
	}
	return r.Instance, nil
}

// Cancel turns a saga back at its client's request. extra adds statements to the transaction that does so, such as
// the record of the client's key; it is given the state after. The error wraps [ErrTooLate] or [ErrNotFound]. A race with
// anything else is settled by the saga's revision.
func (e *Engine[T]) Cancel(ctx context.Context, id uuid.UUID, extra func(*pgx.Batch, Instance) error) (Instance, error) {
	for {
		after, err := e.cancelOnce(ctx, id, extra)
		if !isRace(err) {
			return after, err
		}
		if ctx.Err() != nil {
			return Instance{}, ctx.Err()
		}
	}
}

func (e *Engine[T]) cancelOnce(ctx context.Context, id uuid.UUID, extra func(*pgx.Batch, Instance) error) (Instance, error) {
	r, now, err := load(ctx, e.cfg.Pool, id)
	if err != nil {
		return Instance{}, err
	}
	w := &work[T]{engine: e, now: now, sagas: make(map[uuid.UUID]*item[T])}
	it, err := w.item(r)
	if err != nil {
		return Instance{}, err
	}
	// A request is no proof of what is out, so the chain is left to the sweep.
	if err := w.advance(it, CancelRequested{}, uuid.Nil, telemetry.Inject(ctx)); err != nil {
		return r.Instance, fmt.Errorf("cancelling saga %s: %w", id, err)
	}
	var b pgx.Batch
	chains, err := w.queue(&b)
	if err != nil {
		return Instance{}, err
	}
	if extra != nil {
		if err := extra(&b, it.record.Instance); err != nil {
			return Instance{}, err
		}
	}
	if err := postgres.SendAtomic(ctx, e.cfg.Pool, &b); err != nil {
		return Instance{}, fmt.Errorf("cancelling saga %s: %w", id, err)
	}
	e.cfg.Relay.HandOff(chains)
	return it.record.Instance, nil
}

// isRace tells whether a transaction failed only because rows had changed since they were read.
func isRace(err error) bool {
	return err != nil && !errors.Is(err, ErrTooLate) && postgres.Classify(err) == postgres.Conflict
}

func marshal(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if b == nil {
		b = []byte{}
	}
	return b, err
}
