package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	carriersim "github.com/throughline/throughline/services/simulator/carrier"
	paymentsim "github.com/throughline/throughline/services/simulator/payment"
)

// Serve is the program of a host.
func Serve(ctx context.Context, in io.Reader, out, log io.Writer) (err error) {
	line, err := bufio.NewReader(in).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading what to be: %w", err)
	}
	var o Order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("reading what to be: %w", err)
	}
	lifecycle.SpareCollector() // as the product's own programs do
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is the sign to stop
		cancel()
	}()
	answer, stop, err := begin(ctx, &o, log)
	if err != nil {
		answer.Error = err.Error()
	}
	if failed := json.NewEncoder(out).Encode(answer); failed != nil || err != nil {
		return errors.Join(err, failed)
	}
	finish, err := profile(o.Profile)
	if err != nil {
		return errors.Join(err, stop())
	}
	<-ctx.Done()
	return errors.Join(finish(), stop())
}

// begin starts what a role is.
func begin(ctx context.Context, o *Order, log io.Writer) (a Answer, stop func() error, err error) {
	switch o.Role {
	case RoleServices:
		s, err := StartServices(ctx, o.Needs, o.Dir, log, nil)
		if err != nil {
			return a, nil, err
		}
		return Answer{URL: s.URL, NATS: s.NATS}, s.Stop, nil
	case RoleJetStream:
		s, err := StartJetStream(o.Dir, log)
		if err != nil {
			return a, nil, err
		}
		return Answer{URL: s.URL()}, func() error { s.Shutdown(); return nil }, nil
	case RoleSimulators:
		return simulators(ctx, o.Dir, log)
	case RoleCollector:
		return collector(log)
	}
	return a, nil, fmt.Errorf("there is no role %q", o.Role)
}

// StartJetStream runs the broker as the product's own command line does.
func StartJetStream(dir string, log io.Writer) (*natsserver.Server, error) {
	return natsserver.Start(natsserver.Config{
		StoreDir: filepath.Join(dir, "jetstream"), Logger: slog.New(slog.NewJSONHandler(log, nil)),
	})
}

// simulators serve the payment provider and the carrier over HTTP.
func simulators(ctx context.Context, dir string, log io.Writer) (a Answer, stop func() error, err error) {
	logger := slog.New(slog.NewJSONHandler(log, nil))
	payments, err := paymentsim.New(paymentsim.Config{APIKey: ProviderKey, DataDir: filepath.Join(dir, "provider"), Logger: logger})
	if err != nil {
		return a, nil, fmt.Errorf("starting the payment simulator: %w", err)
	}
	shipments, err := carriersim.New(carriersim.Config{DataDir: filepath.Join(dir, "carrier"), Logger: logger})
	if err != nil {
		return a, nil, errors.Join(fmt.Errorf("starting the carrier simulator: %w", err), payments.Close())
	}
	served := make(chan error, 2)
	urls := make([]string, 2)
	for i, serve := range []func(context.Context, net.Listener) error{payments.Serve, shipments.Serve} {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
		if err != nil {
			return a, nil, fmt.Errorf("listening for a simulator: %w", err)
		}
		urls[i] = "http://" + l.Addr().String()
		go func() { served <- serve(ctx, l) }()
	}
	return Answer{URL: urls[0], Carrier: urls[1]}, func() error {
		return errors.Join(<-served, <-served, payments.Close(), shipments.Close())
	}, nil
}

// profile writes a CPU profile into a file until finish is called.
func profile(path string) (finish func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("making the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
