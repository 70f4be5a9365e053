package config

import (
	"errors"
	"fmt"
)

// ErrUnknown: a set variable with our prefix belongs to no known setting.
var ErrUnknown = errors.New("unknown setting")

// ErrValue: a variable's value cannot be read as its setting's type.
var ErrValue = errors.New("malformed setting")

// UnknownError names one unknown variable. It is [ErrUnknown].
type UnknownError struct {
	Name    string
	Nearest string // "" if nothing is known
}

// Error names the variable and the nearest known one.
func (e *UnknownError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("%v %s", ErrUnknown, e.Name)
	}
	return fmt.Sprintf("%v %s, did you mean %s?", ErrUnknown, e.Name, e.Nearest)
}

// Is makes an UnknownError ErrUnknown.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }
