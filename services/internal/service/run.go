package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/telemetry"
)

// shutdownTelemetry is how long the last spans may take to leave.
const shutdownTelemetry = 5 * time.Second

// anyPort is where a service listens that was not told where.
const anyPort = "127.0.0.1:0"

// Run serves until ctx ends and the work in hand has ended. It returns nil after an ordinary end.
func Run(ctx context.Context, spec Spec, opts Options) (err error) {
	if spec.Settings == nil {
		spec.Settings = spec.Config
	}
	spec.Config = spec.Config.withDefaults()
	s := &server{spec: spec, opts: opts, log: opts.Logger, tel: opts.Telemetry}
	if s.log == nil {
		if s.log, err = spec.Config.newLogger(os.Stderr, spec.Name); err != nil {
			return err
		}
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "settings", config.Effective(config.Prefix, spec.Settings)...)
	if err := s.listen(ctx); err != nil {
		return err
	}
	defer s.close()
	if s.tel == nil {
		if s.tel, err = spec.Config.Setup(ctx, spec.Name, spec.Config.Instance, false, s.log); err != nil {
			return err
		}
		defer func() {
			// ctx is over by then.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTelemetry)
			defer cancel()
			err = errors.Join(err, s.tel.Shutdown(last))
		}()
	}
	work := opts.Work
	if work == nil {
		work = context.WithoutCancel(ctx)
	}
	// The probes are served until everything else has ended.
	outer := lifecycle.New(s.log, spec.Config.Grace)
	outer.AddFunc("probes", s.serveProbes)
	outer.AddFunc(spec.Name, s.run)
	s.health.AddCheck(spec.Name, s.check)
	return outer.Run(ctx, work, func() {
		s.log.Info("serving", "grpc_addr", s.addr.GRPC, "http_addr", s.addr.HTTP, "webhook_addr", s.addr.Webhook)
		if opts.Ready != nil {
			opts.Ready(s.addr)
		}
	})
}

// server is one run of a service.
type server struct {
	spec       Spec
	opts       Options
	log        *slog.Logger
	tel        *telemetry.Telemetry
	grpc, http net.Listener
	webhooks   net.Listener // nil takes none
	addr       Addresses
	health     lifecycle.Health
	state      state
}

// check answers readiness for the start-up and the end; between them it follows the parts.
func (s *server) check(ctx context.Context) error { return s.state.check(ctx) }

// owner names this instance in leases. The random part tells two runs of one instance apart.
func (s *server) owner() string {
	name := s.spec.Name
	if s.spec.Config.Instance != "" {
		name += "/" + s.spec.Config.Instance
	}
	return name + "/" + uuid.NewString()[:8]
}

func (s *server) listen(ctx context.Context) (err error) {
	s.grpc, s.http = s.opts.GRPCListener, s.opts.HTTPListener
	if s.grpc == nil {
		if s.grpc, err = listen(ctx, s.spec.GRPCAddr); err != nil {
			s.close()
			return fmt.Errorf("listening for gRPC: %w", err)
		}
	}
	if s.http == nil {
		if s.http, err = listen(ctx, s.spec.HTTPAddr); err != nil {
			s.close()
			return fmt.Errorf("listening for HTTP: %w", err)
		}
	}
	s.addr = Addresses{GRPC: s.grpc.Addr().String(), HTTP: s.http.Addr().String()}
	s.webhooks = s.opts.WebhookListener
	if s.webhooks == nil && s.spec.WebhookAddr != "" {
		if s.webhooks, err = listen(ctx, s.spec.WebhookAddr); err != nil {
			s.close()
			return fmt.Errorf("listening for webhooks: %w", err)
		}
	}
	if s.webhooks != nil {
		s.addr.Webhook = s.webhooks.Addr().String()
	}
	return nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	if addr == "" {
		addr = anyPort
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", addr) // the error names the address
}

func (s *server) close() {
	for _, l := range []net.Listener{s.grpc, s.http, s.webhooks} {
		if l != nil {
			_ = l.Close() // an error says that its server has closed it
		}
	}
}

func (s *server) serveProbes(stop, work context.Context, ready func()) error {
	mux := http.NewServeMux()
	s.health.Register(mux)
	mux.Handle("GET /metrics", s.tel.MetricsHandler())
	return s.serveHTTP(s.http, mux, stop, work, func() {
		if s.opts.Serving != nil {
			s.opts.Serving(s.addr)
		}
		ready()
	})
}

// serveHTTP serves until stop ends, and lets requests in hand end until work does.
func (s *server) serveHTTP(l net.Listener, handler http.Handler, stop, work context.Context, ready func()) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	ready()
	select {
	case err := <-served:
		return fmt.Errorf("serving HTTP: %w", err)
	case <-stop.Done():
	}
	if err := server.Shutdown(work); err != nil {
		_ = server.Close() // whoever still reads an answer has had the time for it
	}
	<-served // how it ended after it was told to
	return nil
}
