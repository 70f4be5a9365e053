package saga

import "errors"

var (
	// ErrTooLate says that a saga can no longer be cancelled: the command of its pivot has been committed, or it has ended.
	ErrTooLate = errors.New("too late to cancel the saga")

	// ErrNothingToResolve says that a saga does not need a person, or not for the step or in the way that was named.
	ErrNothingToResolve = errors.New("nothing to resolve in the saga")

	// ErrNotFound says that there is no such saga.
	ErrNotFound = errors.New("no such saga")

	// ErrUnknownDefinition says that this binary lacks the definition of a saga that is stored.
	ErrUnknownDefinition = errors.New("definition of the saga is not known here")
)
