package command

import (
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/services/internal/verify"
)

func TestShowReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	r := &verify.Report{Orders: 1, Messages: 14, Payments: 1, Parcels: 0, InFlight: 1, PendingMessages: 2, Open: 1, Took: 12 * time.Millisecond}
	if err := showReport(&out, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"looked at 1 order, 14 messages, 1 payment and 0 parcels ever, in 12ms\n",
		"in flight  1 order, 2 messages\n",
		"open       1 order to be ended by a person (throughline attention list)\n",
		"\nall agrees\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report: got %q, want %q in it", out.String(), want)
		}
	}
}
