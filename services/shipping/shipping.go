// Package shipping is the shipping service: it performs the steps of orders that move parcels, at the carrier.
package shipping

import (
	"context"

	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/shipping/internal/app"
	"github.com/throughline/throughline/services/shipping/internal/config"
)

// Config is the service's settings.
type Config = config.Config

// Options are what a process that runs several services shares with this one. The zero value works.
type Options = service.Options

// Run is the program: it reads its settings from environ and serves until a signal comes or ctx ends.
func Run(ctx context.Context, args, environ []string) error {
	return service.Main(ctx, args, environ, RunWith, func(c Config) string { return c.HTTPAddr })
}

// RunWith serves until ctx ends and the work in hand has ended. It returns nil after an ordinary end.
func RunWith(ctx context.Context, cfg Config, opts Options) error {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	return service.Run(ctx, app.Spec(cfg), opts)
}
