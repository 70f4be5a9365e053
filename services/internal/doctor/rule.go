package doctor

import (
	"errors"
	"fmt"
	"time"
)

// ErrDisagree says that two settings contradict each other.
var ErrDisagree = errors.New("two settings disagree")

// Rule says that the time called Shorter must not be longer than the one called Longer.
type Rule struct {
	// Name says what for.
	Name         string
	Shorter      string
	ShorterValue time.Duration
	Longer       string
	LongerValue  time.Duration
}

// Broken tells whether the rule does not hold.
func (r Rule) Broken() bool { return r.ShorterValue > r.LongerValue }

// Check gives an error that wraps [ErrDisagree] and names both settings of each rule that is broken.
func Check(rules []Rule) error {
	var errs []error
	for _, r := range rules {
		if r.Broken() {
			errs = append(errs, fmt.Errorf("%w: %s: %s is %s, which is longer than %s, %s",
				ErrDisagree, r.Name, r.Shorter, r.ShorterValue, r.Longer, r.LongerValue))
		}
	}
	return errors.Join(errs...)
}
