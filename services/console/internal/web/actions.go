package web

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
)

const (
	// maxReason is what services keep of a reason, in bytes.
	maxReason = 1000
	// mostActions bounds how many outcomes are remembered.
	mostActions = 1000
)

// outcome is what came of an action, for the page that follows it.
type outcome struct {
	// Tone is that of [tone].
	Tone, Title, Detail string
}

// actions makes each confirmation count once: the form carries a key, and what came of the first request with it is what all others are
// told. It is of this process only; behind it the services do nothing twice either.
type actions struct {
	mu   sync.Mutex
	done map[string]*action
	keys []string // the oldest first
}

type action struct {
	ended   chan struct{} // closed when outcome and err are there
	outcome outcome
	err     error
}

func newActions() *actions { return &actions{done: make(map[string]*action)} }

// once does something under a key, or waits for what comes of it. What has failed may be tried again.
func (a *actions) once(ctx context.Context, key string, v visit, do func() (outcome, error)) (outcome, error) {
	a.mu.Lock()
	key = v.operator + "/" + key // nobody learns what became of somebody else's
	if earlier := a.done[key]; earlier != nil {
		a.mu.Unlock()
		select {
		case <-earlier.ended:
			return earlier.outcome, earlier.err
		case <-ctx.Done():
			return outcome{}, context.Cause(ctx)
		}
	}
	this := &action{ended: make(chan struct{})}
	a.done[key] = this
	a.keys = append(a.keys, key)
	if len(a.keys) > mostActions {
		delete(a.done, a.keys[0])
		a.keys = a.keys[1:]
	}
	a.mu.Unlock()

	defer close(this.ended)
	this.outcome, this.err = do()
	if this.err != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.done, key)
		a.keys = slices.DeleteFunc(a.keys, func(k string) bool { return k == key })
	}
	return this.outcome, this.err
}

// outcome gives what came of an action of the visitor; nil if that is not known.
func (a *actions) outcome(key string, v visit) *outcome {
	a.mu.Lock()
	done := a.done[v.operator+"/"+key]
	a.mu.Unlock()
	if key == "" || done == nil {
		return nil
	}
	select {
	case <-done.ended:
		return &done.outcome
	default:
		return nil
	}
}

// confirmation is a form that is filled in before something is done.
type confirmation struct {
	// What is to be done, to what, and with which effects.
	What, Subject string
	Effects       []string
	// Verb is on the button; Danger marks what cannot be taken back.
	Verb   string
	Danger bool
	// Key names the action, Step what it is about, where there is a choice.
	Key, Step string
	Reason    string
	// Hint is an example of a reason.
	Hint    string
	Problem string
	Back    string
}

// readConfirmation takes a form's answer; Problem says what is missing in it.
func readConfirmation(form map[string][]string) confirmation {
	get := func(name string) string {
		if values := form[name]; len(values) > 0 {
			return strings.TrimSpace(values[0])
		}
		return ""
	}
	c := confirmation{Key: get("key"), Step: get("step"), Reason: get("reason")}
	switch {
	case uuid.Validate(c.Key) != nil:
		c.Key = uuid.NewString()
		c.Problem = "The form was not one of this console. Look at it again, and confirm."
	case c.Reason == "":
		c.Problem = "Say why: the reason is kept, for whoever looks at this later."
	case len(c.Reason) > maxReason:
		c.Problem = "The reason is too long: 1000 characters at most."
	}
	return c
}
