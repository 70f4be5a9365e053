package participant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/telemetry"
)

// intake is one transaction that takes commands in.
type intake struct {
	runner  *Runner
	now     time.Time // the database's
	known   time.Time // our own, just after that was read
	records map[Key]*Record
	rows    map[uuid.UUID]*Row
	fresh   []*claim     // intents to insert, each with or without a slot
	buried  map[Key]bool // actions to put a tombstone on
	changes map[uuid.UUID]*change
	marks   []uuid.UUID
}

// change collects what one transaction does to one order.
type change struct {
	Change
	chain outbox.Chain
	began bool
}

// ApplyCommands takes a batch of commands in, in one transaction, and starts what can start now. It is an inbox.Apply.
func (r *Runner) ApplyCommands(ctx context.Context, batch []messaging.Delivery) (err error) {
	began := r.cfg.Process.Now() // before the claim, so that our idea of the lease ends before the database's
	in := &intake{runner: r, buried: make(map[Key]bool), changes: make(map[uuid.UUID]*change)}
	seen, err := in.read(ctx, batch)
	if err != nil {
		return err
	}
	started := false
	defer func() {
		if !started {
			in.giveSlotsBack()
		}
	}()
	committing := ctx
	spans := make([]trace.Span, 0, len(batch))
	defer func() {
		for _, span := range spans {
			telemetry.Fail(span, err) // of the message that is to blame, or of all
			span.End()
		}
	}()
	for _, d := range r.undosFirst(batch) {
		if seen[d.ID] {
			d.Repeat(ctx, r.cfg.Tracer)
			continue
		}
		processing, span := messaging.StartProcess(ctx, r.cfg.Tracer, d)
		if err := in.take(d, telemetry.Inject(processing)); err != nil {
			telemetry.Fail(span, err)
			span.End()
			return err
		}
		spans = append(spans, span)
		if len(batch) == 1 {
			committing = processing // a transaction of one message is in its trace; one of many is in none
		}
		in.marks = append(in.marks, d.ID)
	}
	if len(in.marks) == 0 {
		return nil
	}
	for _, c := range in.fresh {
		fault.At(fault.StepTaking, c.record.OrderID, c.record.StepName)
	}
	chains, err := in.write(committing)
	if err != nil {
		return err
	}
	for _, c := range in.fresh {
		fault.At(fault.StepIntended, c.record.OrderID, c.record.StepName)
	}
	r.cfg.Relay.HandOff(chains)
	started = true
	left := false
	for _, c := range in.fresh {
		if c.slot {
			c.began, c.known = began, in.known
			r.start(c)
		} else {
			left = true
		}
	}
	if left {
		r.backlog.Store(true)
		r.wake()
	}
	return nil
}

// undosFirst sorts a batch so that an undo meets no intent of its own batch: an action beside its undo is refused, whichever
// of the two came first.
func (r *Runner) undosFirst(batch []messaging.Delivery) []*messaging.Delivery {
	sorted := make([]*messaging.Delivery, len(batch))
	for i := range batch {
		sorted[i] = &batch[i]
	}
	rank := func(d *messaging.Delivery) int {
		if step := r.steps[d.StepName]; step != nil && len(step.Undoes) > 0 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b *messaging.Delivery) int { return rank(a) - rank(b) })
	return sorted
}

func (in *intake) read(ctx context.Context, batch []messaging.Delivery) (seen map[uuid.UUID]bool, err error) {
	ids, orders := make([]uuid.UUID, len(batch)), make([]uuid.UUID, len(batch))
	for i, d := range batch {
		ids[i], orders[i] = d.ID, d.AggregateID
	}
	slices.SortFunc(orders, compareIDs)
	orders = slices.Compact(orders)
	l, err := in.runner.store.Load(ctx, orders, ids)
	if err != nil {
		return nil, fmt.Errorf("reading steps for commands: %w", err)
	}
	in.records, in.rows, in.now, in.known = l.Steps, l.Rows, l.Now, in.runner.cfg.Process.Now()
	return l.Seen, nil
}

// take decides about one command. What follows from it belongs to the given trace.
func (in *intake) take(d *messaging.Delivery, carrier telemetry.Carrier) error {
	step, ok := in.runner.steps[d.StepName]
	if !ok || len(step.Checks) > 0 {
		return fmt.Errorf("%w: %w: %q", inbox.ErrPermanent, ErrUnknownStep, d.StepName)
	}
	if want := stepKey(d.AggregateID, d.StepName); d.StepKey != want {
		return fmt.Errorf("%w: %w: %s instead of %s for %s of %s", inbox.ErrPermanent, ErrStepKey, d.StepKey, want, d.StepName, d.AggregateID)
	}
	k := Key{d.AggregateID, d.StepName}
	if known, ok := in.records[k]; ok {
		return in.again(d, known, carrier)
	}
	for _, action := range step.Undoes {
		in.bury(Key{d.AggregateID, action})
	}
	record := &Record{
		OrderID: d.AggregateID, StepName: d.StepName, Kind: step.kind(), State: StatePending,
		CommandID: d.ID, CommandType: d.Type, Payload: d.Payload, IdempotencyKey: d.IdempotencyKey, LastSeen: d.LastSeen,
		Trace: carrier,
	}
	in.records[k] = record
	c := &claim{record: record, step: step, around: in.records, slot: in.runner.admit()}
	if c.slot {
		record.Token, record.Attempts, record.FirstAttemptAt, record.LeaseOwner = 1, 1, &in.now, in.runner.cfg.Owner
		c.now = in.now
	}
	in.fresh = append(in.fresh, c)
	ch := in.change(d.AggregateID)
	ch.Intents = append(ch.Intents, Intent{d.AggregateID, d.StepName, d.Payload})
	c.row = ch.Row
	return nil
}

