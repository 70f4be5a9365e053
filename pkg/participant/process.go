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

// realProcess is the process that this code runs in.
type realProcess struct{}

func (realProcess) Now() time.Time { return time.Now() }

func (realProcess) Go(parent context.Context, deadline time.Time, call func(context.Context)) {
	go func() {
		ctx, cancel := context.WithDeadline(parent, deadline)
		defer cancel()
		call(ctx)
	}()
}

func (realProcess) Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
