package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	"github.com/throughline/throughline/services/throughline/internal/stack"
)

func (a *attentionRun) releaseCommand() *cobra.Command {
	cmd := describe(&cobra.Command{
		Use:   "release",
		Short: "Let all work that is due go at once, after an outage",
		Long: `Let all work that is due go at once, for ten minutes: orders whose deadline has passed, and steps at payment and shipping that are
attempted again. Without it they are worked off at a limited rate (THROUGHLINE_DUE_RATE, THROUGHLINE_STEP_RETRY_RATE), so that the provider and
the carrier, which have just come back, are not overrun. What waits longer because it has failed becomes due, too.`,
		Args: cobra.NoArgs, RunE: a.release,
	}, answers("throughline.attention.v1.ReleaseResponse"), ending{0, "it is released, or was before under the same --request-key"}, refusal)
	f := cmd.Flags()
	f.StringVar(&a.reason, "reason", "", "why; it is kept on record")
	f.StringVar(&a.actor, "actor", whoAmI(), "who releases")
	f.StringVar(&a.key, "request-key", "", "names this release, so that it may be repeated (default: a new one)")
	return cmd
}

func (a *attentionRun) release(cmd *cobra.Command, _ []string) error {
	if a.reason == "" {
		return errNoReason
	}
	if a.key == "" {
		a.key = uuid.NewString()
	}
	err := a.call(cmd.Context(), func(ctx context.Context, s attentionv1.AttentionServiceClient) error {
		resp, err := s.Release(ctx, &attentionv1.ReleaseRequest{RequestKey: a.key, Actor: a.actor, Reason: a.reason})
		if err != nil {
			return err
		}
		if a.json {
			return a.print(cmd.OutOrStdout(), stack.Order, resp)
		}
		due := resp.GetDueWork()
		var steps []string
		for _, name := range slices.Sorted(maps.Keys(due.GetSteps())) {
			steps = append(steps, fmt.Sprintf("%d steps at %s", due.GetSteps()[name], name))
		}
		again := ""
		if resp.GetReplayed() {
			again = " (released before)"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "released%s: %d orders, %s\n", again, due.GetSagas(), strings.Join(steps, ", "))
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; the same with --request-key %s is done once, however often it is repeated", err, a.key)
	}
	return nil
}
