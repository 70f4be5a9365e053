package saga

import (
	"cmp"
	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/messaging"
)

// Input is something that happened to a saga. The inputs are [Started], [Replied], [Asked], [CancelRequested] and [Resolved].
type Input interface{ isInput() }

// Started begins a saga.
type Started struct{}

// Replied is a reply of a participant.
type Replied struct {
	// Step names the action or the undo.
	Step    string
	Outcome Outcome
	// Reason says why it was refused.
	Reason string
	// Detail says, with the outcome waiting, what is waited for, as the participant has encoded it.
	Detail []byte
	// MessageID is the reply's message id.
	MessageID uuid.UUID
}

// Asked is what a participant said about a step when it was asked, or its silence.
type Asked struct {
	// Step names the action or the undo.
	Step   string
	Answer Answer
}

// CancelRequested is the client's wish to have everything undone.
type CancelRequested struct{}

func (Started) isInput()         {}
func (Replied) isInput()         {}
func (Asked) isInput()           {}
func (CancelRequested) isInput() {}
func (Resolved) isInput()        {}

// Outcome is what a participant says of a step in a reply. There is no outcome for "unknown": who does not know does not
// reply.
type Outcome string

// The outcomes of a step. Their values are on the wire.
const (
	OutcomeDone    Outcome = messaging.OutcomeDone
	OutcomeRefused Outcome = messaging.OutcomeRefused
	OutcomeWaiting Outcome = messaging.OutcomeWaiting
)

// Answer is what a participant knows of a step.
type Answer struct {
	Finding Finding
	// Reason says why the step was refused.
	Reason string
}

// Finding says how much a participant knows of a step.
type Finding string

// The findings.
const (
	// FoundNothing: the participant has no record. The command may still be on its way.
	FoundNothing Finding = "nothing"
	// FoundRunning: the participant is at it, and has no outcome yet.
	FoundRunning Finding = "running"
	FoundWaiting Finding = "waiting"
	FoundDone    Finding = "done"
	FoundRefused Finding = "refused"
	// Silent: the participant did not answer.
	Silent Finding = "silent"
)

// Effects are what an input leads to, beside the new state.
type Effects struct {
	// Send are the commands to send, in sequence.
	Send []Command
	// Transitions are what changed, in sequence.
	Transitions []Transition
}

// Transition is one line of a saga's history.
type Transition struct {
	// Step is empty for a transition of the saga as a whole.
	Step     string
	From, To string
	// Cause names the input; CauseID is the message that brought it, if one did.
	Cause   string
	CauseID uuid.UUID
	// Attempt counts the sends of the command that the new state sent; 0 if it sent none.
	Attempt int
}

// Title tells a transition to people, the same wherever it is told: "create_shipment: sent → refused". undoes is the step that Step undoes, if it
// is an undo; see [Definition.Undoes].
func (t Transition) Title(undoes string) string {
	what := cmp.Or(t.Step, "saga")
	switch {
	case undoes != "":
		what += ", of " + undoes
	case t.Step == "" && t.To == string(Compensating):
		return "undo decided: saga " + cmp.Or(t.From, "idle") + " → " + t.To
	}
	return what + ": " + cmp.Or(t.From, "idle") + " → " + cmp.Or(t.To, "idle")
}

// Undoing tells whether the transition belongs to undoing what was done.
func (t Transition) Undoing() bool {
	switch t.To {
	case string(Undoing), string(Undone), string(UndoRefused), string(Compensating), string(Compensated):
		return true
	}
	return false
}

// Question is what to ask a participant.
type Question struct {
	Participant string
	// Step names the action or the undo.
	Step string
}
