//go:build faultpoints

package fault_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/fault"
)

// childVar makes the test binary run child instead of its tests.
const childVar = "THROUGHLINE_FAULT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		os.Exit(child())
	}
	os.Exit(m.Run())
}

// child passes three points, saying so before each and after the last.
func child() int {
	if err := fault.Check(os.Environ()); err != nil {
		fmt.Println(err)
		return 2
	}
	defer fmt.Println("deferred")
	for i := 1; i <= 3; i++ {
		fmt.Println("before", i)
		fault.Point(fault.OutboxPublishing)
		fault.At(fault.OutboxPublished, order(i), "step")
	}
	return 0
}

// order is the id of the ith order.
func order(i int) uuid.UUID { return uuid.UUID{byte(i)} }

func start(t *testing.T, spec string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childVar+"=1", fault.EnvVar+"="+spec)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting the child: %v", err)
	}
	return cmd, bufio.NewReader(out)
}

// run returns all that a child prints, and how it ended.
func run(t *testing.T, spec string) (string, *os.ProcessState) {
	t.Helper()
	cmd, out := start(t, spec)
	b, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the state says it
	return string(b), cmd.ProcessState
}

func TestKill(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		1: "before 1\n",
		2: "before 1\nbefore 2\n",
		4: "before 1\nbefore 2\nbefore 3\ndeferred\n",
	} {
		t.Run(fmt.Sprint("passage ", n), func(t *testing.T) {
			t.Parallel()
			out, state := run(t, fmt.Sprintf("%s=kill:%d", fault.OutboxPublished, n))
			if out != want {
				t.Errorf("got output %q, want %q", out, want)
			}
			status := state.Sys().(syscall.WaitStatus)
			if killed := status.Signaled() && status.Signal() == syscall.SIGKILL; killed != (n <= 3) {
				t.Errorf("got %v, want killed %v", state, n <= 3)
			}
		})
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "go on")
	// The kill behind the hold shows that the passage did not go on before the file was there.
	cmd, out := start(t, fmt.Sprintf("%s=hold:%s,%s=kill:1", fault.OutboxPublishing, path, fault.OutboxPublished))
	line, err := out.ReadString('\n')
	if err != nil || line != "before 1\n" {
		t.Fatalf("got %q, %v, want before 1", line, err)
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("got %v, want the child alive while held", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v, want nothing more", rest, err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
		t.Errorf("got %v, want killed at the point after", cmd.ProcessState)
	}
}

// TestTrip lays a wire for one order and step: the process dies there, once.
func TestTrip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wire := fault.Wire(dir, fault.OutboxPublished, order(2), "step")
	other := fault.Wire(dir, fault.OutboxPublished, order(2), "other")
	for _, path := range []string{wire, other} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for life, want := range []string{"before 1\nbefore 2\n", "before 1\nbefore 2\nbefore 3\ndeferred\n"} {
		out, state := run(t, "*=trip:"+dir)
		if killed := state.Sys().(syscall.WaitStatus).Signaled(); out != want || killed != (life == 0) {
			t.Errorf("life %d: got %q, %v, want %q", life, out, state, want)
		}
		if _, err := os.Stat(wire); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("life %d: got the wire (%v), want it gone", life, err)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("wire of another step: got %v, want it there", err)
	}
}

func TestCheckRefusesSpecs(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"nowhere=kill:1", "inbox.committed", "inbox.committed=", "inbox.committed=kill", "inbox.committed=kill:", "inbox.committed=kill:0",
		"inbox.committed=kill:x", "inbox.committed=kill:*", "inbox.committed=burn:1", "inbox.committed=hold:", "inbox.committed=kill:-1", "*=trip:", "*=kill:1", "inbox.committed=trip:x",
		"inbox.committed=kill:1,inbox.committed=kill:2",
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			if err := fault.Check([]string{fault.EnvVar + "=" + spec}); !errors.Is(err, fault.ErrSpec) {
				t.Errorf("got %v, want %v", err, fault.ErrSpec)
			}
			if !strings.Contains(fmt.Sprint(fault.Check([]string{fault.EnvVar + "=" + spec})), fault.EnvVar) {
				t.Errorf("got an error without the variable's name")
			}
		})
	}
}
