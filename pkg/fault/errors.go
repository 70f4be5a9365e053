package fault

import "errors"

var (
	// ErrInjected is what Err returns at a point that is armed with err.
	ErrInjected = errors.New("injected fault")
	// ErrNotCompiled: the environment asks for faults and this binary has none.
	ErrNotCompiled = errors.New("built without the tag faultpoints")
	// ErrSpec: the value of THROUGHLINE_FAULT_POINTS cannot be read.
	ErrSpec = errors.New("malformed fault points")
)
