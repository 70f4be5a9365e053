//go:build unix

// Command pgtest-run runs a command with a throw-away Postgres cluster that all its test binaries share, and ends with
// the command's status:
//
//	pgtest-run -- go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

const (
	startTimeout = 10 * time.Minute // may include installing Postgres
	stopTimeout  = 20 * time.Second
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest-run:", err)
	}
	os.Exit(status)
}

func run(args []string) (status int, err error) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 2, errors.New("usage: pgtest-run -- command [argument...]")
	}
	// Ctrl-C reaches the command too; what is left for us is to clean up after it. Other signals are handed on.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // ended by signals only
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	if os.Getenv(pgtest.EnvClusterURL) == "" {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		cluster, err := pgtest.StartCluster(ctx, os.Stderr)
		if err != nil {
			return 1, err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
			defer cancel()
			if stopErr := cluster.Stop(ctx); stopErr != nil {
				status, err = max(status, 1), stopErr
			}
		}()
		cmd.Env = append(cmd.Env, pgtest.EnvClusterURL+"="+cluster.SuperuserURL("postgres"))
	}
	if err := cmd.Start(); err != nil {
		return 127, fmt.Errorf("starting %s: %w", args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s != os.Interrupt {
				_ = cmd.Process.Signal(s) // the only failure is that it has ended
			}
		case err := <-ended:
			return statusOf(err)
		}
	}
}

// statusOf returns the status that a shell would give.
func statusOf(err error) (int, error) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		if err != nil {
			return 1, fmt.Errorf("waiting for the command: %w", err)
		}
		return 0, nil
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return exit.ExitCode(), nil
}
