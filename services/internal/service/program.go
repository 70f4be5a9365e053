package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/lifecycle"
)

// healthcheckTimeout bounds the question of the subcommand healthcheck. The answer takes less than a second.
const healthcheckTimeout = 3 * time.Second

// Main is a service's program: it reads a C from environ and calls run until a signal comes or ctx ends. The first SIGINT or
// SIGTERM lets the work in hand end, the second does not.
//
// Called as "<binary> healthcheck" it asks the running service instead whether it is ready, at the address that httpAddr
// picks from the configuration, and returns nil if it is.
func Main[C any](ctx context.Context, args, environ []string, run func(context.Context, C, Options) error, httpAddr func(C) string) error {
	if err := fault.Check(environ); err != nil {
		return err
	}
	check := len(args) == 2 && args[1] == "healthcheck"
	if len(args) > 1 && !check {
		return ErrArguments
	}
	// What the embedded system tells all services; only the gateway acts on it.
	cfg, err := config.Load[C](config.Prefix, environ, config.Known(config.Prefix+"EMBEDDED"))
	if err != nil {
		return err
	}
	if check {
		return Healthcheck(ctx, httpAddr(cfg))
	}
	lifecycle.SpareCollector()
	stop, work, release := lifecycle.Signals(ctx)
	defer release()
	return run(stop, cfg, Options{Work: work})
}

// Healthcheck asks the service whose HTTP address is addr whether it is ready. The error is ErrNotReady, with what the
// service says is missing, or says that there was no answer.
func Healthcheck(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("reading the HTTP address: %w", err)
	}
	// A service that listens on all addresses is asked on one of them.
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", addr, err)
	}
	// A client of its own: proxies of the environment are for the outside.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking %s: %w", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", addr, err)
	}
	return fmt.Errorf("%w: %s", ErrNotReady, body)
}
