package messaging

import "errors"

var (
	// ErrMalformed says that a message lacks what every message of ours carries. Delivering it again will not help.
	ErrMalformed = errors.New("malformed message")

	// ErrNeverAccepted says that the broker will not take this message however often it is sent: it is larger than
	// the broker's maximum payload, or its subject is no valid subject.
	ErrNeverAccepted = errors.New("message can never be accepted by the broker")

	// ErrUnavailable says that the broker did not answer, or is not connected. The message may have been stored.
	ErrUnavailable = errors.New("broker unavailable")

	// ErrForgotten says that a stream may no longer have what it acknowledged in this session: end it with [Conn.Renew].
	ErrForgotten = errors.New("stream may have forgotten what it acknowledged")
)
