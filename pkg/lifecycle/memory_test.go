package lifecycle_test

import (
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/throughline/throughline/pkg/lifecycle"
)

// The setting is the process's, so each case is a process of its own.
func TestSpareCollector(t *testing.T) {
	t.Parallel()
	const child = "LIFECYCLE_TEST_SPARE_COLLECTOR"
	if os.Getenv(child) != "" {
		lifecycle.SpareCollector()
		t.Logf("percent=%d", debug.SetGCPercent(-1))
		return
	}
	for _, tc := range []struct {
		name, env string
		want      int
	}{
		{"by itself", "", 400},
		{"told a percentage", "GOGC=50", 50},
		{"told a limit", "GOMEMLIMIT=100MiB", 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSpareCollector$", "-test.v")
			cmd.Env = append(os.Environ(), "GOGC=", "GOMEMLIMIT=", child+"=1", tc.env)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if want := "percent=" + strconv.Itoa(tc.want); !strings.Contains(string(out), want+"\n") {
				t.Errorf("got\n%s\nwant %s", out, want)
			}
		})
	}
}
