package participant

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
)

// Outcome is what an attempt at a step led to: [Done], [Refused], [Unknown] or [Waiting], and nothing else.
type Outcome interface{ isOutcome() }

// Done says that the step is done. For an undo it says that nothing is left of the action, whether there ever was something
// or not.
type Done struct {
	// Result is the payload of the reply; nil means that there is nothing to tell.
	Result proto.Message
	// Reference is the outside system's id of what was made.
	Reference string
}

// Refused is a business no, and final: nothing happened, and nothing will. For an undo it means that a person must act.
type Refused struct {
	// Reason is a stable word, such as "card_declined".
	Reason string
	// Reference is the outside system's id, if there is one.
	Reference string
}

// Unknown says that it is not known whether something happened. It is never read as a yes or a no.
type Unknown struct {
	Err error
	// RetryAfter is when to attempt again; 0 leaves that to the growing delay.
	RetryAfter time.Duration
	// Reference is the outside system's id of what this attempt may have acted on, so that the next one can ask for it;
	// empty leaves the one on record.
	Reference string
}

// Waiting says that the step waits for the customer. It never advances the saga. A check says by it that it will look again.
type Waiting struct {
	// Ask is when to look again.
	Ask time.Duration
	// Result is the payload of the reply, and says what is waited for. It is told once, and again when it is another.
	Result proto.Message
	// Reference is the outside system's id.
	Reference string
}

func (Done) isOutcome()    {}
func (Refused) isOutcome() {}
func (Unknown) isOutcome() {}
func (Waiting) isOutcome() {}

// outcomeOf makes sure of what a step gave: an outcome of another kind, or none, says nothing.
func outcomeOf(o Outcome) Outcome {
	switch o := o.(type) {
	case Done, Refused, Unknown, Waiting:
		return o
	default:
		return Unknown{Err: fmt.Errorf("step gave %T instead of an outcome", o)}
	}
}

// referenceOf gives the reference that an outcome carries.
func referenceOf(o Outcome) string {
	switch o := o.(type) {
	case Done:
		return o.Reference
	case Refused:
		return o.Reference
	case Unknown:
		return o.Reference
	case Waiting:
		return o.Reference
	default:
		return ""
	}
}

// ReasonUndone is why an action is refused that was undone before it could start.
const ReasonUndone = "undone"

// Call is one attempt at a step.
type Call struct {
	OrderID  uuid.UUID
	StepName string
	// StepKey is the same in every attempt; outside keys and references derive from it.
	StepKey        uuid.UUID
	IdempotencyKey string
	// Payload is the command.
	Payload []byte
	// Attempt is 1 for the very first. From the second on an earlier attempt may have had its effect: ask before acting.
	Attempt int
	// FirstAttemptAt and Now are the database's times of the first attempt and of this claim.
	FirstAttemptAt time.Time
	Now            time.Time
	// Reference is what an earlier attempt noted.
	Reference string

	siblings func(ctx context.Context, step string) (Record, bool, error)
}

// Sibling reads the record of another step of the same order; false if there is none.
func (c *Call) Sibling(ctx context.Context, step string) (Record, bool, error) {
	return c.siblings(ctx, step)
}

// Step is one step that a participant performs.
type Step struct {
	Name string
	// Undoes lists the actions that this step undoes. It is empty for an action.
	Undoes []string
	// Checks lists actions that this step looks after when they are over. It is empty for actions and undos. A check is not asked for by
	// a command and does not reply: it begins, after the settling time, in the transaction that records the end of such an action, or of
	// its undo, if one of the action's attempts ended without an answer, so that its request may still arrive. It looks as often as its
	// outcome is [Waiting], and may look at the action and its undo as siblings.
	Checks []string
	// Perform makes one attempt. It must end when ctx does, and must not write to the database. A panic counts as Unknown.
	// It is never begun for an action whose undo was on record when the step was claimed.
	Perform func(ctx context.Context, call *Call) Outcome
}

func (s *Step) kind() string {
	switch {
	case len(s.Undoes) > 0:
		return KindUndo
	case len(s.Checks) > 0:
		return KindCheck
	}
	return KindAction
}

// failure is why the outcome is unknown.
func (u Unknown) failure() error {
	if u.Err == nil {
		return errUnknown
	}
	return u.Err
}
