package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/throughline/throughline/pkg/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is what components write down, in the order it happened.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) check(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.lines, want) {
		t.Errorf("got %q, want %q", j.lines, want)
	}
}

// component takes startup to get ready and drain to finish its work in hand.
func component(j *journal, name string, startup, drain time.Duration) lifecycle.Func {
	return func(stop, work context.Context, ready func()) error {
		j.add("%s starts", name)
		time.Sleep(startup)
		j.add("%s ready", name)
		ready()
		<-stop.Done()
		j.add("%s stops", name)
		select {
		case <-time.After(drain):
			j.add("%s drained", name)
			return nil
		case <-work.Done():
			j.add("%s cut off", name)
			return work.Err()
		}
	}
}

// launch runs g with contexts of its own.
func launch(t *testing.T, g *lifecycle.Group) (stop, cut context.CancelFunc, result <-chan error) {
	t.Helper()
	stopCtx, stop := context.WithCancel(t.Context())
	workCtx, cut := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	t.Cleanup(cut)
	ch := make(chan error, 1)
	go func() { ch <- g.Run(stopCtx, workCtx, nil) }()
	return stop, cut, ch
}

func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := lifecycle.New(nil, time.Minute)
		g.AddFunc("a", component(&j, "a", time.Second, time.Second))
		g.AddFunc("b", component(&j, "b", time.Second, time.Second))
		stop, _, result := launch(t, g)

		synctest.Wait()
		if err := g.Check(t.Context()); !errors.Is(err, lifecycle.ErrStarting) || !strings.HasPrefix(err.Error(), "a:") {
			t.Errorf("while a starts: got %v, want a: %v", err, lifecycle.ErrStarting)
		}
		time.Sleep(1500 * time.Millisecond)
		if err := g.Check(t.Context()); !errors.Is(err, lifecycle.ErrStarting) || !strings.HasPrefix(err.Error(), "b:") {
			t.Errorf("while b starts: got %v, want b: %v", err, lifecycle.ErrStarting)
		}
		time.Sleep(time.Second)
		if err := g.Check(t.Context()); err != nil {
			t.Errorf("running: got %v, want nil", err)
		}
		stop()
		synctest.Wait()
		if err := g.Check(t.Context()); !errors.Is(err, lifecycle.ErrStopping) {
			t.Errorf("stopping: got %v, want %v", err, lifecycle.ErrStopping)
		}
		if err := <-result; err != nil {
			t.Errorf("got %v, want nil", err)
		}
		j.check(t, "a starts", "a ready", "b starts", "b ready", "b stops", "b drained", "a stops", "a drained")
	})
}

func TestGraceEscalates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := lifecycle.New(nil, 10*time.Second)
		g.AddFunc("a", component(&j, "a", 0, time.Hour))
		g.AddFunc("b", component(&j, "b", 0, 4*time.Second))
		stop, _, result := launch(t, g)
		synctest.Wait()
		began := time.Now()
		stop()
		// Cut off because it was told to: not an error.
		if err := <-result; err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if got := time.Since(began); got != 10*time.Second {
			t.Errorf("got %v, want the grace period of all together, 10s", got)
		}
		j.check(t, "a starts", "a ready", "b starts", "b ready", "b stops", "b drained", "a stops", "a cut off")
	})
}

func TestWorkIsCutAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := lifecycle.New(nil, time.Hour)
		g.AddFunc("a", component(&j, "a", 0, 30*time.Minute))
		stop, cut, result := launch(t, g)
		synctest.Wait()
		began := time.Now()
		stop()
		synctest.Wait()
		cut()
		if err := <-result; err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if got := time.Since(began); got != 0 {
			t.Errorf("got %v, want at once", got)
		}
		j.check(t, "a starts", "a ready", "a stops", "a cut off")
	})
}

func TestOneEndsTheOthers(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tc := range []struct {
		name  string
		ready bool
		err   error
		want  error
		lines []string
	}{
		{"error while running", true, broken, broken, []string{"a starts", "a ready", "c starts", "c ready", "c stops", "c drained", "a stops", "a drained"}},
		{"early end while running", true, nil, lifecycle.ErrEnded, []string{"a starts", "a ready", "c starts", "c ready", "c stops", "c drained", "a stops", "a drained"}},
		{"error at start-up", false, broken, broken, []string{"a starts", "a ready", "a stops", "a drained"}},
		{"early end at start-up", false, nil, lifecycle.ErrEnded, []string{"a starts", "a ready", "a stops", "a drained"}},
		{"cancelled without being told", true, context.Canceled, context.Canceled, []string{"a starts", "a ready", "c starts", "c ready", "c stops", "c drained", "a stops", "a drained"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var j journal
				g := lifecycle.New(nil, time.Minute)
				g.AddFunc("a", component(&j, "a", 0, 0))
				g.AddFunc("b", func(stop, _ context.Context, ready func()) error {
					if tc.ready {
						ready()
						ready() // does nothing
						time.Sleep(time.Second)
					}
					return tc.err
				})
				g.AddFunc("c", component(&j, "c", 0, 0))
				_, _, result := launch(t, g)
				err := <-result
				if !errors.Is(err, tc.want) || !strings.HasPrefix(fmt.Sprint(err), "b: ") {
					t.Errorf("got %v, want b: %v", err, tc.want)
				}
				j.check(t, tc.lines...)
			})
		})
	}
}

func TestAllErrorsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := errors.New("first"), errors.New("second")
		g := lifecycle.New(nil, time.Minute)
		g.AddFunc("a", func(stop, _ context.Context, ready func()) error {
			ready()
			<-stop.Done()
			return second
		})
		g.AddFunc("b", func(_, _ context.Context, ready func()) error {
			ready()
			return first
		})
		_, _, result := launch(t, g)
		if err := <-result; !errors.Is(err, first) || !errors.Is(err, second) {
			t.Errorf("got %v, want both %v and %v", err, first, second)
		}
	})
}

func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		g := lifecycle.New(nil, time.Minute)
		g.AddFunc("a", component(&j, "a", 0, 0))
		g.AddFunc("b", func(stop, _ context.Context, _ func()) error {
			j.add("b starts")
			<-stop.Done() // never ready: what it depends on is away
			j.add("b stops")
			return stop.Err()
		})
		g.AddFunc("c", component(&j, "c", 0, 0))
		stop, _, result := launch(t, g)
		synctest.Wait()
		stop()
		if err := <-result; err != nil {
			t.Errorf("got %v, want nil", err)
		}
		j.check(t, "a starts", "a ready", "b starts", "b stops", "a stops", "a drained")
	})
}

func TestStuckComponentIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		free := make(chan struct{})
		defer close(free)
		g := lifecycle.New(nil, time.Second)
		g.AddFunc("a", component(&j, "a", 0, time.Second))
		g.AddFunc("deaf", func(_, _ context.Context, ready func()) error {
			ready()
			<-free
			return nil
		})
		stop, _, result := launch(t, g)
		synctest.Wait()
		began := time.Now()
		stop()
		err := <-result
		if !errors.Is(err, lifecycle.ErrStuck) || !strings.HasPrefix(fmt.Sprint(err), "deaf: ") {
			t.Errorf("got %v, want deaf: %v", err, lifecycle.ErrStuck)
		}
		if got := time.Since(began); got != 6*time.Second {
			t.Errorf("got %v, want the grace of 1s and 5s more", got)
		}
		j.check(t, "a starts", "a ready", "a stops", "a cut off")
	})
}

func TestGroupsNest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		inner := lifecycle.New(nil, time.Minute)
		inner.AddFunc("b", component(&j, "b", time.Second, 0))
		inner.AddFunc("c", component(&j, "c", time.Second, 0))
		g := lifecycle.New(nil, time.Minute)
		g.AddFunc("a", component(&j, "a", 0, 0))
		g.Add("inner", inner)
		g.AddFunc("d", component(&j, "d", 0, 0))
		stop, _, result := launch(t, g)
		time.Sleep(3 * time.Second)
		stop()
		if err := <-result; err != nil {
			t.Errorf("got %v, want nil", err)
		}
		j.check(t, "a starts", "a ready", "b starts", "b ready", "c starts", "c ready", "d starts", "d ready",
			"d stops", "d drained", "c stops", "c drained", "b stops", "b drained", "a stops", "a drained")
	})
}

func TestValuesReachComponents(t *testing.T) {
	t.Parallel()
	type key struct{}
	stop, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	defer cancel()
	g := lifecycle.New(nil, time.Minute)
	g.AddFunc("a", func(stop, work context.Context, ready func()) error {
		if stop.Value(key{}) != "v" || work.Value(key{}) != "v" {
			t.Errorf("got %v and %v, want v", stop.Value(key{}), work.Value(key{}))
		}
		ready()
		<-stop.Done()
		return nil
	})
	if err := g.Run(stop, context.WithoutCancel(stop), cancel); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func ExampleGroup() {
	stop, cancel := context.WithCancel(context.Background())
	work := context.Background()

	g := lifecycle.New(nil, 10*time.Second)
	for _, name := range []string{"relay", "server"} {
		g.AddFunc(name, func(stop, work context.Context, ready func()) error {
			fmt.Println(name, "started")
			ready()
			<-stop.Done()
			fmt.Println(name, "stopped")
			return nil
		})
	}
	err := g.Run(stop, work, func() {
		fmt.Println("ready")
		cancel()
	})
	fmt.Fprintln(os.Stdout, "error:", err)
	// Output:
	// relay started
	// server started
	// ready
	// server stopped
	// relay stopped
	// error: <nil>
}
