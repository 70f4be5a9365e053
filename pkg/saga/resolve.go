package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/fault"
)

// Decision is how a person resolves what a saga needs attention for.
type Decision string

// The decisions.
const (
	// RetryNow sends the command that has no outcome once more, or the undo that was refused, and gives it a whole budget again.
	RetryNow Decision = "retry"
	// UndoOtherWay stops waiting for a step without an undo of its own, and turns the saga back: the undos of the steps before it cover
	// what it may have done. Said of an undo, it means that a person has undone the step by other means; the next undo follows.
	UndoOtherWay Decision = "undo_other_way"
	// MarkDone takes a person's word that the step is done, and the saga goes on; or that the undo is, and the next undo follows; or that
	// a success that came too late has been dealt with.
	MarkDone Decision = "mark_done"
)

// Resolved is a person's decision about a step that needs attention.
type Resolved struct {
	Decision Decision
	// Step names the action or the undo; empty means the first step that needs attention.
	Step string
}

// resolve follows a person's decision. Only what needs attention can be decided about: everything else goes on by itself.
func (p *passage[T]) resolve(r Resolved) error {
	i, ok := p.troubled(r.Step)
	if !ok {
		return ErrNothingToResolve
	}
	s := &p.in.Steps[i]
	switch {
	case r.Decision == RetryNow && s.Phase == UndoRefused:
		s.Reason = ""
		p.send(i, Undoing, p.def.steps[i].undo)
	case r.Decision == RetryNow && s.Phase != Done:
		s.Since, s.Asked, s.Attention = p.now, 0, ""
		p.resend(i)
		p.look(i)
	case r.Decision == UndoOtherWay && (s.Phase == Sent || s.Phase == Waiting):
		if p.def.steps[i].undo == nil {
			p.enter(i, GivenUp)
		}
		p.turn(ReasonGivenUp)
	case r.Decision == MarkDone && (s.Phase == Sent || s.Phase == Waiting):
		p.enter(i, Done)
		p.forward()
	case (r.Decision == MarkDone || r.Decision == UndoOtherWay) && (s.Phase == Undoing || s.Phase == UndoRefused):
		p.enter(i, Undone)
		p.backward()
	case r.Decision == MarkDone && s.Phase == Done:
		s.Attention = ""
		p.backward()
	default:
		return ErrNothingToResolve
	}
	return nil
}

// troubled gives the step that needs attention under a name.
func (p *passage[T]) troubled(name string) (int, bool) {
	for i, s := range p.in.Steps {
		if s.Attention != "" && (name == "" || name == s.Name || name == p.def.steps[i].undoName) {
			return i, true
		}
	}
	return 0, false
}

// Troubled names the participant and the command that a saga needs attention for, the first of them if there are several: the undo
// while one is under way or was refused, else the action. False means that no person is needed.
func (d *Definition[T]) Troubled(in Instance, name string) (Question, bool) {
	p := passage[T]{def: d, in: in}
	i, ok := p.troubled(name)
	if !ok {
		return Question{}, false
	}
	if phase := in.Steps[i].Phase; phase == Undoing || phase == UndoRefused {
		return Question{d.steps[i].undoParticipant, d.steps[i].undoName}, true
	}
	return Question{d.steps[i].participant, d.steps[i].name}, true
}

// Questions lists what there is to ask participants about a saga: every command that was sent and whose trace may still tell something.
func (d *Definition[T]) Questions(in Instance) []Question {
	var questions []Question
	for i, s := range in.Steps {
		if s.Phase == Idle {
			continue
		}
		questions = append(questions, Question{d.steps[i].participant, d.steps[i].name})
		if s.Phase == Undoing || s.Phase == Undone || s.Phase == UndoRefused {
			questions = append(questions, Question{d.steps[i].undoParticipant, d.steps[i].undoName})
		}
	}
	return questions
}

// Resolve follows a person's decision. extra adds statements to the transaction that does so, such as the record of who decided and
// why; it is given the states before and after. The error wraps [ErrNothingToResolve] or [ErrNotFound]. A race with anything else is
// settled by the saga's revision.
func (e *Engine[T]) Resolve(ctx context.Context, id uuid.UUID, r Resolved, extra func(b *pgx.Batch, before, after Instance) error) (Instance, error) {
	for {
		after, err := e.resolveOnce(ctx, id, r, extra)
		if !isRace(err) {
			return after, err
		}
		if ctx.Err() != nil {
			return Instance{}, ctx.Err()
		}
	}
}

func (e *Engine[T]) resolveOnce(ctx context.Context, id uuid.UUID, r Resolved, extra func(*pgx.Batch, Instance, Instance) error) (Instance, error) {
	record, now, err := e.load(ctx, id)
	if err != nil {
		return Instance{}, err
	}
	w := e.work(now)
	it, err := w.item(record)
	if err != nil {
		return Instance{}, err
	}
	ctx, span := e.within(ctx, record, "resolve")
	defer span.End()
	// A person's word is no proof of what is out, so the chain is left to the sweep.
	if err := w.advance(it, r, uuid.Nil, e.carrier(ctx)); err != nil {
		return record.Instance, fmt.Errorf("resolving saga %s: %w", id, err)
	}
	mark(span, record)
	u := w.unit()
	if extra != nil {
		u.After = func(b *pgx.Batch) error { return extra(b, it.before, it.record.Instance) }
	}
	fault.At(fault.SagaCommitting, id, "resolve")
	if err := e.store.Commit(ctx, u); err != nil {
		return Instance{}, fmt.Errorf("resolving saga %s: %w", id, err)
	}
	fault.At(fault.SagaCommitted, id, "resolve")
	e.cfg.Relay.HandOff(u.Chains)
	w.committed(ctx)
	return it.record.Instance, nil
}

// DefinitionOf gives the plan of a saga. The error wraps [ErrUnknownDefinition].
func (e *Engine[T]) DefinitionOf(in *Instance) (*Definition[T], error) { return e.definition(in) }

// Entry is a transition as it is on record.
type Entry struct {
	// Revision is that of the saga after the transition.
	Revision int64
	Transition
	At time.Time
}

const selectHistory = `
SELECT t.revision, t.step, t.from_state, t.to_state, t.cause, t.cause_id, t.attempt, t.at
  FROM saga_transition t JOIN saga_instance s ON s.saga_no = t.saga_no
 WHERE s.saga_id = $1
 ORDER BY t.revision, t.position`

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ReadHistory reads all transitions of a saga, in their sequence; none if there is no such saga.
func ReadHistory(ctx context.Context, db Querier, id uuid.UUID) ([]Entry, error) {
	rows, err := db.Query(ctx, selectHistory, id)
	if err != nil {
		return nil, fmt.Errorf("reading the history of saga %s: %w", id, err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Entry, error) {
		var (
			e     Entry
			cause *uuid.UUID
		)
		err := row.Scan(&e.Revision, &e.Step, &e.From, &e.To, &e.Cause, &cause, &e.Attempt, &e.At)
		if cause != nil {
			e.CauseID = *cause
		}
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the history of saga %s: %w", id, err)
	}
	return entries, nil
}
