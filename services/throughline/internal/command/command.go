// Package command is the command line.
package command

import (
	"context"
	"fmt"
	"io"
	"os"

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
	root := newRoot(environ, os.Stdout, os.Stderr)
	root.SetArgs(args[1:])
	return root.ExecuteContext(ctx)
}

// newRoot makes the program with all its commands, which write to out and complaints.
func newRoot(environ []string, out, complaints io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "throughline",
		Short: "An order-processing saga with one key from end to end",
		Long: `An order-processing saga with one key from end to end.

What commands print goes to standard output, and as JSON with --json: one object a line, whose members keep their names and meanings, and may
be joined by more. What went wrong goes to standard error, and every command's help lists the codes that it ends with.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(out)
	root.SetErr(complaints)
	root.AddCommand(
		upCommand(environ), demoCommand(),
		placeCommand(environ), getCommand(environ), traceCommand(environ), watchCommand(environ), cancelCommand(environ),
		deadLettersCommand(environ), attentionCommand(environ), outboxCommand(environ), clientsCommand(environ), doctorCommand(environ), verifyCommand(environ),
		serviceCommand(environ), versionCommand(),
	)
	root.InitDefaultCompletionCmd()
	withoutFiles(root)
	if shells, _, err := root.Find([]string{"completion"}); err == nil {
		for _, shell := range shells.Commands() {
			describe(shell, "", ending{0, "it was printed"})
		}
	}
	return root
}

// serviceCommand runs one service like its own program does.
func serviceCommand(environ []string) *cobra.Command {
	services := map[string]func(ctx context.Context, args, environ []string) error{
		stack.Gateway: gateway.Run, stack.Order: order.Run, stack.Payment: payment.Run, stack.Shipping: shipping.Run,
		stack.Console: console.Run,
	}
	strict := false
	cmd := describe(&cobra.Command{
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
	}, "", ending{0, "it was stopped by a signal"})
	cmd.Flags().BoolVar(&strict, "strict", false, "do not start the order service while there are unfinished orders whose saga this release does not define")
	return cmd
}
