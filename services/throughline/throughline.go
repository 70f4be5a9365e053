// Package throughline is the whole system in one program: all services, and what they need, for development and
// demonstrations; and each service by itself.
package throughline

import (
	"context"

	"github.com/throughline/throughline/services/throughline/internal/command"
)

// ExitCode gives the code that the program ends with after what Run returned: 0 for success, 1 for failure, 3 if there is nothing of the
// name that was asked for, 4 if an answer is true and not complete, 5 for a definite no, 6 if what was looked at is not as it must be.
func ExitCode(err error) int { return command.ExitCode(err) }

// Run is the program.
func Run(ctx context.Context, args, environ []string) error {
	return command.Run(ctx, args, environ)
}
