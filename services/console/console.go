// Package console is the operators' web page: what happens now, the story of any order, and the decisions that wait for a person. It has
// no database: everything comes from the services, by the calls that are for operators.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	pkgconfig "github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/console/internal/app"
	"github.com/throughline/throughline/services/console/internal/config"
	"github.com/throughline/throughline/services/internal/service"
)

// Name is the service's name in logs, traces and metrics.
const Name = "console"

// shutdownTelemetry is how long the last spans may take to leave.
const shutdownTelemetry = 5 * time.Second

// Config is the console's settings.
type Config = config.Config

// Options are what a process that runs several services shares with this one. The zero value works.
type Options = service.Options

// Run is the program: it reads its settings from environ and serves until a signal comes or ctx ends. The first SIGINT or
// SIGTERM lets requests in hand end, the second does not. With the argument "healthcheck" it asks a running console whether it
// is ready.
func Run(ctx context.Context, args, environ []string) error {
	return service.Main(ctx, args, environ, RunWith, func(c Config) string { return c.HTTPAddr })
}

// RunWith serves until ctx ends and requests in hand have ended.
func RunWith(ctx context.Context, cfg Config, opts Options) (err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("checking the settings: %w", err)
	}
	logger := opts.Logger
	if logger == nil {
		var level slog.Level
		if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
			return fmt.Errorf("reading THROUGHLINE_LOG_LEVEL: %w", err)
		}
		if logger, err = telemetry.NewLogger(os.Stderr, cfg.LogFormat, level, Name, cfg.Instance); err != nil {
			return err
		}
	}
	tel := opts.Telemetry
	if tel == nil {
		tel, err = telemetry.Setup(ctx, telemetry.Config{
			ServiceName: Name, Instance: cfg.Instance, OTLPEndpoint: cfg.OTLPEndpoint, Logger: logger,
		})
		if err != nil {
			return fmt.Errorf("setting up telemetry: %w", err)
		}
		defer func() {
			// ctx is over by then.
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTelemetry)
			defer cancel()
			err = errors.Join(err, tel.Shutdown(last))
		}()
	}
	work := opts.Work // requests in hand outlive ctx, for Config.Grace
	if work == nil {
		work = context.WithoutCancel(ctx)
	}
	logger.LogAttrs(ctx, slog.LevelInfo, "settings", pkgconfig.Effective(pkgconfig.Prefix, cfg)...)
	a, err := app.New(ctx, cfg, opts.HTTPListener, tel, logger)
	if err != nil {
		return err
	}
	return a.Run(ctx, work, func() {
		at := service.Addresses{HTTP: a.Addr()}
		logger.InfoContext(ctx, "serving", "http_addr", at.HTTP)
		// It waits for nothing: a service that does not answer is said on the page.
		for _, tell := range []func(service.Addresses){opts.Serving, opts.Ready} {
			if tell != nil {
				tell(at)
			}
		}
	})
}
