package participant

import "errors"

var (
	// ErrUnknownStep says that a command asks for a step that this participant does not have.
	ErrUnknownStep = errors.New("no such step here")

	// ErrStepKey says that a command carries a step key that is not the one of its order and step.
	ErrStepKey = errors.New("wrong step key")

	// ErrLeaseLost says that a result came after somebody else had taken the step over. It is not recorded: the new owner
	// finds out for himself what happened.
	ErrLeaseLost = errors.New("the lease of the step was lost")

	// errUnknown is for an outcome that nothing more is known of.
	errUnknown = errors.New("outcome unknown")

	// errInFlight is why an undo was put off.
	errInFlight = errors.New("the action may be in flight")
)
