package lifecycle_test

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strconv"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/lifecycle"
)

// The setting is the process's, so each case is a process of its own. It keeps so many MiB alive, and wants the percentage to come between two.
func TestSpareCollector(t *testing.T) {
	t.Parallel()
	const alive, least, most = "LIFECYCLE_TEST_ALIVE", "LIFECYCLE_TEST_LEAST", "LIFECYCLE_TEST_MOST"
	number := func(name string) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if os.Getenv(alive) != "" {
		lifecycle.SpareCollector()
		held := make([]byte, number(alive)<<20)
		wantPercent(t, number(least), number(most))
		runtime.KeepAlive(held)
		if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
			wantPercent(t, 400, 400) // what was held is gone
		}
		return
	}
	for _, tc := range []struct {
		name, env          string
		alive, least, most int
	}{
		{"by itself", "", 0, 400, 400},
		{"some is alive", "", 96, 190, 200},
		{"much is alive", "", 384, 100, 100},
		{"told a percentage", "GOGC=50", 96, 50, 50},
		{"told a limit", "GOMEMLIMIT=200MiB", 96, 100, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSpareCollector$", "-test.v")
			cmd.Env = append(os.Environ(), "GOGC=", "GOMEMLIMIT=",
				alive+"="+strconv.Itoa(tc.alive), least+"="+strconv.Itoa(tc.least), most+"="+strconv.Itoa(tc.most), tc.env)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// wantPercent collects until the percentage is as it should be: it is set a moment after a collection.
func wantPercent(t *testing.T, least, most int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		runtime.GC()
		runtime.Gosched()
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		got := int(sample[0].Value.Uint64()) //nolint:gosec // a percentage
		if got >= least && got <= most {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %d%%, want from %d to %d", got, least, most)
		}
	}
}
