// Package command is the command line.
package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/throughline/throughline/services/console"
	"github.com/throughline/throughline/services/gateway"
	"github.com/throughline/throughline/services/order"
	"github.com/throughline/throughline/services/payment"
	"github.com/throughline/throughline/services/shipping"
	"github.com/throughline/throughline/services/throughline/internal/stack"
)

// Run reads the command line and does what it says.
func Run(ctx context.Context, args, environ []string) error {
	root := &cobra.Command{
		Use:           "throughline",
		Short:         "An order-processing saga with one key from end to end",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(environ), demoCommand(), clientsCommand(environ), deadLettersCommand(environ), outboxCommand(environ), doctorCommand(environ), attentionCommand(environ), placeCommand(environ), getCommand(environ), cancelCommand(environ), traceCommand(environ), watchCommand(environ), serviceCommand(environ), versionCommand())
	root.SetArgs(args[1:])
	return root.ExecuteContext(ctx)
}

// serviceCommand runs one service like its own program does.
func serviceCommand(environ []string) *cobra.Command {
	services := map[string]func(ctx context.Context, args, environ []string) error{
		stack.Gateway: gateway.Run, stack.Order: order.Run, stack.Payment: payment.Run, stack.Shipping: shipping.Run,
		stack.Console: console.Run,
	}
	strict := false
	cmd := &cobra.Command{
		Use:       "service {gateway|order|payment|shipping|console}",
		Short:     "Run one service, configured by its environment",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: stack.Services(),
		RunE: func(cmd *cobra.Command, args []string) error {
			args = args[:1:1]
			if strict {
				if args[0] != stack.Order {
					return fmt.Errorf("--strict is for the order service, and not for %s", args[0])
				}
				args = append(args, "--strict")
			}
			return services[args[0]](cmd.Context(), args, environ)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "do not start the order service while there are unfinished orders whose saga this release does not define")
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}
