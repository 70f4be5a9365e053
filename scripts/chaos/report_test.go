package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// report is what has happened.
type report struct {
	seed              uint64
	orders, rate      int
	placing, settling time.Duration

	mu        sync.Mutex      // guards counts and cancelled
	counts    map[string]int  // of what must have happened at least once
	cancelled map[string]bool // what clients were told about orders that they wanted to cancel
	ends      map[string]int
	captured  int64
	refunded  int64
	calls     int
	attention string
}

// newReport makes a report that knows what must happen.
func newReport(seed uint64, orders, rate int) *report {
	r := &report{seed: seed, orders: orders, rate: rate, counts: make(map[string]int), cancelled: make(map[string]bool), ends: make(map[string]int)}
	for _, b := range blows() {
		for _, where := range []string{"provider", "carrier"} {
			if b.meets(where) {
				r.counts[title(where, b.name)] = 0
			}
		}
	}
	for _, s := range services() {
		r.counts["killed: "+s], r.counts["frozen: "+s] = 0, 0
	}
	for _, name := range []string{
		"replays", "cancellations accepted", "cancellations too late", "customers who confirm",
	} {
		r.counts[name] = 0
	}
	return r
}

func title(where, kind string) string { return where + ": " + kind }

func (r *report) add(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// promise notes what a client was told about its cancellation.
func (r *report) promise(id string, cancelled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancelled[id] = r.cancelled[id] || cancelled
}

// kept fails the test for every order that did not end as its client was told. An order that was already being undone for another reason
// ends as FAILED.
func (r *report) kept(t *testing.T, list []verify.Order) {
	t.Helper()
	for _, o := range list {
		accepted := r.cancelled[o.ID]
		if accepted && o.Status == verify.Confirmed || !accepted && o.Status == verify.Cancelled {
			t.Errorf("order %s: got %s, but whether a cancellation was accepted is %v", o.ID, o.Status, accepted)
		}
	}
}

func (r *report) injected(where, kind string, n int) { r.add(title(where, kind), n) }
func (r *report) killed(service string)              { r.add("killed: "+service, 1) }
func (r *report) froze(service string)               { r.add("frozen: "+service, 1) }

// count notes how orders have ended, and what was paid.
func (r *report) count(list []verify.Order, accounts map[string]verify.Account) {
	for _, o := range list {
		r.ends[o.Status]++
	}
	for _, a := range accounts {
		r.captured += a.Captured
		r.refunded += a.Refunded
	}
}

// faults counts what the provider has answered by its memory of keys.
func (r *report) faults(ctx context.Context, t *testing.T, s *system.System) {
	t.Helper()
	payments, err := s.Provider.PaymentLedger(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	r.calls = len(payments.Calls) + payments.CallsDropped
	for _, c := range payments.Calls {
		switch {
		case c.Replayed && c.Status >= 500:
			r.add("seen at the provider: stored errors replayed", 1)
		case c.Replayed:
			r.add("seen at the provider: answers replayed for a key", 1)
		case c.Status == http.StatusConflict:
			r.add("seen at the provider: calls refused, by a key in use or by what had happened", 1)
		}
	}
}

// attend lists the orders that wait for a person, which a definite no to an undo or a capture without an outcome explains, and nothing
// else.
func (r *report) attend(t *testing.T, s *system.System) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), system.Binary(t), "attention", "list", "--data", s.Data(), //nolint:gosec // our own program
		"--order", fmt.Sprintf("127.0.0.1:%d", s.Ports()["order-grpc"])).CombinedOutput()
	if err != nil {
		t.Errorf("listing the orders that wait for a person: %v\n%s", err, out)
	}
	r.attention = string(out)
	for line := range strings.Lines(r.attention) {
		explained := strings.Contains(line, "refused") || strings.Contains(line, "capture_payment") || strings.Contains(line, "dispatch_shipment")
		if !strings.HasPrefix(line, "ORDER") && !explained {
			t.Errorf("an order waits for a person without need: %s", line)
		}
	}
}

// complete fails the test for everything that has not happened once.
func (r *report) complete(t *testing.T) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(r.counts)) {
		if r.counts[name] == 0 {
			t.Errorf("%s: got 0, want it to have happened", name)
		}
	}
	if r.captured == 0 || r.refunded == 0 {
		t.Errorf("captured %d, refunded %d: want both to have happened", r.captured, r.refunded)
	}
}

func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d orders, %d a second; placed in %s, at rest %s later; %d calls at the provider\n\n", r.seed, r.orders, r.rate,
		r.placing.Round(time.Second), r.settling.Round(time.Second), r.calls)
	for _, name := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(&b, "%8d  %s\n", r.counts[name], name)
	}
	b.WriteString("\n")
	for _, status := range slices.Sorted(maps.Keys(r.ends)) {
		fmt.Fprintf(&b, "%8d  %s\n", r.ends[status], status)
	}
	fmt.Fprintf(&b, "\ncaptured %d, refunded %d, in minor units; both ledgers agree with the orders\n", r.captured, r.refunded)
	if r.attention != "" {
		fmt.Fprintf(&b, "\nWaiting for a person:\n%s", r.attention)
	}
	return b.String()
}