// again deals with a command for a step that is on record.
func (in *intake) again(d *messaging.Delivery, known *Record, carrier telemetry.Carrier) error {
	outcome, reason, resultType, result := messaging.OutcomeDone, "", known.ResultType, known.Result
	switch {
	case known.LeaseOwner != "":
		return nil // it is being called, and its own reply will come
	case known.Undone():
		// Done, but undone, is not done. And what was not done before its undo never will be.
		outcome, reason, resultType, result = messaging.OutcomeRefused, ReasonUndone, typeOfNothing, nil
	case known.State == StateRefused:
		outcome, reason = messaging.OutcomeRefused, known.Reason
	case known.State != StateDone:
		return nil // its own reply will come
	}
	ch := in.change(d.AggregateID)
	if !ch.began {
		ch.chain, ch.began = ch.Row.Begin(d.LastSeen), true
	}
	reply := in.runner.reply(d.AggregateID, d.StepName, d.IdempotencyKey, outcome, reason)
	reply.Type, reply.Payload, reply.LastSeen = resultType, result, d.ID
	reply.TraceParent, reply.TraceState = carrier.TraceParent, carrier.TraceState
	ch.Row.Append(&ch.chain, reply)
	return nil
}

// bury marks an action as undone.
func (in *intake) bury(k Key) {
	now := in.now
	in.buried[k] = true
	if known, ok := in.records[k]; ok {
		if known.UndoneAt == nil {
			known.UndoneAt = &now
		}
		return
	}
	in.records[k] = &Record{OrderID: k.OrderID, StepName: k.StepName, Kind: KindAction, State: StateRefused, UndoneAt: &now, Reason: ReasonUndone}
}

func (in *intake) change(order uuid.UUID) *change {
	if ch, ok := in.changes[order]; ok {
		return ch
	}
	ch := &change{}
	if row, ok := in.rows[order]; ok {
		ch.Row = *row
	}
	ch.Row.ID = order
	in.changes[order] = ch
	return ch
}

func (in *intake) write(ctx context.Context) ([]outbox.Chain, error) {
	changes, chains := collect(in.changes)
	// An order that is known and only has a new intent leaves its business row as it is.
	changes = slices.DeleteFunc(changes, func(c Change) bool {
		return c.Row.Revision > 0 && !in.changes[c.Row.ID].began
	})
	unit := &Intake{Lease: in.runner.cfg.Lease, Changes: changes, Chains: chains, Marks: in.marks}
	for _, c := range in.fresh {
		unit.Intents = append(unit.Intents, c.record)
	}
	for k := range in.buried {
		unit.Tombstones = append(unit.Tombstones, k)
	}
	slices.SortFunc(unit.Tombstones, compareKeys)
	if err := in.runner.store.TakeIn(ctx, unit); err != nil {
		return nil, fmt.Errorf("taking commands in: %w", err)
	}
	// The business row of a new order now has the revision that its insert gave it.
	for _, c := range in.fresh {
		if c.row.Revision == 0 || in.changes[c.record.OrderID].began {
			c.row = in.changes[c.record.OrderID].Row
			c.row.Revision++
		}
	}
	return chains, nil
}

func (in *intake) giveSlotsBack() {
	for _, c := range in.fresh {
		if c.slot {
			in.runner.giveSlot()
		}
	}
}

// collect sorts changes by order id.
func collect(changes map[uuid.UUID]*change) ([]Change, []outbox.Chain) {
	list, chains := make([]Change, 0, len(changes)), make([]outbox.Chain, 0, len(changes))
	for _, id := range slices.SortedFunc(maps.Keys(changes), compareIDs) {
		ch := changes[id]
		list = append(list, ch.Change)
		if ch.began {
			chains = append(chains, ch.chain)
		}
	}
	return list, chains
}

// reply begins a reply to a command.
func (r *Runner) reply(order uuid.UUID, step, idempotencyKey, outcome, reason string) messaging.Message {
	return messaging.Message{
		Kind:           messaging.Reply,
		Subject:        r.cfg.ReplySubject,
		Source:         r.cfg.Source,
		IdempotencyKey: idempotencyKey,
		StepName:       step,
		StepKey:        stepKey(order, step),
		Outcome:        outcome,
		Reason:         reason,
	}
}

func compareIDs(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }

func compareKeys(a, b Key) int {
	if c := compareIDs(a.OrderID, b.OrderID); c != 0 {
		return c
	}
	return strings.Compare(a.StepName, b.StepName)
}
