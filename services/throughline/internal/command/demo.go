package command

import (
	"github.com/spf13/cobra"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/services/throughline/internal/demo"
)

func demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Play orders that go right and wrong on a fresh system, and check the money",
		Long: `Play orders that go right and wrong on a fresh system, and check the money. It uses a data folder and ports of its own,
touches nothing else, and leaves nothing running. The exit status is 0 only if all orders, money and parcels agree.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			stop, work, release := lifecycle.Signals(cmd.Context())
			defer release()
			return demo.Run(stop, work, cmd.OutOrStdout())
		},
	}
}
