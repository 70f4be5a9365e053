package saga

import (
	"time"

	"github.com/google/uuid"
)

// Status says how far a saga is as a whole.
type Status string

// The statuses of a saga.
const (
	Running      Status = "running"
	Compensating Status = "compensating"
	// Completed: every step is done. Final.
	Completed Status = "completed"
	// Compensated: every undo is confirmed. Final, unless a success arrives that nobody expected any more.
	Compensated Status = "compensated"
)

// Ended tells whether nothing is left to do.
func (s Status) Ended() bool { return s == Completed || s == Compensated }

// Phase says how far a step is.
type Phase string

// The phases of a step.
const (
	// Idle: nothing was sent.
	Idle Phase = ""
	// Sent: the command was sent, and no outcome is known.
	Sent Phase = "sent"
	// Waiting: the participant waits for the customer.
	Waiting Phase = "waiting"
	Done    Phase = "done"
	Refused Phase = "refused"
	// GivenUp: a step that has no undo is not waited for any more, because a person has decided so, or because a step beside it was
	// refused. What it may have done is undone by the undos of the steps before it. Whatever is heard of it later changes nothing.
	GivenUp Phase = "given_up"
	// Undoing: the undo was sent, and is not confirmed.
	Undoing Phase = "undoing"
	Undone  Phase = "undone"
	// UndoRefused: the participant said that the undo can not be done. A person must.
	UndoRefused Phase = "undo_refused"
)

// The reasons for which a saga turns back, beside those that participants give.
const (
	ReasonCancelled = "cancelled"
	ReasonTimedOut  = "timed_out"
	// ReasonRefused stands for a refusal without a word of its own.
	ReasonRefused = "refused"
	// ReasonGivenUp: a person has decided not to wait any longer.
	ReasonGivenUp = "given_up"
)

// NeedsAttention stands in a saga's history for the status while a person is needed.
const NeedsAttention = "needs_attention"

// StepState is the state of one step of one saga.
type StepState struct {
	Name  string `json:"name"`
	Phase Phase  `json:"phase,omitempty"`
	// Attempts counts how often the command of the current phase was sent.
	Attempts int `json:"attempts,omitempty"`
	// Asked counts how often the participant was asked in the current phase.
	Asked int `json:"asked,omitempty"`
	// Since is when the current phase began or, if it is Waiting, when the participant last said that it waits. The budget
	// counts from here.
	Since time.Time `json:"since,omitzero"`
	// Due is when to look again; zero if nothing is awaited.
	Due time.Time `json:"due,omitzero"`
	// Reason is why the step, or its undo, was refused.
	Reason string `json:"reason,omitempty"`
	// Detail is what a step that is Waiting waits for, as its participant has encoded it; empty until its reply has come.
	Detail []byte `json:"detail,omitempty"`
	// Attention says why a person is needed for this step; empty while none is.
	Attention string `json:"attention,omitempty"`
}

// Instance is one saga as it is stored.
type Instance struct {
	ID uuid.UUID
	// Definition, Version and Hash name the plan that the saga began with, and keeps.
	Definition string
	Version    int
	Hash       []byte
	// IdempotencyKey is the client's key, which every message carries.
	IdempotencyKey string
	Status         Status
	// Attention says why a person is needed, as the first step that needs one says it; empty while none is.
	Attention string
	// Reason says why the saga turned back.
	Reason string
	Steps  []StepState
	// Seen is the last reply handled from each participant: what our next command to it proves to it.
	Seen map[string]uuid.UUID
	// Armed is when the earliest timer of the saga fires; zero if there is none.
	Armed time.Time
	// Revision is the number of the stored state that this one was read from.
	Revision int64
}

// Cancelled tells whether the saga turned back because its client asked.
func (in *Instance) Cancelled() bool { return in.Reason == ReasonCancelled }

// clone copies what Advance may change.
func (in Instance) clone() Instance {
	in.Steps = append([]StepState(nil), in.Steps...)
	seen := make(map[string]uuid.UUID, len(in.Seen))
	for k, v := range in.Seen {
		seen[k] = v
	}
	in.Seen = seen
	return in
}

// due is the earliest time at which something must be looked at; zero if nothing is under way.
func (in *Instance) due() time.Time {
	var at time.Time
	for _, s := range in.Steps {
		if s.Phase == Sent || s.Phase == Waiting || s.Phase == Undoing {
			if at.IsZero() || s.Due.Before(at) {
				at = s.Due
			}
		}
	}
	return at
}
