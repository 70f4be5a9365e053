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
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/fault"
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

// Relay publishes what was written to the outbox. *[outbox.Relay] is one.
type Relay interface {
	// HandOff takes chains whose transaction has committed, and returns at once.
	HandOff(chains []outbox.Chain)
}

// Config makes an [Engine].
type Config[T proto.Message] struct {
	// Pool is the database that sagas are kept in. It is not needed beside a Store.
	Pool *pgxpool.Pool
	// Store takes the place of the database, in a simulation; nil means the one on Pool.
	Store Store
	// Conn gives the tracer of spans for the replies that are dealt with; nil makes none.
	Conn      *messaging.Conn
	Relay     Relay
	Projector Projector[T]
	Asker     Asker
	// AskTimeout bounds one question; 0 means DefaultAskTimeout.
	AskTimeout time.Duration
	// DueRate bounds how many sagas RunTimers looks after each second whose deadline has passed, so that what an outage has left behind
	// does not come at once; 0 means DefaultDueRate. [Release] lifts it for a while.
	DueRate int
	// Meter tells what becomes of sagas, how many need attention, and how many are left alone; nil tells nobody.
	Meter metric.Meter
	// Observe, if not nil, is told of each change after its commit, once, unless the answer of the commit or this process is lost. It must
	// not block. ctx is in the saga's trace; if the saga as a whole has changed, it has the span of that.
	Observe func(ctx context.Context, change Change[T])
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
	plans       []Plan // of the definitions
	store       Store
	tracer      trace.Tracer
	told        *instruments
	log         *slog.Logger
}

type planKey struct {
	name    string
	version int
}

