// Package app wires the console together.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/console/internal/config"
	"github.com/throughline/throughline/services/console/internal/live"
	"github.com/throughline/throughline/services/console/internal/operator"
	"github.com/throughline/throughline/services/console/internal/session"
	"github.com/throughline/throughline/services/console/internal/web"
	"github.com/throughline/throughline/services/internal/topology"
)

// App is a console that listens and can be run.
type App struct {
	group    *lifecycle.Group
	services *operator.Services
	conn     *messaging.Conn
	listener net.Listener
}

// New makes a console and binds its port, so that a port that is taken is an error before anything runs. A listener takes the place of
// the configuration's address. Run or Close it.
func New(ctx context.Context, cfg config.Config, l net.Listener, tel *telemetry.Telemetry, logger *slog.Logger) (*App, error) {
	a := &App{group: lifecycle.New(logger, cfg.Grace), listener: l}
	if err := a.wire(ctx, cfg, tel, logger); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *App) wire(ctx context.Context, cfg config.Config, tel *telemetry.Telemetry, logger *slog.Logger) (err error) {
	a.services, err = operator.Dial(map[string]string{
		topology.Order: cfg.OrderAddr, topology.Payment: cfg.PaymentAddr, topology.Shipping: cfg.ShippingAddr,
	}, cfg.OperatorCredential, tel)
	if err != nil {
		return err
	}
	if a.conn, err = messaging.Connect(messaging.Config{URL: cfg.NATSURL, Name: "console", Logger: logger}); err != nil {
		return err
	}
	if a.listener == nil {
		var lc net.ListenConfig
		if a.listener, err = lc.Listen(ctx, "tcp", cfg.HTTPAddr); err != nil {
			return fmt.Errorf("listening for HTTP: %w", err)
		}
	}
	board := live.NewBoard(nil)
	feed := &live.Feed{Conn: a.conn, Board: board, Logger: logger}
	sampler := live.NewSampler(a.services.Doctors, a.services.Book)
	pages := web.New(web.Config{
		Services: a.services, Board: board, List: live.NewList(board, a.services.Book), Sampler: sampler, Trail: a.services.Trail(),
		Sessions: session.NewStore(cfg.ConsoleCredential, nil), Tries: session.NewTries(nil),
		JaegerURL: cfg.JaegerURL, PublicURL: cfg.PublicURL, Secure: cfg.Secure(), Logger: logger,
	})
	// Ready as soon as it serves: a service that does not answer is what an operator comes to see.
	var health lifecycle.Health
	health.AddCheck("console", a.group.Check)
	handler, err := pages.Handler(map[string]http.Handler{
		"/healthz": health.Healthz(), "/readyz": health.Readyz(), "/metrics": tel.MetricsHandler(),
	})
	if err != nil {
		return fmt.Errorf("making the pages: %w", err)
	}
	server := web.NewHTTPServer(tel.ServerMiddleware(handler), logger)
	a.group.AddFunc("feed", runs(feed.Run))
	a.group.AddFunc("sampler", runs(sampler.Run))
	a.group.AddFunc("http", serve(server, a.listener))
	// Ends first, so that the requests in hand are short ones.
	a.group.AddFunc("streams", runs(func(stop context.Context) error {
		<-stop.Done()
		pages.Drain()
		return nil
	}))
	return nil
}

// Addr answers where the console is served.
func (a *App) Addr() string { return a.listener.Addr().String() }

// Run serves until stop is done and requests in hand have ended, or work is done; see lifecycle.Group. It closes the App.
func (a *App) Run(stop, work context.Context, ready func()) error {
	return errors.Join(a.group.Run(stop, work, ready), a.Close())
}

// Close lets go of the port and the connections. It may be called again.
func (a *App) Close() error {
	if a.services != nil {
		_ = a.services.Close() // an error here says that it is closed already
	}
	if a.conn != nil {
		a.conn.Close()
	}
	if a.listener != nil {
		if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("closing the listener: %w", err)
		}
	}
	return nil
}

// runs makes a component of a function that needs no time to get ready.
func runs(run func(context.Context) error) lifecycle.Func {
	return func(stop, _ context.Context, ready func()) error {
		ready()
		return run(stop)
	}
}

func serve(s *http.Server, l net.Listener) lifecycle.Func {
	return func(stop, work context.Context, ready func()) error {
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		ready()
		select {
		case err := <-served:
			return fmt.Errorf("serving HTTP: %w", err)
		case <-stop.Done():
		}
		if err := s.Shutdown(work); err != nil {
			_ = s.Close() // whoever still reads an answer has had the time for it
		}
		<-served // how it ended after it was told to
		return nil
	}
}
