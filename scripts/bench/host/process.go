package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/throughline/throughline/scripts/bench/meter"
)

// Command is the argument by which the bench's program becomes a host.
const Command = "host"

// The roles of a host.
const (
	RoleServices   = "services"
	RoleJetStream  = "jetstream"
	RoleSimulators = "simulators"
	RoleCollector  = "collector"
)

// What the bench's client is called, its key, and ours at the provider.
const (
	Client      = "bench"
	APIKey      = "bench_key_of_no_value"
	ProviderKey = "sk_test_bench"
)

// stopTimeout is how long a process may take to stop before it is killed.
const stopTimeout = 30 * time.Second

// Order is what a host is told to be.
type Order struct {
	Role string
	// Dir is where it keeps files.
	Dir   string
	Needs Needs
	// Profile is a file for its CPU profile; none when empty.
	Profile string
}

// Answer is what a host says when it is ready.
type Answer struct {
	// URL is where its clients find it: the gateway, the broker, the payment simulator, the collector.
	URL string
	// NATS is the URL of the broker that the services use.
	NATS string
	// Carrier is the URL of the carrier simulator.
	Carrier string
	// Error says why it is not ready.
	Error string
}

// Process is a host that runs.
type Process struct {
	Answer
	cmd   *exec.Cmd
	stdin io.Closer
	log   *os.File
	role  string
}

// Launch runs a host and waits until it is ready. What it logs goes to a file in its folder.
func Launch(ctx context.Context, o Order) (*Process, error) {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a folder for %s: %w", o.Role, err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the bench's own program: %w", err)
	}
	log, err := os.Create(filepath.Join(o.Dir, o.Role+".log"))
	if err != nil {
		return nil, fmt.Errorf("making the log of %s: %w", o.Role, err)
	}
	p := &Process{role: o.Role, log: log}
	p.cmd = exec.Command(self, Command) //nolint:noctx // Stop ends it, in order
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = attributes()
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", o.Role, err)
	}
	answered := make(chan error, 1)
	go func() {
		if err := json.NewEncoder(stdin).Encode(o); err != nil {
			answered <- err
			return
		}
		answered <- json.NewDecoder(bufio.NewReader(stdout)).Decode(&p.Answer)
	}()
	select {
	case err = <-answered:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil && p.Answer.Error != "" {
		err = errors.New(p.Answer.Error)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s (its log is %s): %w", o.Role, log.Name(), err), p.Stop())
	}
	return p, nil
}

// Use is what the process has used.
func (p *Process) Use() (meter.Process, error) { return meter.Read(p.cmd.Process.Pid) }

// Stop stops the process. It may be called again.
func (p *Process) Stop() error {
	if p == nil || p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.stdin.Close() // an error says that it has ended
	kill := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	defer p.log.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("stopping %s (its log is %s): %w", p.role, p.log.Name(), err)
	}
	return nil
}
