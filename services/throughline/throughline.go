// Package throughline is the whole system in one program: all services, and what they need, for development and
// demonstrations; and each service by itself.
package throughline

import (
	"context"

	"github.com/throughline/throughline/services/throughline/internal/command"
)

// Run is the program.
func Run(ctx context.Context, args, environ []string) error {
	return command.Run(ctx, args, environ)
}
