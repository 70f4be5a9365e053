package participant

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestGoroutinesAreKept looks for the goroutine of a call that has ended: the next call goes to it, and it ends with the runner.
func TestGoroutinesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		parent, end := context.WithCancel(t.Context())
		called := 0
		call := func(context.Context) { called++ }
		p.Go(parent, time.Now().Add(time.Second), call)
		synctest.Wait()
		select {
		case p.next <- func() { called++ }:
		default:
			t.Error("after a call: nobody waits for the next")
		}
		synctest.Wait()
		p.Go(parent, time.Now().Add(time.Second), call)
		synctest.Wait()
		if called != 3 {
			t.Errorf("got %d calls, want 3", called)
		}
		end()
		synctest.Wait()
		select {
		case p.next <- func() {}:
			t.Error("after the end of the runner: somebody waits for a call")
		default:
		}
	})
}

// TestCallsEndAtTheDeadline covers a goroutine's first call and its next.
func TestCallsEndAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		parent, end := context.WithCancel(t.Context())
		defer end()
		for range 2 {
			began, ended := time.Now(), make(chan time.Duration, 1)
			p.Go(parent, began.Add(3*time.Second), func(ctx context.Context) {
				<-ctx.Done()
				ended <- time.Since(began)
			})
			if got := <-ended; got != 3*time.Second {
				t.Errorf("got a call that ended after %s, want 3s", got)
			}
			synctest.Wait() // its goroutine waits for the next call
		}
	})
}
