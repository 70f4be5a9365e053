// Package app wires the gateway together.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/localnet"
	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
	"github.com/throughline/throughline/services/gateway/internal/httpapi"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// meterName names the meter of the edge.
const meterName = "github.com/throughline/throughline/services/gateway"

// ErrNotServing says that the order service answers but takes no calls.
var ErrNotServing = errors.New("the order service is not serving")

// App is a gateway that listens and can be run.
type App struct {
	group  *lifecycle.Group
	orders *grpc.ClientConn
	http   net.Listener
	grpc   net.Listener
}

// Network is what a process that holds more than a gateway gives to it. Where HTTP and GRPC are not nil they take the place of the
// configuration's addresses; they are closed with the App. Local reaches the order service if it is in this process.
type Network struct {
	HTTP, GRPC net.Listener
	Local      *localnet.Network
}

// New makes a gateway and binds its ports, so that a port that is taken is an error before anything runs. Run or Close it.
func New(ctx context.Context, cfg config.Config, network Network, tel *telemetry.Telemetry, logger *slog.Logger) (*App, error) {
	a := &App{group: lifecycle.New(logger, cfg.Grace), http: network.HTTP, grpc: network.GRPC}
	if err := a.wire(ctx, cfg, network.Local, tel, logger); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) wire(ctx context.Context, cfg config.Config, local *localnet.Network, tel *telemetry.Telemetry, logger *slog.Logger) error {
	clients, err := cfg.Clients()
	if err != nil {
		return fmt.Errorf("reading API keys: %w", err)
	}
	a.orders, err = grpcx.Dial(grpcx.ClientConfig{
		Addr: cfg.OrderAddr, Credential: cfg.ServiceCredential, MaxDuration: cfg.CallTimeout + grpcapi.MaxWait,
		Local: local, Telemetry: tel,
	})
	if err != nil {
		return fmt.Errorf("connecting to the order service: %w", err)
	}
	if err := a.listen(ctx, cfg); err != nil {
		return err
	}
	access := orderv1.NewAccessServiceClient(a.orders)
	api := grpcapi.New(grpcapi.Config{
		Orders: orderv1.NewOrderServiceClient(a.orders), Clients: grpcapi.NewDirectory(clients, access),
		Timeout: cfg.CallTimeout, Rate: cfg.ClientRate, Burst: cfg.ClientBurst, Logger: logger,
		Meter: tel.Meter(meterName),
	})
	public, err := grpcx.NewServer(grpcx.ServerConfig{
		// Its own interceptor asks who calls.
		Public: true, Telemetry: tel, Logger: logger, MaxDuration: cfg.CallTimeout + cfg.CallTimeout/2 + grpcapi.MaxWait,
		Interceptors: []grpc.UnaryServerInterceptor{api.Intercept},
	})
	if err != nil {
		return err
	}
	orderv1.RegisterOrderServiceServer(public, api)

	var health lifecycle.Health
	health.AddCheck("gateway", a.group.Check)
	health.AddCheck("order", a.orderServes)
	terms := grpcapi.Terms{Own: api.Terms(), Service: access}
	ops := httpapi.Documents(terms.Get, logger)
	ops["/healthz"], ops["/readyz"], ops["/metrics"] = health.Healthz(), health.Readyz(), tel.MetricsHandler()
	handler, err := httpapi.NewHandler(ctx, api, ops, logger)
	if err != nil {
		return err
	}
	server := httpapi.NewServer(tel.ServerMiddleware(handler), cfg.CallTimeout+grpcapi.MaxWait)
	server.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
	a.group.Add("grpc", serveGRPC(public, a.grpc))
	a.group.Add("http", serveHTTP(server, httpapi.ProblemListener(a.http)))
	// Ends first, so that the servers' calls in hand are short ones.
	a.group.AddFunc("waits", func(stop, _ context.Context, ready func()) error {
		ready()
		<-stop.Done()
		api.StopWaiting()
		return nil
	})
	return nil
}

func (a *App) listen(ctx context.Context, cfg config.Config) (err error) {
	var lc net.ListenConfig
	if a.http == nil {
		if a.http, err = lc.Listen(ctx, "tcp", cfg.HTTPAddr); err != nil {
			return fmt.Errorf("listening for HTTP: %w", err)
		}
	}
	if a.grpc == nil {
		if a.grpc, err = lc.Listen(ctx, "tcp", cfg.GRPCAddr); err != nil {
			return fmt.Errorf("listening for gRPC: %w", err)
		}
	}
	return nil
}

// HTTPAddr answers where HTTP is served.
func (a *App) HTTPAddr() string { return a.http.Addr().String() }

// GRPCAddr answers where gRPC is served.
func (a *App) GRPCAddr() string { return a.grpc.Addr().String() }

// Run serves until stop is done and calls in hand have ended, or work is done; see lifecycle.Group. It closes the App.
func (a *App) Run(stop, work context.Context, ready func()) error {
	return errors.Join(a.group.Run(stop, work, ready), a.Close())
}

// Close lets go of ports and connections. It may be called again.
func (a *App) Close() error {
	var errs []error
	for _, l := range []net.Listener{a.http, a.grpc} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("closing a listener: %w", err))
		}
	}
	if a.orders != nil {
		_ = a.orders.Close() // an error here says that it is closed already
	}
	return errors.Join(errs...)
}

func (a *App) orderServes(ctx context.Context) error {
	resp, err := healthpb.NewHealthClient(a.orders).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("asking the order service: %w", err)
	}
	if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return ErrNotServing
	}
	return nil
}

// serve runs a server and answers a channel that is closed at its end, and where its error is then.
func serve(run func(net.Listener) error, l net.Listener) (<-chan struct{}, *error) {
	served, err := make(chan struct{}), new(error)
	go func() {
		defer close(served)
		*err = run(l)
	}()
	return served, err
}

func serveGRPC(s *grpcx.Server, l net.Listener) lifecycle.Func {
	return func(stop, work context.Context, ready func()) error {
		served, err := serve(s.Serve, l)
		ready()
		select {
		case <-served:
			return fmt.Errorf("serving gRPC: %w", *err)
		case <-stop.Done():
		}
		s.Drain(work.Done())
		<-served
		return nil
	}
}

func serveHTTP(s *http.Server, l net.Listener) lifecycle.Func {
	return func(stop, work context.Context, ready func()) error {
		served, err := serve(s.Serve, l)
		ready()
		select {
		case <-served:
			return fmt.Errorf("serving HTTP: %w", *err)
		case <-stop.Done():
		}
		if err := s.Shutdown(work); err != nil {
			// The time for calls in hand is over. A create that was passed on is finished by the order service.
			err = errors.Join(err, s.Close())
			<-served
			return fmt.Errorf("stopping HTTP: %w", err)
		}
		<-served
		return nil
	}
}
