package lifecycle

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestEscalate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ch := make(chan os.Signal)
		stop, work, release := escalate(t.Context(), ch)
		state := func(when string, wantStop, wantWork bool) {
			t.Helper()
			synctest.Wait()
			if gotStop, gotWork := stop.Err() != nil, work.Err() != nil; gotStop != wantStop || gotWork != wantWork {
				t.Errorf("%s: got stop done %v, work done %v, want %v, %v", when, gotStop, gotWork, wantStop, wantWork)
			}
		}
		state("at first", false, false)
		ch <- syscall.SIGTERM
		state("first signal", true, false)
		ch <- syscall.SIGTERM
		state("second signal", true, true)
		release()
	})
}

func TestEscalateRelease(t *testing.T) {
	t.Parallel()
	stop, work, release := escalate(t.Context(), make(chan os.Signal))
	release()
	release()
	if stop.Err() == nil || work.Err() == nil {
		t.Errorf("got %v, %v, want both done", stop.Err(), work.Err())
	}
}

func TestParentEndsStopOnly(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithCancel(t.Context())
	stop, work, release := escalate(parent, make(chan os.Signal))
	defer release()
	cancel()
	<-stop.Done()
	if work.Err() != nil {
		t.Errorf("got %v, want work to go on", work.Err())
	}
}

// The real signals, sent to this very process. No other test may listen for them:
// it would hear these.
func TestSignals(t *testing.T) {
	t.Parallel()
	stop, work, release := Signals(t.Context())
	defer release()
	for _, ctx := range []context.Context{stop, work} {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
	}
}
