package placeorder

import "errors"

var (
	// ErrExists says that the order is there already, of this request or of another one with its key: read it.
	ErrExists = errors.New("order exists")

	// ErrInProgress says that another transaction has been at work on the order for longer than one waits for a lock.
	ErrInProgress = errors.New("order is being placed by another request")

	// ErrStopped says that the placer takes no more orders.
	ErrStopped = errors.New("placer has stopped")
)
