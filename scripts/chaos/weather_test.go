package chaos_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
)

const (
	// A fault comes this often, and meets so many calls at most. With some ten calls to an order, and ten orders a second, one call in
	// fifteen goes wrong.
	faultEvery = 150 * time.Millisecond
	faultTimes = 2
	// maxHold is above the services' own time-out of a call, so that some calls take effect when nobody waits for them any more.
	maxHold  = 8 * time.Second
	maxDelay = 1500 * time.Millisecond
)

// blow is a kind of fault.
type blow struct {
	name string
	make func(rng *rand.Rand) control.Fault
	only string // the one side that can have it; empty for both
}

// meets tells whether a side can have a kind of fault.
func (b blow) meets(where string) bool { return b.only == "" || b.only == where }

// blows are the kinds, in the sequence in which they are tried again and again.
func blows() []blow {
	answer := func(status int, contentType, body string) func(*rand.Rand) control.Fault {
		return func(*rand.Rand) control.Fault {
			return control.Fault{Action: control.AnswerWith, Status: status, ContentType: contentType, Body: control.Body(body)}
		}
	}
	delay := func(effect string) func(*rand.Rand) control.Fault {
		return func(rng *rand.Rand) control.Fault {
			return control.Fault{Action: control.Delay, DelayMS: 50 + rng.IntN(int(maxDelay/time.Millisecond)), Effect: effect}
		}
	}
	status := func(action string, statuses ...int) func(*rand.Rand) control.Fault {
		return func(rng *rand.Rand) control.Fault {
			return control.Fault{Action: action, Status: statuses[rng.IntN(len(statuses))]}
		}
	}
	return []blow{
		{name: "late before the effect", make: delay(control.EffectAfter)},
		{name: "late after the effect", make: delay(control.EffectBefore)},
		{name: "held before the effect", make: func(*rand.Rand) control.Fault { return control.Fault{Action: control.Hold, Times: 1} }},
		{name: "held after the effect", make: func(*rand.Rand) control.Fault {
			return control.Fault{Action: control.Hold, Times: 1, Effect: control.EffectBefore}
		}},
		{name: "cut after the effect", make: func(*rand.Rand) control.Fault { return control.Fault{Action: control.DropAfter} }},
		{name: "failed before the effect", make: status(control.FailBefore, 500, 502, 503, 429)},
		{name: "failed after the effect, and stored", make: status(control.FailAfter, 500)},
		{name: "a page of a proxy", make: answer(200, "text/html", "<html><body>back soon</body></html>")},
		{name: "an empty answer", make: answer(200, "application/json", "")},
		{name: "a status that nobody planned for", make: answer(418, "application/json", `{"error":{"code":"teapot"}}`)},
		{name: "JSON of something else", make: answer(200, "application/json", `{"object":"list","data":[]}`)},
		{name: "key not kept", only: "provider", make: func(*rand.Rand) control.Fault { return control.Fault{Action: control.NoDedup} }},
		// After the capture, so that the money has to be given back.
		{name: "says that the parcel is lost", only: "carrier", make: func(*rand.Rand) control.Fault {
			return control.Fault{
				Operation: "shipments.dispatch", Action: control.AnswerWith, Status: 409, Body: `{"error":{"code":"lost","message":"it is gone"}}`,
			}
		}},
	}
}

// weather injects faults at both simulators.
type weather struct {
	s    *system.System
	r    *report
	done sync.WaitGroup

	mu    sync.Mutex // guards kinds
	kinds map[string]string
}

func startWeather(ctx context.Context, s *system.System, rng *rand.Rand, r *report) *weather {
	w := &weather{s: s, r: r, kinds: make(map[string]string)}
	w.done.Go(func() { w.blow(ctx, rng) })
	return w
}

// blow adds rule after rule. A rule is in force until it was met.
func (w *weather) blow(ctx context.Context, rng *rand.Rand) {
	tick := time.NewTicker(faultEvery)
	defer tick.Stop()
	kinds := blows()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		kind := kinds[i/2%len(kinds)] // i/2, since the two sides take turns
		at, where := w.s.Provider, "provider"
		if i%2 == 1 {
			at, where = w.s.Carrier, "carrier"
		}
		if !kind.meets(where) {
			continue
		}
		f := kind.make(rng)
		f.Operation = cmp.Or(f.Operation, control.AnyOperation)
		if f.Times == 0 {
			f.Times = 1 + rng.IntN(faultTimes)
		}
		id, err := at.AddFault(ctx, f)
		if err != nil {
			continue // the run is over, or the machine is out of breath
		}
		w.name(where, id, kind.name)
		if f.Action == control.Hold {
			hold := time.Duration(rng.Int64N(int64(maxHold)))
			w.done.Go(func() {
				select {
				case <-time.After(hold):
				case <-ctx.Done():
				}
				if n, err := at.Release(context.WithoutCancel(ctx), id); err == nil {
					w.r.injected(where, kind.name, n)
				}
			})
		}
		if i%len(kinds) < 2 { // each side in its turn
			_ = w.gather(ctx, where, at, false) // the next time does what this one could not
		}
	}
}

// name notes the kind of a rule, and kindOf tells it.
func (w *weather) name(where, id, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kinds[where+id] = kind
}

func (w *weather) kindOf(where, id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kinds[where+id]
}

// gather counts how often rules were met, and removes those that are used up, or all. Holds are counted when they are released.
func (w *weather) gather(ctx context.Context, where string, at *control.Client, all bool) error {
	states, err := at.Faults(ctx)
	if err != nil {
		return err
	}
	for _, f := range states {
		if f.Action == control.Hold || f.Fired < f.Times && !all {
			continue
		}
		if err := at.RemoveFault(ctx, f.ID); err != nil {
			return err
		}
		w.r.injected(where, w.kindOf(where, f.ID), f.Fired)
	}
	return nil
}

// clear ends all faults.
func (w *weather) clear(ctx context.Context, t *testing.T) {
	t.Helper()
	w.done.Wait()
	for where, at := range map[string]*control.Client{"provider": w.s.Provider, "carrier": w.s.Carrier} {
		if err := w.gather(ctx, where, at, true); err != nil {
			t.Fatal(err)
		}
	}
}
