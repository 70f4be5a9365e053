// Package system starts the whole system for a test, as processes, and drives it from outside.
package system

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
)

const (
	// startTimeout includes the creation of a database cluster on a busy machine.
	startTimeout = 3 * time.Minute
	stopTimeout  = time.Minute
	poll         = 20 * time.Millisecond
)

// Options say how a system is run.
type Options struct {
	// Instances of each service; 0 means 1.
	Instances int
	// Separate runs each service as a process of its own.
	Separate bool
	// Data is the data folder; empty means a new one.
	Data string
	// NoWebhooks leaves the services to ask.
	NoWebhooks bool
	// CustomerTime is how long a customer may take to confirm a payment; 0 leaves that to the system.
	CustomerTime time.Duration
	// Environ is added to the environment.
	Environ []string
	// Ports are used again, after a stop; nil means free ones.
	Ports map[string]int
}

// System is a running system.
type System struct {
	tb       testing.TB
	options  Options
	cmd      *exec.Cmd
	done     chan struct{}
	out      *output
	URL      string
	Provider *control.Client
	Carrier  *control.Client
}

// Start starts a system and waits until it is up. It is stopped at the end of the test.
func Start(tb testing.TB, o Options) *System {
	tb.Helper()
	s := Launch(tb, o)
	s.AwaitUp()
	return s
}

// Launch starts a system without waiting for it.
func Launch(tb testing.TB, o Options) *System {
	tb.Helper()
	if o.Instances == 0 {
		o.Instances = 1
	}
	if o.Data == "" {
		o.Data = DataDir(tb)
	}
	if o.Ports == nil {
		o.Ports = FreePorts(tb, o.Instances)
	}
	args := []string{"up", "--data", o.Data, "--instances", strconv.Itoa(o.Instances)}
	if o.Separate {
		args = append(args, "--separate")
	}
	if o.NoWebhooks {
		args = append(args, "--webhooks=false")
	}
	if o.CustomerTime > 0 {
		args = append(args, "--customer-time", o.CustomerTime.String())
	}
	for name, port := range o.Ports {
		args = append(args, "--"+name, strconv.Itoa(port))
	}
	s := &System{
		tb: tb, options: o, done: make(chan struct{}), out: newOutput(),
		URL:      fmt.Sprintf("http://127.0.0.1:%d", o.Ports["http"]),
		Provider: control.New(fmt.Sprintf("http://127.0.0.1:%d", o.Ports["provider"])),
		Carrier:  control.New(fmt.Sprintf("http://127.0.0.1:%d", o.Ports["carrier"])),
	}
	s.cmd = exec.Command(Binary(tb), args...) //nolint:noctx // stopped by signals, in two stages
	s.cmd.Env = append(os.Environ(), o.Environ...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		tb.Fatalf("starting the system: %v", err)
	}
	go func() {
		_ = s.cmd.Wait() // how it ended is in ProcessState
		s.out.close()
		close(s.done)
	}()
	tb.Cleanup(func() {
		s.Stop()
		if tb.Failed() {
			tb.Logf("output of the system:\n%s", s.out)
			s.logFiles()
		}
	})
	return s
}

// AwaitUp waits until the system says that it is up.
func (s *System) AwaitUp() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if !s.out.await(ctx, "throughline is up") {
		s.tb.Fatalf("the system did not come up:\n%s", s.out)
	}
}

// Output is what the system has printed.
func (s *System) Output() string { return s.out.String() }

// Ports are the ports that the system runs on.
func (s *System) Ports() map[string]int { return s.options.Ports }

// Data is its data folder.
func (s *System) Data() string { return s.options.Data }

// Stop asks the system to stop, and waits. It reports the exit status. It may be called again.
func (s *System) Stop() int {
	s.tb.Helper()
	return s.StopWith(syscall.SIGTERM)
}

// StopWith stops the system by a signal.
func (s *System) StopWith(sig os.Signal) int {
	s.tb.Helper()
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode()
	default:
	}
	_ = s.cmd.Process.Signal(sig) // it may have ended meanwhile
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.done
		s.tb.Errorf("the system did not stop within %s:\n%s", stopTimeout, s.out)
	}
	return s.cmd.ProcessState.ExitCode()
}

