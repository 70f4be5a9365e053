package payment_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/throughline/throughline/services/simulator/payment"
)

// The real program, killed with SIGKILL in the middle of its work: all that
// was answered is there afterwards.
func TestKilledProcessLosesNothingAnswered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "payment-simulator")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/payment-simulator")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	// Not the test's context: its end would kill too, and hide who did it.
	cmd := exec.CommandContext(context.Background(), program, "--address", "127.0.0.1:0", "--data-dir", dir)
	cmd.Env = []string{}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var killed sync.Once
	kill := func() {
		killed.Do(func() {
			if err := cmd.Process.Signal(os.Kill); err != nil {
				t.Errorf("killing: %v", err)
			}
		})
	}
	t.Cleanup(kill)
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() {
		t.Fatalf("the program said nothing: %v", lines.Err())
	}
	address := regexp.MustCompile(`address=(127\.0\.0\.1:\d+) `).FindStringSubmatch(lines.Text())
	if address == nil {
		t.Fatalf("no address in %q", lines.Text())
	}
	s := &simulator{t: t, url: "http://" + address[1], stripe: newStripe("http://" + address[1])}

	const clients, killAfter = 8, 200
	var (
		mu       sync.Mutex
		answered = map[string]string{} // order to intent
		wg       sync.WaitGroup
	)
	for w := range clients {
		wg.Go(func() {
			for n := 0; ; n++ {
				order := strconv.Itoa(w) + "-" + strconv.Itoa(n)
				pi, err := s.create(order, "pm_card_visa", order)
				if err != nil {
					return // it is dead
				}
				mu.Lock()
				answered[order] = pi.ID
				enough := len(answered) >= killAfter
				mu.Unlock()
				if enough {
					kill()
				}
			}
		})
	}
	wg.Wait()
	if err := cmd.Wait(); err == nil {
		t.Error("the program ended by itself")
	}

	s = start(t, payment.Config{DataDir: dir})
	have := map[string]string{}
	for _, in := range s.ledger("").Intents {
		have[in.OrderID] = in.ID
	}
	for order, id := range answered {
		if have[order] != id {
			t.Errorf("order %s: got intent %q, want %s", order, have[order], id)
		}
	}
	if extra := len(have) - len(answered); extra > clients {
		t.Errorf("unanswered intents: got %d, want at most one per worker", extra)
	}
	t.Logf("%d answered, %d in the ledger", len(answered), len(have))
}
