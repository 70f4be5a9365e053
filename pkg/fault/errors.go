package fault

import "errors"

var (
	// ErrNotCompiled: the environment asks for faults and this binary has none.
	ErrNotCompiled = errors.New("built without the tag faultpoints")
	// ErrSpec: the value of THROUGHLINE_FAULT_POINTS cannot be read.
	ErrSpec = errors.New("malformed fault points")
)
