//go:build faultpoints

package fault

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
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
)

// rule is what one point does. It is written before armed points to it.
type rule struct {
	action action
	nth    int64 // passage at which kill acts
	path   string
	passed atomic.Int64
}

// plan is what a process is told.
type plan struct {
	rules map[string]*rule
	wires string // the folder of trips; empty if there are none
}

// armed is process-wide because the points are: they are reached from packages
// that know nothing of each other. Check sets it, Point and At read it.
var armed atomic.Pointer[plan]

// Point marks a passage: a test may kill the process or hold it here.
func Point(name string) { At(name, uuid.Nil, "") }

// At marks a passage about one order, and about what of it.
func At(name string, order uuid.UUID, what string) {
	p := armed.Load()
	if p == nil {
		return
	}
	if p.wires != "" {
		trip(Wire(p.wires, name, order, what))
	}
	r, ok := p.rules[name]
	if !ok {
		return
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
				return
			}
			time.Sleep(holdPoll)
		}
	}
}

// tripping is held by who looks for a wire, and for good by who has found one.
var tripping sync.Mutex

// trip ends the process if there is a wire, and takes it away. A wire that another goroutine took while the process is dying would stand
// for a death that there was not, so the others wait.
func trip(wire string) {
	tripping.Lock()
	if os.Remove(wire) == nil {
		die()
	}
	tripping.Unlock()
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
	p := &plan{rules: map[string]*rule{}}
	for _, item := range strings.Split(value(environ), ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		name, spec, _ := strings.Cut(item, "=")
		if dir, ok := strings.CutPrefix(spec, "trip:"); ok && name == "*" && dir != "" {
			p.wires = dir
			continue
		}
		if !slices.Contains(Points(), name) {
			return fmt.Errorf("%s: no point %q, declared are %v: %w", EnvVar, name, Points(), ErrSpec)
		}
		if _, twice := p.rules[name]; twice {
			return fmt.Errorf("%s: point %q occurs twice: %w", EnvVar, name, ErrSpec)
		}
		r, err := parseRule(spec)
		if err != nil {
			return fmt.Errorf("%s: point %q: %w", EnvVar, name, err)
		}
		p.rules[name] = r
	}
	armed.Store(p)
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
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("%q is not a passage number from 1: %w", arg, ErrSpec)
	}
	if verb != "kill" {
		return nil, fmt.Errorf("%q is neither kill nor hold: %w", verb, ErrSpec)
	}
	return &rule{action: kill, nth: n}, nil
}
