//go:build faultpoints

package fault

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Enabled reports whether this binary was built with fault points.
const Enabled = true

// holdPoll is how often a held passage looks for its file. Tests wait for it, so
// it is short; nothing else runs on it.
const holdPoll = 5 * time.Millisecond

type action int

const (
	kill action = iota
	hold
	inject
)

// rule is what one point does. It is written before armed points to it.
type rule struct {
	action action
	nth    int64 // passage at which kill and inject act; 0 is every one
	path   string
	passed atomic.Int64
}

// armed is process-wide because the points are: they are reached from packages
// that know nothing of each other. Check sets it, Point and Err read it.
var armed atomic.Pointer[map[string]*rule]

// Point marks a passage: a test may kill the process or hold it here.
func Point(name string) { _ = pass(name) }

// Err marks a passage at which a test may also make the caller fail, with
// [ErrInjected]. Otherwise it returns nil.
func Err(name string) error { return pass(name) }

func pass(name string) error {
	rules := armed.Load()
	if rules == nil {
		return nil
	}
	r, ok := (*rules)[name]
	if !ok {
		return nil
	}
	n := r.passed.Add(1)
	switch r.action {
	case kill:
		if n == r.nth {
			die()
		}
	case hold:
		for {
			if _, err := os.Stat(r.path); err == nil {
				return nil
			}
			time.Sleep(holdPoll)
		}
	case inject:
		if r.nth == 0 || n == r.nth {
			return fmt.Errorf("%s, passage %d: %w", name, n, ErrInjected)
		}
	}
	return nil
}

// die ends the process as a crash does: no deferred function, no flush.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; this goroutine must not pass the point
}

// Check arms the points that environ (in the form of os.Environ) asks for, in
// place of those armed before. It returns [ErrSpec] for what it cannot read, and
// for a point that is not declared.
func Check(environ []string) error {
	rules := map[string]*rule{}
	for _, item := range strings.Split(value(environ), ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		name, spec, _ := strings.Cut(item, "=")
		if !slices.Contains(Points(), name) {
			return fmt.Errorf("%s: no point %q, declared are %v: %w", EnvVar, name, Points(), ErrSpec)
		}
		if _, twice := rules[name]; twice {
			return fmt.Errorf("%s: point %q occurs twice: %w", EnvVar, name, ErrSpec)
		}
		r, err := parseRule(spec)
		if err != nil {
			return fmt.Errorf("%s: point %q: %w", EnvVar, name, err)
		}
		rules[name] = r
	}
	armed.Store(&rules)
	return nil
}

func parseRule(spec string) (*rule, error) {
	verb, arg, ok := strings.Cut(spec, ":")
	if !ok || arg == "" {
		return nil, fmt.Errorf("%q is not verb:argument: %w", spec, ErrSpec)
	}
	if verb == "hold" {
		return &rule{action: hold, path: arg}, nil
	}
	if verb == "err" && arg == "*" {
		return &rule{action: inject}, nil
	}
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("%q is not a passage number from 1: %w", arg, ErrSpec)
	}
	switch verb {
	case "kill":
		return &rule{action: kill, nth: n}, nil
	case "err":
		return &rule{action: inject, nth: n}, nil
	}
	return nil, fmt.Errorf("%q is none of kill, hold, err: %w", verb, ErrSpec)
}
