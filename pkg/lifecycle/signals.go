package lifecycle

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Signals returns the two contexts of a process. The first SIGINT or SIGTERM
// ends stop, the second ends work too. The end of parent ends stop only: work
// keeps the values of parent, not its end. release gives the signals back to
// their defaults and ends both contexts; call it when Run has returned.
func Signals(parent context.Context) (stop, work context.Context, release func()) {
	ch := make(chan os.Signal, 2) // both signals may come before the goroutine runs
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	stop, work, end := escalate(parent, ch)
	return stop, work, func() {
		signal.Stop(ch)
		end()
	}
}

// escalate ends stop at the first value from ch and work at the second. Its
// release returns when its goroutine has ended.
func escalate(parent context.Context, ch <-chan os.Signal) (stop, work context.Context, release func()) {
	stop, cancelStop := context.WithCancel(parent)
	work, cancelWork := context.WithCancel(context.WithoutCancel(parent))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, cancel := range []context.CancelFunc{cancelStop, cancelWork} {
			select {
			case <-ch:
				cancel()
			case <-work.Done():
				return
			}
		}
	}()
	return stop, work, func() {
		cancelStop()
		cancelWork()
		<-ended
	}
}
