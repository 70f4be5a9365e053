package control

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
)

// maxDelay bounds delay_ms: a longer wait is what hold is for.
const maxDelay = 10 * time.Minute

// rules is the set of fault rules in the order they were added.
type rules struct {
	operations []string // those of this simulator

	mu    sync.Mutex
	next  int
	rules []*rule
}

// rule is one fault. Its counters are guarded by rules.mu.
type rule struct {
	control.Fault
	matched, fired, held int
	gate                 chan struct{} // closed when held calls may go on
}

// plan is what the rules say about one call.
type plan struct {
	rule    *rule // the rule whose action is taken, or nil
	early   time.Duration
	late    time.Duration // delay after the effect
	noDedup bool
}

func (p plan) is(action string) bool { return p.rule != nil && p.rule.Action == action }

// holds reports whether the call is held on this side of its effect.
func (p plan) holds(afterEffect bool) bool {
	return p.is(control.Hold) && (p.rule.Effect == control.EffectBefore) == afterEffect
}

func (r *rules) add(f control.Fault) (string, error) {
	if err := r.check(&f); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	f.ID = "flt_" + strconv.Itoa(r.next)
	r.rules = append(r.rules, &rule{Fault: f, gate: make(chan struct{})})
	return f.ID, nil
}

// check refuses what makes no sense and fills in the defaults.
func (r *rules) check(f *control.Fault) error {
	if f.ID != "" {
		return errors.New("id is given by the simulator")
	}
	if f.Operation != control.AnyOperation && !slices.Contains(r.operations, f.Operation) {
		return fmt.Errorf("operation %q is none of %q", f.Operation, append(r.operations, control.AnyOperation))
	}
	if f.Nth < 0 || f.Times < 0 {
		return errors.New("nth and times must not be negative")
	}
	if d := time.Duration(f.DelayMS) * time.Millisecond; d < 0 || d > maxDelay {
		return fmt.Errorf("delay_ms must be between 0 and %d", maxDelay.Milliseconds())
	}
	if f.Status != 0 && (f.Status < 200 || f.Status > 599) {
		return errors.New("status must be between 200 and 599")
	}
	if err := checkAction(f); err != nil {
		return err
	}
	switch f.Effect {
	case "", control.EffectAfter:
	case control.EffectBefore:
		if f.Action != control.Hold && f.Action != control.Delay {
			return errors.New("effect belongs to hold and delay")
		}
	default:
		return fmt.Errorf("effect %q is neither %q nor %q", f.Effect, control.EffectBefore, control.EffectAfter)
	}
	return nil
}

func checkAction(f *control.Fault) error {
	status := 0
	switch f.Action {
	case control.Delay:
		if f.DelayMS == 0 {
			return errors.New("delay needs delay_ms")
		}
	case control.Hold, control.DropAfter, control.NoDedup:
	case control.FailBefore, control.FailAfter:
		status = http.StatusInternalServerError
	case control.AnswerWith:
		status = http.StatusOK
	default:
		return fmt.Errorf("action %q is unknown", f.Action)
	}
	if status == 0 && (f.Status != 0 || f.Body != "" || f.ContentType != "" || f.Stored != nil) {
		return fmt.Errorf("action %q takes no status, body, content_type or stored", f.Action)
	}
	if f.Status == 0 {
		f.Status = status
	}
	return nil
}

// match counts the call with every rule that fits and says what is to happen.
func (r *rules) match(operation, orderID string) plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	var p plan
	for _, x := range r.rules {
		if x.Operation != control.AnyOperation && x.Operation != operation || x.OrderID != "" && x.OrderID != orderID {
			continue
		}
		x.matched++
		if x.matched < x.Nth || x.Times > 0 && x.fired >= x.Times {
			continue
		}
		additive := x.Action == control.NoDedup || x.Action == control.Delay
		if !additive && p.rule != nil {
			continue // an older rule has this call; ours waits for its own
		}
		x.fired++
		delay := time.Duration(x.DelayMS) * time.Millisecond
		if x.Action == control.Delay && x.Effect == control.EffectBefore {
			p.late += delay
		} else {
			p.early += delay
		}
		p.noDedup = p.noDedup || x.Action == control.NoDedup
		if !additive {
			p.rule = x
		}
	}
	return p
}

// hold counts a call in and out of its rule.
func (r *rules) hold(x *rule, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.held += by
}

// release opens the hold rules that fit id ("" for all) and ends them.
func (r *rules) release(id string) int {
	return r.remove(func(x *rule) bool { return x.Action == control.Hold && (id == "" || x.ID == id) })
}

// remove ends the rules that fit, lets their held calls go, and returns how
// many there were.
func (r *rules) remove(fits func(*rule) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := 0
	r.rules = slices.DeleteFunc(r.rules, func(x *rule) bool {
		if !fits(x) {
			return false
		}
		held += x.held
		close(x.gate)
		return true
	})
	return held
}

func (r *rules) has(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.rules, func(x *rule) bool { return x.ID == id })
}

func (r *rules) list() []control.FaultState {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := make([]control.FaultState, len(r.rules))
	for i, x := range r.rules {
		states[i] = control.FaultState{Fault: x.Fault, Matched: x.matched, Fired: x.fired, Held: x.held}
	}
	return states
}
