package e2e_test

import (
	"os"
	"testing"
	"time"
)

// soakVariable asks for the long forms of tests. Each has a short form, which runs without it.
const soakVariable = "THROUGHLINE_SOAK"

func soaking() bool { return os.Getenv(soakVariable) != "" }

// either gives the value of the short form or that of the long one.
func either[T any](short, long T) T {
	if soaking() {
		return long
	}
	return short
}

// atEach does something n times, one after another: without a pause, or in the long form at a pace that makes it last.
func atEach(t *testing.T, n int, last time.Duration, do func(i int)) {
	t.Helper()
	pace := time.Nanosecond
	if soaking() {
		pace = last / time.Duration(n)
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range n {
		do(i)
		select {
		case <-tick.C:
		case <-t.Context().Done():
			return
		}
	}
}
