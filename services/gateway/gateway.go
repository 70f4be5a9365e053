// Package gateway is the public edge: HTTP and gRPC in, the order service behind. It holds no state.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	pkgconfig "github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/gateway/internal/app"
	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/internal/service"
)

// Name is the service's name in logs, traces and metrics.
const Name = "gateway"

// shutdownTelemetry is how long the last spans may take to leave.
const shutdownTelemetry = 5 * time.Second

// Config is the gateway's settings.
type Config = config.Config

// Options are what a process that runs several services shares with this one. The zero value works.
type Options = service.Options

// Addresses are where a gateway serves.
type Addresses = service.Addresses

// Run is the program: it reads its settings from environ and serves until a signal comes or ctx ends. The first SIGINT or
// SIGTERM lets calls in hand end, the second does not. With the argument "healthcheck" it asks a running gateway whether it
// is ready.
func Run(ctx context.Context, args, environ []string) error {
	return service.Main(ctx, args, environ, RunWith, func(c Config) string { return c.HTTPAddr })
}

// RunWith serves until ctx ends and calls in hand have ended.
func RunWith(ctx context.Context, cfg Config, opts Options) (err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("checking the settings: %w", err)
	}
	logger := opts.Logger
	if logger == nil {
		if logger, err = newLogger(cfg); err != nil {
			return err
		}
	}
	tel := opts.Telemetry
	if tel == nil {
		if tel, err = cfg.Setup(ctx, Name, cfg.Instance, true, logger); err != nil {
			return err
		}
		defer func() {
			// ctx is over by then.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTelemetry)
			defer cancel()
			err = errors.Join(err, tel.Shutdown(last))
		}()
	}
	work := opts.Work // calls in hand outlive ctx, for Config.Grace
	if work == nil {
		work = context.WithoutCancel(ctx)
	}
	logger.LogAttrs(ctx, slog.LevelInfo, "settings", pkgconfig.Effective(pkgconfig.Prefix, cfg)...)
	a, err := app.New(ctx, cfg, app.Network{HTTP: opts.HTTPListener, GRPC: opts.GRPCListener, Local: opts.Local}, tel, logger)
	if err != nil {
		return err
	}
	return a.Run(ctx, work, func() {
		at := service.Addresses{HTTP: a.HTTPAddr(), GRPC: a.GRPCAddr()}
		logger.InfoContext(ctx, "serving", "http_addr", at.HTTP, "grpc_addr", at.GRPC)
		// It waits for nothing, so that the probes are served no sooner than the calls.
		for _, tell := range []func(service.Addresses){opts.Serving, opts.Ready} {
			if tell != nil {
				tell(at)
			}
		}
	})
}

func newLogger(cfg Config) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return nil, fmt.Errorf("reading THROUGHLINE_LOG_LEVEL: %w", err)
	}
	return telemetry.NewLogger(os.Stderr, cfg.LogFormat, level, Name, cfg.Instance)
}
