package outbox

import "errors"

var (
	// ErrPayloadTooLarge says that a message is larger than MaxPayload.
	ErrPayloadTooLarge = errors.New("message payload is too large for the broker")

	// ErrClosed says that nothing is handed off now: the broker is away, or what is pending is being published again
	// after its return. What is written meanwhile waits for the sweep.
	ErrClosed = errors.New("the relay is closed: the broker is away, or a full sweep is under way")

	// errSessionEnded says that the connection was interrupted.
	errSessionEnded = errors.New("the connection to the broker was interrupted")
)
