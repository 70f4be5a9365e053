package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/scripts/e2e/system"
)

// TestReleaseHasNoFaultPoints looks for what kills a process at a fault point in the program that users build, and asks it to do so. The
// crash test finds the same name in its own build.
func TestReleaseHasNoFaultPoints(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(system.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(program, []byte("pkg/fault.die")) {
		t.Error("got a function that kills the process, want none in a release")
	}
	cmd := exec.CommandContext(t.Context(), system.Binary(t), "service", "order")
	cmd.Env = []string{fault.EnvVar + "=" + fault.StepCalled + "=kill:1"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), fault.ErrNotCompiled.Error()) {
		t.Errorf("starting with fault points: got %v, %s, want a refusal", err, out)
	}
}
