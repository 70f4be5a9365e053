package control

import (
	"net/http"
	"sync"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
)

// DefaultCalls is how many calls a simulator keeps at least: some 40 MB.
const DefaultCalls = 200_000

// EngineConfig is what an Engine needs from its simulator. All but Calls must
// be set.
type EngineConfig struct {
	Operations []string
	Calls      int // calls kept; 0 means DefaultCalls
	Now        func() time.Time
	// Record makes the end of a call that had no effect durable.
	Record func(control.Call) error
	// ErrorBody is the body of a failure, in the simulator's own shape.
	ErrorBody func(status int, message string) []byte
}

// An Engine takes calls through the fault rules and keeps the list of them.
type Engine struct {
	config EngineConfig
	rules  rules
	calls  calls

	stopOnce sync.Once
	stopped  chan struct{}
}

// NewEngine returns an Engine without rules or calls.
func NewEngine(c EngineConfig) *Engine {
	if c.Calls <= 0 {
		c.Calls = DefaultCalls
	}
	return &Engine{
		config:  c,
		rules:   rules{operations: c.Operations},
		calls:   calls{keep: c.Calls},
		stopped: make(chan struct{}),
	}
}

// An Answer is what a call is answered with.
type Answer struct {
	Status      int
	Body        []byte
	ContentType string // default application/json
	Replayed    bool
}

// A Call is one request, read and understood, not yet carried out.
type Call struct {
	Operation, OrderID, Key string
	// Baggage tells that a header of that name came with it.
	Baggage bool

	// Claim takes the idempotency key. An answer of it (a replay, a conflict)
	// ends the call. Nil, and not called, where there is no deduplication.
	Claim func() *Answer
	// Abandon gives the key up again when the call ends without Apply. Nil
	// where Claim is.
	Abandon func()
	// Apply carries the call out. It calls settle, exactly once, with the
	// outcome, while it holds the lock that guards its state, and makes effect, key record and
	// settled call durable together. It returns an error only if that fails. dedup
	// says whether a key was claimed, which Apply then has to settle.
	Apply func(dedup bool, settle Settle) error
	// Keep is Apply for a call whose answer is stored under its key although
	// nothing is carried out. Nil where Claim is.
	Keep func(Settle) error
}

// Settle turns the outcome of a call into what is to be stored: the answer to
// keep under its key and the finished entry of the list of calls. effect says
// whether the outcome changed anything.
type Settle func(outcome Answer, effect bool) (keep Answer, call control.Call)

// Serve takes one call to its end and answers it. It returns only then, also
// when the client has gone: what was asked for happens all the same.
func (e *Engine) Serve(w http.ResponseWriter, c Call) {
	p := e.rules.match(c.Operation, c.OrderID)
	entry := &control.Call{
		At: e.config.Now().UTC(), Operation: c.Operation, IdempotencyKey: c.Key, OrderID: c.OrderID, Fault: faultName(p),
		Baggage: c.Baggage,
	}
	e.calls.add(entry)
	dedup := c.Claim != nil && c.Key != "" && !p.noDedup
	refused := p.is(control.FailBefore) || p.is(control.AnswerWith)
	keepRefusal := refused && dedup && p.rule.Stored != nil && *p.rule.Stored
	if refused && !keepRefusal {
		dedup = false // it never got as far as the key
	}
	if dedup {
		if answer := c.Claim(); answer != nil {
			e.serveWithoutEffect(w, entry, p, *answer)
			return
		}
	}
	if refused && !keepRefusal {
		e.serveWithoutEffect(w, entry, p, e.faultAnswer(p))
		return
	}
	if !e.wait(p.early) || p.holds(false) && !e.hold(p.rule) {
		if dedup {
			c.Abandon()
		}
		cut()
	}
	var sent Answer
	settle := func(outcome Answer, effect bool) (Answer, control.Call) {
		var keep Answer
		sent, keep = e.settle(p, outcome)
		return keep, e.finish(entry, p, sent, effect)
	}
	var err error
	if keepRefusal {
		err = c.Keep(settle)
	} else {
		err = c.Apply(dedup, settle)
	}
	e.answer(w, p, sent, err)
}

