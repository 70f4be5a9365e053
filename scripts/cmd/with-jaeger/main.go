// Command with-jaeger runs another command beside a Jaeger to which it sends its traces:
//
//	with-jaeger JAEGER CONFIG COMMAND [ARGUMENT...]
//
// It prints where to search, and ends with the command's status. JAEGER_PORT is where the search is, 16686 if it is not set.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
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
	j, err := jaeger.Start(ctx, jaeger.Options{
		Binary: args[0], Config: args[1], KeptPercent: 100, DecisionWait: decisionWait, QueryPort: port, Output: os.Stderr,
	})
	if err != nil {
		return err
	}
	defer j.Stop()
	// The module has no web page in it: what is served is the API that such a page would ask.
	fmt.Printf("jaeger: the trace of an order by its key, in the place of KEY, some seconds after it was placed:\n  "+
		"%s/api/traces?service=gateway&lookback=1h&tags=%%7B%%22throughline.idempotency_key%%22%%3A%%22KEY%%22%%7D\n", j.Query)

	cmd := exec.Command(args[2], args[3:]...) //nolint:noctx // it ends by signals
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+j.OTLP)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it gets signals once, from here
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", args[2], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // an error says that it has ended
		case err := <-ended:
			return err
		}
	}
}
