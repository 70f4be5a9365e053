package participant

import (
	"context"
	"time"
)

// Process is what a [Runner] needs of the process that it lives in. In a simulation both have a clock of their own.
type Process interface {
	// Now reads a clock that never goes back.
	Now() time.Time
	// Go makes a call beside the others. Its context ends with parent, and at the deadline by the clock.
	Go(parent context.Context, deadline time.Time, call func(context.Context))
	// Pause waits, at most until ctx ends.
	Pause(ctx context.Context, d time.Duration)
}

// realProcess is the process that this code runs in. Its zero value works, too, without keeping goroutines.
type realProcess struct {
	// next hands a call to a goroutine that has made one. A call goes deep into drivers and clients, and a new goroutine grows its stack
	// several times on the way; one that has done so keeps it. There are as many as calls were under way at one time.
	next chan func()
}

func newProcess() *realProcess { return &realProcess{next: make(chan func())} }

func (*realProcess) Now() time.Time { return time.Now() }

func (p *realProcess) Go(parent context.Context, deadline time.Time, call func(context.Context)) {
	bounded := func() {
		ctx, cancel := context.WithDeadline(parent, deadline)
		defer cancel()
		call(ctx)
	}
	select {
	case p.next <- bounded:
	default:
		go p.work(parent, bounded)
	}
}

// work makes calls until ctx ends, beginning with one.
func (p *realProcess) work(ctx context.Context, call func()) {
	for {
		call()
		if p.next == nil {
			return
		}
		select {
		case call = <-p.next:
		case <-ctx.Done():
			return
		}
	}
}

func (*realProcess) Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