// serveWithoutEffect ends a call that is answered without being carried out.
func (e *Engine) serveWithoutEffect(w http.ResponseWriter, entry *control.Call, p plan, answer Answer) {
	if !e.wait(p.early) || p.holds(false) && !e.hold(p.rule) {
		cut()
	}
	if p.is(control.FailAfter) {
		answer = e.faultAnswer(p)
	}
	err := e.config.Record(e.finish(entry, p, answer, false))
	e.answer(w, p, answer, err)
}

// settle applies the plan to an outcome: what is sent, what is kept.
func (e *Engine) settle(p plan, outcome Answer) (sent, keep Answer) {
	switch {
	case p.is(control.FailAfter):
		sent, keep = e.faultAnswer(p), e.faultAnswer(p)
		if p.rule.Stored != nil && !*p.rule.Stored {
			keep = outcome
		}
		return sent, keep
	case p.is(control.FailBefore), p.is(control.AnswerWith):
		return e.faultAnswer(p), e.faultAnswer(p)
	}
	return outcome, outcome
}

func (e *Engine) finish(entry *control.Call, p plan, a Answer, effect bool) control.Call {
	return e.calls.set(entry, func(c *control.Call) {
		c.Effect, c.Replayed = effect, a.Replayed
		if c.Dropped = p.is(control.DropAfter); !c.Dropped {
			c.Status = a.Status
		}
	})
}

// answer waits what is to be waited after the effect and writes the answer.
func (e *Engine) answer(w http.ResponseWriter, p plan, a Answer, err error) {
	if err != nil {
		// The journal is broken: nothing that is not durable may be told.
		const message = "the simulator could not write its ledger"
		WriteAnswer(w, Answer{Status: http.StatusInternalServerError, Body: e.config.ErrorBody(500, message)})
		return
	}
	if !e.wait(p.late) || p.holds(true) && !e.hold(p.rule) || p.is(control.DropAfter) {
		cut()
	}
	WriteAnswer(w, a)
}

func (e *Engine) faultAnswer(p plan) Answer {
	a := Answer{Status: p.rule.Status, Body: []byte(p.rule.Body), ContentType: p.rule.ContentType}
	if len(a.Body) == 0 && p.rule.Action != control.AnswerWith {
		a.Body = e.config.ErrorBody(a.Status, "a fault rule of the simulator asked for this failure")
	}
	return a
}

// wait returns false if the simulator stopped meanwhile.
func (e *Engine) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.stopped:
		return false
	}
}

// hold returns false if the simulator stopped meanwhile.
func (e *Engine) hold(x *rule) bool {
	e.rules.hold(x, 1)
	defer e.rules.hold(x, -1)
	select {
	case <-x.gate:
		return true
	case <-e.stopped:
		return false
	}
}

// Stop ends all waits: calls that wait before their effect end without it.
func (e *Engine) Stop() { e.stopOnce.Do(func() { close(e.stopped) }) }

// Calls returns copies of one order's calls, or with "" of all, oldest first,
// and how many older ones are no longer known.
func (e *Engine) Calls(orderID string) ([]control.Call, int) { return e.calls.of(orderID) }

// Restore adds a call that was read back from the ledger.
func (e *Engine) Restore(c control.Call) { e.calls.add(&c) }

// Reset forgets all calls and rules and lets held calls go on.
func (e *Engine) Reset() {
	e.rules.remove(func(*rule) bool { return true })
	e.calls.reset()
}

// cut ends the connection without an answer; net/http knows this panic value
// and closes the connection quietly.
func cut() { panic(http.ErrAbortHandler) }

func faultName(p plan) string {
	switch {
	case p.rule != nil:
		return p.rule.Action
	case p.noDedup:
		return control.NoDedup
	case p.early > 0 || p.late > 0:
		return control.Delay
	}
	return ""
}

// WriteAnswer writes a to w. A failed write means that the client has gone.
func WriteAnswer(w http.ResponseWriter, a Answer) {
	contentType := a.ContentType
	if contentType == "" {
		contentType = "application/json"
	}
	w.Header().Set("Content-Type", contentType)
	if a.Replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}
