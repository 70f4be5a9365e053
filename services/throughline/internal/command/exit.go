package command

import "errors"

// The codes with which the program ends. They are part of its interface, for scripts.
const (
	ExitFailed = 1
	// ExitNotFound: there is nothing of that name.
	ExitNotFound = 3
	// ExitIncomplete: what was printed is true, and not all: a service did not answer.
	ExitIncomplete = 4
	// ExitRefused: the answer is a definite no: a request that is refused whenever it comes, an order that was not sold, a cancellation
	// that came too late.
	ExitRefused = 5
)

// coded is an error with the code that the program ends with.
type coded struct {
	error

	code int
}

func (c coded) Unwrap() error { return c.error }

// ExitCode gives the code to end with for what Run returned: 0 for nil.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if c, ok := errors.AsType[coded](err); ok {
		return c.code
	}
	return ExitFailed
}
