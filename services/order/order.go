// Package order is the order service: it takes orders, runs the saga place-order for each, and tells what became of them.
package order

import (
	"context"
	"slices"
	"strings"

	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/order/internal/app"
	"github.com/throughline/throughline/services/order/internal/config"
)

// Config is the service's settings.
type Config = config.Config

// Options are what a process that runs several services shares with this one. The zero value works.
type Options = service.Options

// Run is the program: it reads its settings from environ and serves until a signal comes or ctx ends. Called as
// "<binary> healthcheck" it asks the running service whether it is ready. The argument --strict stands for THROUGHLINE_STRICT=true.
func Run(ctx context.Context, args, environ []string) error {
	args, environ = strictly(args, environ)
	return service.Main(ctx, args, environ, RunWith, func(c Config) string { return c.HTTPAddr })
}

// strictly turns the argument --strict into its setting.
func strictly(args, environ []string) (rest, settings []string) {
	const flag, variable = "--strict", "THROUGHLINE_STRICT="
	if !slices.Contains(args, flag) {
		return args, environ
	}
	rest = slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == flag })
	settings = slices.DeleteFunc(slices.Clone(environ), func(s string) bool { return strings.HasPrefix(s, variable) })
	return rest, append(settings, variable+"true")
}

// RunWith serves until ctx ends and the work in hand has ended. It returns nil after an ordinary end.
func RunWith(ctx context.Context, cfg Config, opts Options) error {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return err
	}
	return service.Run(ctx, app.Spec(cfg), opts)
}
