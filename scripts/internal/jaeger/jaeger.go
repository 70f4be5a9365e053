// Package jaeger runs a real Jaeger, which make builds, with the configuration under deploy, on loopback.
package jaeger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

const (
	startTimeout = time.Minute
	stopTimeout  = 10 * time.Second
	poll         = 50 * time.Millisecond
)

// errEnded says that the program ended before it was ready.
var errEnded = errors.New("it ended before it was ready")

// Options say how Jaeger is run.
type Options struct {
	// Binary is the program, Config its configuration.
	Binary, Config string
	// KeptPercent is the part of the traces kept that nothing else keeps.
	KeptPercent int
	// DecisionWait is how long a trace is waited for; 0 leaves that to the configuration.
	DecisionWait time.Duration
	// OTLPPort and QueryPort are where it listens; 0 means any free port.
	OTLPPort, QueryPort int
	// Output gets what it prints; nil drops it.
	Output io.Writer
}

// Jaeger is a running Jaeger. It keeps traces in memory.
type Jaeger struct {
	// OTLP is where spans go, as a host and a port; Query is the URL of its search and its API.
	OTLP, Query string

	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts Jaeger and waits until it is ready.
func Start(ctx context.Context, o Options) (*Jaeger, error) {
	ports := []int{o.OTLPPort, o.QueryPort, 0, 0}
	if err := choose(ports); err != nil {
		return nil, fmt.Errorf("choosing ports for jaeger: %w", err)
	}
	j := &Jaeger{
		OTLP: fmt.Sprintf("127.0.0.1:%d", ports[0]), Query: fmt.Sprintf("http://127.0.0.1:%d", ports[1]), done: make(chan struct{}),
	}
	j.cmd = exec.Command(o.Binary, "--config", o.Config) //nolint:noctx // stopped by signals, in two stages
	j.cmd.Env = append(os.Environ(), "JAEGER_LISTEN_HOST=127.0.0.1", "JAEGER_LOG_LEVEL=warn",
		"JAEGER_OTLP_PORT="+strconv.Itoa(ports[0]), "JAEGER_QUERY_PORT="+strconv.Itoa(ports[1]),
		"JAEGER_QUERY_GRPC_PORT="+strconv.Itoa(ports[2]), "JAEGER_HEALTH_PORT="+strconv.Itoa(ports[3]),
		"TRACES_KEPT_PERCENT="+strconv.Itoa(o.KeptPercent),
		"OTEL_TRACES_SAMPLER=always_off") // it would trace itself
	if o.DecisionWait > 0 {
		j.cmd.Env = append(j.cmd.Env, "TRACES_DECISION_WAIT="+o.DecisionWait.String())
	}
	j.cmd.Stdout, j.cmd.Stderr = o.Output, o.Output
	// A Ctrl-C in a terminal goes to all of its programs; this one ends when it is told to, after those that send to it.
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting jaeger: %w", err)
	}
	go func() {
		_ = j.cmd.Wait() // how it ended is of no interest: it keeps nothing
		close(j.done)
	}()
	if err := j.await(ctx, fmt.Sprintf("http://127.0.0.1:%d/status", ports[3])); err != nil {
		j.Stop()
		return nil, fmt.Errorf("waiting for jaeger: %w", err)
	}
	return j, nil
}

// choose replaces each 0 by a port that is free now. All are held until the last is chosen, so that none is chosen twice.
func choose(ports []int) error {
	for i, port := range ports {
		if port != 0 {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
		if err != nil {
			return err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return nil
}

func (j *Jaeger) await(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if ready(ctx, url) {
			return nil
		}
		select {
		case <-tick.C:
		case <-j.done:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func ready(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Done is closed when the program has ended.
func (j *Jaeger) Done() <-chan struct{} { return j.done }

// Stop ends it, and waits for that.
func (j *Jaeger) Stop() {
	_ = j.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	select {
	case <-j.done:
	case <-time.After(stopTimeout):
		_ = j.cmd.Process.Kill()
		<-j.done
	}
}
