//go:build !faultpoints

package fault_test

import (
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/fault"
)

func TestCheckRefusesPoints(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		environ []string
		err     error
	}{
		{"nothing", nil, nil},
		{"others only", []string{"PATH=/bin", "THROUGHLINE_FAULT_POINTS_X=1"}, nil},
		{"empty", []string{"THROUGHLINE_FAULT_POINTS="}, nil},
		{"set", []string{"A=b", "THROUGHLINE_FAULT_POINTS=inbox.committed=kill:1"}, fault.ErrNotCompiled},
		{"last one holds", []string{"THROUGHLINE_FAULT_POINTS=", "THROUGHLINE_FAULT_POINTS=x"}, fault.ErrNotCompiled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if err := fault.Check(tc.environ); !errors.Is(err, tc.err) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
		})
	}
}

func TestPassagesDoNothing(t *testing.T) {
	t.Parallel()
	if fault.Enabled {
		t.Fatal("got Enabled, want not without the tag")
	}
	fault.Point(fault.InboxCommitted)
	fault.At(fault.StepCalled, uuid.New(), "step")
}

// TestTagged runs the tests of the other build, so that one run covers both.
func TestTagged(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "test", "-tags", "faultpoints", ".").CombinedOutput()
	if err != nil {
		t.Errorf("testing with the tag: %v\n%s", err, out)
	}
}

func ExampleCheck() {
	// A release binary refuses to start rather than ignore the wish.
	err := fault.Check([]string{"THROUGHLINE_FAULT_POINTS=inbox.committed=kill:1"})
	fmt.Println(err)
	// Output: THROUGHLINE_FAULT_POINTS=inbox.committed=kill:1: built without the tag faultpoints
}