// NewEngine makes an engine for the given plans.
func NewEngine[T proto.Message](cfg Config[T], definitions ...*Definition[T]) *Engine[T] {
	e := &Engine[T]{cfg: cfg, definitions: make(map[planKey]*Definition[T]), store: cfg.Store, log: cfg.Logger}
	if e.store == nil {
		e.store = database{cfg.Pool, cfg.Consumer}
	}
	if cfg.Conn != nil {
		e.tracer = cfg.Conn.Tracer()
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.cfg.AskTimeout <= 0 {
		e.cfg.AskTimeout = DefaultAskTimeout
	}
	for _, d := range definitions {
		e.definitions[planKey{d.name, d.version}] = d
	}
	e.plans = e.plansOf()
	if e.cfg.DueRate <= 0 {
		e.cfg.DueRate = DefaultDueRate
	}
	var err error
	if e.told, err = newInstruments(cfg.Meter); err == nil {
		err = e.observe()
	}
	if err != nil {
		e.log.Error("sagas are not measured", telemetry.LogError, err) // they run all the same
		e.told, _ = newInstruments(nil)
	}
	for _, d := range definitions {
		var steps, undos []string
		for _, s := range d.steps {
			steps = append(steps, s.name)
			if s.undoName != "" {
				undos = append(undos, s.undoName)
			}
		}
		e.told.begin(context.Background(), d.name, steps, undos)
	}
	return e
}

func (e *Engine[T]) definition(in *Instance) (*Definition[T], error) {
	d, ok := e.definitions[planKey{in.Definition, in.Version}]
	// Of another plan with the same number the steps are not known either.
	if !ok || !bytes.Equal(d.hash, in.Hash) {
		return nil, fmt.Errorf("%w: %s, of saga %s", ErrUnknownDefinition, Plan{in.Definition, in.Version, in.Hash}, in.ID)
	}
	return d, nil
}

// Birth is a saga that is about to begin.
type Birth struct {
	record  *Record
	chain   outbox.Chain
	history History
	undoes  func(string) string
	began   time.Time // by this process's clock
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
	began := time.Now()
	now = now.Truncate(time.Microsecond) // as the database keeps it
	before := d.New(id, key)
	after, effects, err := d.Advance(before, data, Started{}, now)
	if err != nil {
		return nil, fmt.Errorf("beginning saga %s: %w", id, err)
	}
	r := &Record{Instance: after, Data: encoded, Aggregate: outbox.Aggregate{ID: id}, Trace: telemetry.Inject(ctx)}
	r.Armed, r.Revision = r.due(), 1
	chain := r.Aggregate.Begin(uuid.Nil)
	if err := e.fill(&chain, r, Change[T]{Before: before, After: after, Data: data, At: now}, effects, r.Trace); err != nil {
		return nil, err
	}
	return &Birth{r, chain, History{id, 1, effects.Transitions}, d.Undoes, began}, nil
}

// QueueBirths adds the rows of sagas that begin to a batch, which runs as one transaction on Postgres: the sagas, their first
// messages, and a timer each. A saga whose id exists already makes it fail with a violation of saga_instance_pkey. Call
// [Engine.Born] after the commit.
func (e *Engine[T]) QueueBirths(b *pgx.Batch, births []*Birth) error {
	return database{e.cfg.Pool, e.cfg.Consumer}.queue(b, unitOf(births))
}

// Start writes sagas that begin in a transaction of their own, and hands their first messages over to the relay.
func (e *Engine[T]) Start(ctx context.Context, births ...*Birth) error {
	u := unitOf(births)
	if err := e.store.Commit(ctx, u); err != nil {
		return fmt.Errorf("beginning sagas: %w", err)
	}
	e.Born(births)
	return nil
}

func unitOf(births []*Birth) *Unit {
	u := &Unit{Chains: chains(births)}
	for _, b := range births {
		u.Births = append(u.Births, b.record)
		u.Histories = append(u.Histories, b.history)
		u.Set = append(u.Set, Timer{Due: b.record.Armed, SagaID: b.record.ID})
	}
	return u
}

// Born hands the first messages of the sagas over to the relay.
func (e *Engine[T]) Born(births []*Birth) {
	e.cfg.Relay.HandOff(chains(births))
	for _, b := range births {
		ctx := telemetry.WithAttributes(telemetry.Extract(context.Background(), b.record.Trace), b.record.identity()...)
		_, end := e.show(ctx, b.record, b.history.Transitions, b.undoes, b.began)
		end()
		e.told.started.Add(ctx, 1, withSaga(b.record.Definition))
	}
}

func chains(births []*Birth) []outbox.Chain {
	all := make([]outbox.Chain, len(births))
	for i, b := range births {
		all[i] = b.chain
	}
	return all
}

// fill appends what a change means to a chain: its events, then its commands.
func (e *Engine[T]) fill(chain *outbox.Chain, r *Record, change Change[T], effects Effects, trace telemetry.Carrier) error {
	events, err := e.cfg.Projector.Events(change)
	if err != nil {
		return fmt.Errorf("making the events of saga %s: %w", r.ID, err)
	}
	for _, m := range events {
		m.Kind = messaging.Event
		m.IdempotencyKey = r.IdempotencyKey
		m.TraceParent, m.TraceState = trace.TraceParent, trace.TraceState
		r.Aggregate.Append(chain, m)
	}
	for _, cmd := range effects.Send {
		payload, err := marshal(cmd.Payload)
		if err != nil {
			return fmt.Errorf("encoding command %s of saga %s: %w", cmd.Step, r.ID, err)
		}
		r.Aggregate.Append(chain, messaging.Message{
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

// Get gives the state of a saga. The error wraps [ErrNotFound] if there is none.
func (e *Engine[T]) Get(ctx context.Context, id uuid.UUID) (Instance, error) {
	r, _, err := e.load(ctx, id)
	if err != nil {
		return Instance{}, err
	}
	return r.Instance, nil
}

// load reads one saga.
func (e *Engine[T]) load(ctx context.Context, id uuid.UUID) (*Record, time.Time, error) {
	l, err := e.store.Load(ctx, []uuid.UUID{id}, nil)
	if err != nil {
		return nil, l.Now, fmt.Errorf("reading saga %s: %w", id, err)
	}
	r, ok := l.Sagas[id]
	if !ok {
		return nil, l.Now, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return r, l.Now, nil
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
	r, now, err := e.load(ctx, id)
	if err != nil {
		return Instance{}, err
	}
	w := e.work(now)
	it, err := w.item(r)
	if err != nil {
		return Instance{}, err
	}
	// What follows belongs to the saga's own trace, and not to that of the request.
	ctx, span := e.within(ctx, r, "cancel")
	defer span.End()
	// A request is no proof of what is out, so the chain is left to the sweep.
	if err := w.advance(it, CancelRequested{}, uuid.Nil, e.carrier(ctx)); err != nil {
		return r.Instance, fmt.Errorf("cancelling saga %s: %w", id, err)
	}
	mark(span, r)
	u := w.unit()
	if extra != nil {
		u.After = func(b *pgx.Batch) error { return extra(b, it.record.Instance) }
	}
	fault.At(fault.SagaCommitting, id, "cancel")
	if err := e.store.Commit(ctx, u); err != nil {
		return Instance{}, fmt.Errorf("cancelling saga %s: %w", id, err)
	}
	fault.At(fault.SagaCommitted, id, "cancel")
	e.cfg.Relay.HandOff(u.Chains)
	w.committed(ctx)
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
