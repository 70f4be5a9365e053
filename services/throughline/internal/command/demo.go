package command

import (
	"github.com/spf13/cobra"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/services/throughline/internal/demo"
)

func demoCommand() *cobra.Command {
	inJSON := false
	cmd := describe(&cobra.Command{
		Use:   "demo",
		Short: "Play orders that go right and wrong on a fresh system, and check the money",
		Long: `Play orders that go right and wrong on a fresh system, and check the money. It uses a data folder and ports of its own,
touches nothing else, and leaves nothing running.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			stop, work, release := lifecycle.Signals(cmd.Context())
			defer release()
			if !inJSON {
				return demo.Run(stop, work, cmd.OutOrStdout(), nil)
			}
			var unprinted error
			err := demo.Run(stop, work, cmd.ErrOrStderr(), func(o demo.Outcome) {
				if failed := printJSON(cmd.OutOrStdout(), o); failed != nil {
					unprinted = failed
				}
			})
			if err == nil {
				err = unprinted
			}
			return err
		},
	}, `{"scene":NUMBER,"title":TEXT,"passed":BOOL,"error":TEXT}; scene 0 is the comparison at the end`,
		ending{0, "all orders, money and parcels agree"})
	cmd.Flags().BoolVar(&inJSON, "json", false, "print JSON, one object a line; the story goes to standard error")
	return cmd
}