// Wait waits until the system has ended by itself, and gives its exit status.
func (s *System) Wait(ctx context.Context) int {
	s.tb.Helper()
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode()
	case <-ctx.Done():
		s.tb.Fatalf("the system did not end by itself:\n%s", s.out)
		return -1
	}
}

// PID gives the process id of an instance of a separate system.
func (s *System) PID(service string, instance int) int {
	s.tb.Helper()
	name := service
	if instance > 0 {
		name = fmt.Sprintf("%s-%d", service, instance)
	}
	text, err := os.ReadFile(filepath.Join(s.options.Data, "pids", name))
	if err != nil {
		s.tb.Fatalf("reading the process id of %s: %v", name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		s.tb.Fatalf("reading the process id of %s: %v", name, err)
	}
	return pid
}

// Signal sends a signal to an instance of a separate system.
func (s *System) Signal(service string, instance int, sig syscall.Signal) {
	s.tb.Helper()
	if err := syscall.Kill(s.PID(service, instance), sig); err != nil {
		s.tb.Fatalf("sending %s to %s: %v", sig, service, err)
	}
}

// Kill kills an instance of a separate system, and waits until its successor runs.
func (s *System) Kill(service string, instance int) {
	s.tb.Helper()
	pid := s.PID(service, instance)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.tb.Fatalf("killing %s: %v", service, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	Eventually(ctx, s.tb, "a successor of "+service, func() bool { return s.PID(service, instance) != pid })
}

func (s *System) logFiles() {
	files, _ := filepath.Glob(filepath.Join(s.options.Data, "log", "*"))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		const most = 6 << 10
		s.tb.Logf("end of %s:\n%s", filepath.Base(f), text[max(0, len(text)-most):])
	}
}

// Eventually waits until a condition holds, and fails the test if it does not before ctx ends.
func Eventually(ctx context.Context, tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			tb.Fatalf("waiting for %s: %v", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// portFlags are the flags of up that set ports, and whether each instance has a port of its own.
var portFlags = map[string]bool{
	"http": true, "grpc": true, "order-grpc": true, "order-http": true, "payment-grpc": true, "payment-http": true,
	"shipping-grpc": true, "shipping-http": true, "payment-webhooks": true, "shipping-webhooks": true, "provider": false, "console": false, "carrier": false, "nats": false, "postgres": false,
}

// FreePorts gives ports that are free now, with room for n instances, by flag.
func FreePorts(tb testing.TB, n int) map[string]int {
	tb.Helper()
	ports := make(map[string]int, len(portFlags))
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for name, several := range portFlags {
		want := 1
		if several {
			want = n
		}
		for ports[name] == 0 {
			row := listenInARow(tb, want)
			held = append(held, row...)
			if len(row) == want {
				ports[name] = row[0].Addr().(*net.TCPAddr).Port
			}
		}
	}
	return ports
}

// DataDir makes a data folder. Its path is short, because a unix socket lives in it.
func DataDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "tl-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// output collects what a process prints, and lets tests wait for it.
type output struct {
	w     *io.PipeWriter
	mu    sync.Mutex // guards what follows
	text  strings.Builder
	moved chan struct{} // closed and replaced at each line
	ended bool
	read  chan struct{} // closed when nothing more comes
}

func newOutput() *output {
	r, w := io.Pipe()
	o := &output{w: w, moved: make(chan struct{}), read: make(chan struct{})}
	go func() {
		defer close(o.read)
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			o.add(lines.Text(), false)
		}
		o.add("", true)
	}()
	return o
}

func (o *output) Write(b []byte) (int, error) { return o.w.Write(b) }

// close returns when all that was written has been read.
func (o *output) close() {
	_ = o.w.Close()
	<-o.read
}

func (o *output) add(line string, end bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !end {
		o.text.WriteString(line + "\n")
	}
	o.ended = end
	close(o.moved)
	o.moved = make(chan struct{})
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// await waits until a text was printed; false if the process ended, or ctx did, before that.
func (o *output) await(ctx context.Context, text string) bool {
	for {
		o.mu.Lock()
		there, ended, moved := strings.Contains(o.text.String(), text), o.ended, o.moved
		o.mu.Unlock()
		if there || ended {
			return there
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}
