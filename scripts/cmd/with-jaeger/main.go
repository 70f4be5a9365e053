// Command with-jaeger runs another command beside a Jaeger to which it sends its traces:
//
//	with-jaeger JAEGER CONFIG COMMAND [ARGUMENT...]
//
// It prints where to search, and ends with the command's status. JAEGER_PORT is where that is, 16686 if it is not set. What Jaeger prints is shown
// only if it ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/throughline/throughline/scripts/internal/jaeger"
)

// decisionWait is short: who looks for the order that he has just placed shall find it.
const decisionWait = 2 * time.Second

var errUsage = errors.New("usage: with-jaeger JAEGER CONFIG COMMAND [ARGUMENT...]")

func main() {
	err := run(context.Background(), os.Args[1:])
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "with-jaeger:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errUsage
	}
	port := 16686
	if text := os.Getenv("JAEGER_PORT"); text != "" {
		var err error
		if port, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("reading JAEGER_PORT: %w", err)
		}
	}
	// Signals are the command's; it decides when to end.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	said := new(tail)
	j, err := jaeger.Start(ctx, jaeger.Options{Binary: args[0], Config: args[1], KeptPercent: 100, DecisionWait: decisionWait, Output: said})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}
	defer j.Stop()
	address, err := serve(ctx, j, port)
	if err != nil {
		return err
	}
	fmt.Printf("jaeger: find the traces of an order by its key or its id, some seconds after it was placed:\n  %[1]s/?q=KEY\n"+
		"  It is a plain page over the API of a real Jaeger, which is at %[1]s/api/; the module that Jaeger was built from has no page of its own.\n", address)

	cmd := exec.Command(args[2], args[3:]...) //nolint:noctx // it ends by signals
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+j.OTLP)
	if os.Getenv("THROUGHLINE_JAEGER_URL") == "" {
		cmd.Env = append(cmd.Env, "THROUGHLINE_JAEGER_URL="+address) // the console links there
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it gets signals once, from here
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", args[2], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	gone := j.Done()
	for {
		select {
		case <-gone:
			gone = nil
			fmt.Fprintf(os.Stderr, "with-jaeger: jaeger has ended, and takes no more traces:\n%s\n", said)
		case s := <-signals:
			_ = cmd.Process.Signal(s) // an error says that it has ended
		case err := <-ended:
			return err
		}
	}
}

// serve serves the page for people.
func serve(ctx context.Context, j *jaeger.Jaeger, port int) (address string, err error) {
	page, err := j.Page()
	if err != nil {
		return "", err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return "", fmt.Errorf("serving the page on JAEGER_PORT: %w", err)
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // it ends with this process
	return "http://" + l.Addr().String(), nil
}

// maxTail is as much as a screen has.
const maxTail = 4096

// tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex // guards kept
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-maxTail):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
