package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// brokerVariable makes this test binary a broker that keeps its streams in the folder it names.
const brokerVariable = "THROUGHLINE_E2E_BROKER"

// runBroker runs a broker until its standard input ends.
func runBroker(store string) error {
	server, err := natsserver.Start(natsserver.Config{StoreDir: store})
	if err != nil {
		return err
	}
	defer server.Shutdown()
	if _, err := fmt.Println(server.URL()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// brokerProcess is a broker in a process of its own, so that it can be frozen.
type brokerProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
}

func startBroker(t *testing.T) *brokerProcess {
	t.Helper()
	b := &brokerProcess{t: t, cmd: exec.Command(os.Args[0])} // it ends with its standard input
	b.cmd.Env = append(os.Environ(), brokerVariable+"="+t.TempDir())
	b.cmd.Stderr = os.Stderr
	in, err := b.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatalf("starting a broker: %v", err)
	}
	t.Cleanup(func() {
		_ = b.cmd.Process.Signal(syscall.SIGCONT)
		_ = in.Close()
		_ = b.cmd.Wait() // how it ended is of no interest
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("starting a broker: %v", err)
	}
	b.url = strings.TrimSpace(line)
	return b
}

func (b *brokerProcess) signal(sig syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(sig); err != nil {
		b.t.Fatalf("sending %s to the broker: %v", sig, err)
	}
}

// The broker is frozen: its connections stay, and nothing comes over them. Orders are taken all the same, readiness says what is wrong, and
// all goes on when it wakes, without a restart of anything.
func TestOPEN22BrokerFrozen(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	w := newWorldOn(t, system.Options{}, broker.url, broker.url)
	ctx := system.Context(t, 2*patience+either(0, 90*time.Second))
	for i := range 5 {
		wantCreated(t, "an order before", w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("open22-before-%d", i)), false)
	}
	broker.signal(syscall.SIGSTOP)
	orders := either(20, 90)
	atEach(t, orders, 90*time.Second, func(i int) {
		wantCreated(t, "an order beside a frozen broker", w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("open22-%d", i)), false)
	})
	w.awaitUnready(ctx, t)
	broker.signal(syscall.SIGCONT)
	w.awaitReturn(ctx, t, orders+5)
}

// awaitUnready waits until readiness and the metrics say that the broker is away.
func (w *world) awaitUnready(ctx context.Context, t *testing.T) {
	t.Helper()
	system.Eventually(ctx, t, "readiness to say that the broker is away", func() bool {
		status, body := w.probe(ctx, t, "order-http", "/readyz")
		return status != http.StatusOK && strings.Contains(body, "broker")
	})
	if got := w.metric(ctx, t, "order-http", "throughline_outbox_oldest_age"); got == "0" || got == "" {
		t.Errorf("age of the oldest row: got %q, want it to rise", got)
	}
}

// awaitReturn waits until all orders are confirmed after the broker's return, which takes at most a minute, and the metrics are well.
func (w *world) awaitReturn(ctx context.Context, t *testing.T, orders int) {
	t.Helper()
	back := time.Now()
	if n := w.settled(ctx, t); n != orders {
		t.Errorf("got %d orders, want %d", n, orders)
	}
	if got := len(w.byStatus(ctx, t)[verify.Confirmed]); got != orders {
		t.Errorf("got %d confirmed orders, want %d", got, orders)
	}
	if took := time.Since(back); took > time.Minute {
		t.Errorf("orders went on for %s after the broker's return, want at most a minute", took)
	}
	system.Eventually(ctx, t, "readiness and metrics to be well again", func() bool {
		status, _ := w.probe(ctx, t, "order-http", "/readyz")
		return status == http.StatusOK && w.metric(ctx, t, "order-http", "throughline_outbox_oldest_age") == "0"
	})
}
