//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
)

// Example calls fn with a database as [New] makes it, for runnable examples, which have no [testing.TB]. What fails
// inside is printed, so that the example's output does not match.
func Example(fn func(tb testing.TB, pool *pgxpool.Pool), migrations ...postgres.Migrations) {
	tb := &exampleTB{}
	done := make(chan struct{})
	go func() { // of its own, since Fatal ends the goroutine
		defer close(done)
		defer tb.cleanUp()
		fn(tb, New(tb, migrations...))
	}()
	<-done
}

// exampleTB is as much of a testing.TB as this package and its callers need in an example.
type exampleTB struct {
	testing.TB // nil: what is not below is not for examples

	cleanups []func()
	failed   bool
}

func (e *exampleTB) Helper()           {}
func (e *exampleTB) Name() string      { return "example" }
func (e *exampleTB) Cleanup(fn func()) { e.cleanups = append(e.cleanups, fn) }
func (e *exampleTB) Failed() bool      { return e.failed }

func (e *exampleTB) Log(args ...any)                 { fmt.Fprintln(os.Stderr, args...) }
func (e *exampleTB) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (e *exampleTB) Error(args ...any) {
	e.failed = true
	fmt.Println(args...)
}

func (e *exampleTB) Errorf(format string, args ...any) { e.Error(fmt.Sprintf(format, args...)) }

func (e *exampleTB) Fatal(args ...any) {
	e.Error(args...)
	runtime.Goexit()
}

func (e *exampleTB) Fatalf(format string, args ...any) { e.Fatal(fmt.Sprintf(format, args...)) }

func (e *exampleTB) cleanUp() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}
