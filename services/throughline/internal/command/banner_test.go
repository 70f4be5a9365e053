package command

import (
	"testing"

	"github.com/throughline/throughline/services/throughline/internal/stack"
)

// What up prints to ask for a story finds the system that printed it, and is short where the command finds it by itself.
func TestTraceLine(t *testing.T) {
	t.Parallel()
	o := stack.Defaults()
	if got, want := traceLine(o, ".bin/throughline", "k"), ".bin/throughline trace k"; got != want {
		t.Errorf("with the defaults: got %q, want %q", got, want)
	}
	o.Data, o.Ports.PaymentGRPC = "elsewhere", 9999
	if got, want := traceLine(o, "throughline", "k"), "throughline trace k --data elsewhere --payment 127.0.0.1:9999"; got != want {
		t.Errorf("elsewhere: got %q, want %q", got, want)
	}
}
