package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	"github.com/throughline/throughline/services/throughline/internal/stack"
)

// errNoReason says that a decision has no reason.
var errNoReason = errors.New("say why with --reason; it is kept with the order")

type attentionRun struct {
	operator
	step   string
	key    string
	actor  string
	reason string
}

// attentionCommand is about orders that wait for a person.
func attentionCommand(environ []string) *cobra.Command {
	a := &attentionRun{operator: operator{environ: environment(environ)}}
	cmd := &cobra.Command{
		Use:   "attention",
		Short: "Look at orders that wait for a person, and decide about them",
		Long: `Look at orders that wait for a person, and decide about them.

An order waits for a person when an undo was refused (money could not be given back, say), when a step at or after the capture of the
payment has had no outcome for too long, or when a payment succeeded after everything had been undone. show tells what there is to know;
look at the provider and at the carrier, too, before you decide. Who decided, why, and what it changed is kept with the order.

The order service is called with the operator credential in THROUGHLINE_OPERATOR_CREDENTIAL, or else the one of the system that was
started by "throughline up" with the same data folder.`,
	}
	a.flags(cmd, stack.Order)
	list := describe(&cobra.Command{Use: "list", Short: "List the orders that wait for a person, the longest first", Args: cobra.NoArgs, RunE: a.list},
		answers("throughline.attention.v1.Case"), ending{0, "all were printed, also if there are none"}, refusal)
	show := describe(&cobra.Command{
		Use: "show ORDER-ID", Short: "Show what an order is at, how it got there, and what payment and shipping have on record",
		Args: cobra.ExactArgs(1), RunE: a.show, ValidArgsFunction: a.complete,
	}, answers("throughline.attention.v1.GetAttentionResponse"), ending{0, "it was shown"}, unknownName, refusal)
	cmd.AddCommand(list, show,
		a.decision("retry ORDER-ID", "Attempt now what has no outcome, or once more the undo that was refused", attentionv1.Resolution_RESOLUTION_RETRY),
		a.decision("undo ORDER-ID", "Wait no longer for a step, and undo the order by the undos of the others; or say that an undo was done by other means",
			attentionv1.Resolution_RESOLUTION_UNDO_OTHER_WAY),
		a.releaseCommand(),
		a.decision("mark-done ORDER-ID", "Say that the step, or its undo, is done: you have made sure of it", attentionv1.Resolution_RESOLUTION_MARK_DONE),
	)
	return cmd
}

// decision makes the command of one resolution.
func (a *attentionRun) decision(use, short string, r attentionv1.Resolution) *cobra.Command {
	cmd := describe(&cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.complete,
		RunE: func(cmd *cobra.Command, args []string) error { return a.resolve(cmd, args[0], r) },
	}, answers("throughline.attention.v1.ResolveResponse"), ending{0, "it is decided, or was before under the same --request-key"}, unknownName, refusal)
	cmd.Flags().StringVar(&a.reason, "reason", "", "why; kept with the order")
	cmd.Flags().StringVar(&a.actor, "actor", whoAmI(), "who; kept with the order")
	cmd.Flags().StringVar(&a.step, "step", "", "the step or the undo to decide about (default the one that needs a person)")
	cmd.Flags().StringVar(&a.key, "request-key", "", "names the decision, so that it can be repeated without being made twice (default a new one)")
	mustComplete(cmd, "step", a.completeStep)
	return cmd
}

// call calls the order service.
func (a *attentionRun) call(ctx context.Context, call func(context.Context, attentionv1.AttentionServiceClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, operatorTimeout)
	defer cancel()
	return a.each(ctx, []string{stack.Order}, func(ctx context.Context, _ string, conn *grpc.ClientConn) error {
		return call(ctx, attentionv1.NewAttentionServiceClient(conn))
	})
}

// complete offers the orders that wait for a person.
func (a *attentionRun) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	return offer(cmd, &found, func(ctx context.Context) error {
		return a.call(ctx, func(ctx context.Context, s attentionv1.AttentionServiceClient) error {
			resp, err := s.ListAttention(ctx, &attentionv1.ListAttentionRequest{})
			for _, c := range resp.GetCases() {
				found = append(found, cobra.CompletionWithDesc(c.GetOrderId(), c.GetReason()+" at "+c.GetStep()))
			}
			return err
		})
	})
}

// completeStep offers the steps of the order that is named.
func (a *attentionRun) completeStep(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	return offer(cmd, &found, func(ctx context.Context) error {
		return a.call(ctx, func(ctx context.Context, s attentionv1.AttentionServiceClient) error {
			resp, err := s.GetAttention(ctx, &attentionv1.GetAttentionRequest{OrderId: args[0]})
			for _, step := range resp.GetSteps() {
				found = append(found, cobra.CompletionWithDesc(step.GetName(), step.GetPhase()))
			}
			return err
		})
	})
}

func (a *attentionRun) list(cmd *cobra.Command, _ []string) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	if !a.json {
		fmt.Fprintln(w, "ORDER\tCLIENT\tSINCE\tREASON\tSTEP\tTOTAL\tDETAIL")
	}
	err := a.call(cmd.Context(), func(ctx context.Context, s attentionv1.AttentionServiceClient) error {
		req := new(attentionv1.ListAttentionRequest)
		for {
			resp, err := s.ListAttention(ctx, req)
			if err != nil {
				return err
			}
			for _, c := range resp.GetCases() {
				if a.json {
					if err := a.print(cmd.OutOrStdout(), stack.Order, c); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d %s\t%s\n", c.GetOrderId(), c.GetClientId(), clock(c.GetSince()), c.GetReason(), c.GetStep(),
					c.GetTotal(), c.GetCurrency(), shortened(c.GetDetail()))
			}
			if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
				return nil
			}
		}
	})
	return errors.Join(err, w.Flush())
}

func (a *attentionRun) show(cmd *cobra.Command, args []string) error {
	return a.call(cmd.Context(), func(ctx context.Context, s attentionv1.AttentionServiceClient) error {
		resp, err := s.GetAttention(ctx, &attentionv1.GetAttentionRequest{OrderId: args[0]})
		if err != nil {
			return err
		}
		if a.json {
			return a.print(cmd.OutOrStdout(), stack.Order, resp)
		}
		return showCase(cmd.OutOrStdout(), resp)
	})
}

// showCase writes a case for people.
func showCase(out io.Writer, r *attentionv1.GetAttentionResponse) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	c := r.GetCase()
	line("order\t%s", c.GetOrderId())
	line("client\t%s, key %s", c.GetClientId(), c.GetIdempotencyKey())
	line("total\t%d %s (minor units)", c.GetTotal(), c.GetCurrency())
	line("status\t%s, saga %s %s", c.GetStatus(), r.GetSagaStatus(), c.GetFailureReason())
	if c.GetSince() != nil {
		line("waits\tsince %s for a person: %s (%s, %s)", clock(c.GetSince()), c.GetDetail(), c.GetReason(), c.GetStep())
	}
	line("\nSTEP\tPHASE\tSINCE\tSENT\tASKED\tREASON\tATTENTION")
	for _, s := range r.GetSteps() {
		line("%s\t%s\t%s\t%d\t%d\t%s\t%s", s.GetName(), s.GetPhase(), clock(s.GetSince()), s.GetAttempts(), s.GetAsked(), s.GetReason(), s.GetAttention())
	}
	line("\nON RECORD AT\tSTEP\tSTATE\tREASON\tATTEMPTS\tREFERENCE\tLAST ERROR")
	for _, rec := range r.GetRecords() {
		state, problem := rec.GetState(), rec.GetLastError()
		if rec.GetUndone() {
			state += ", undone"
		}
		if rec.GetError() != "" {
			state, problem = "no answer", rec.GetError()
		}
		line("%s\t%s\t%s\t%s\t%d\t%s\t%s", rec.GetParticipant(), rec.GetStep(), state, rec.GetReason(), rec.GetAttempts(), rec.GetReference(), shortened(problem))
	}
	line("\nAT\tSTEP\tFROM\tTO\tBY")
	for _, t := range r.GetHistory() {
		step := t.GetStep()
		if step == "" {
			step = "(order)"
		}
		line("%s\t%s\t%s\t%s\t%s", clock(t.GetAt()), step, t.GetFrom(), t.GetTo(), t.GetCause())
	}
	if len(r.GetActions()) > 0 {
		line("\nDECIDED AT\tBY\tSTEP\tWHAT\tWHY")
	}
	for _, action := range r.GetActions() {
		line("%s\t%s\t%s\t%s\t%s", clock(action.GetAt()), action.GetActor(), action.GetStep(), resolutionName(action.GetResolution()), action.GetReason())
	}
	return w.Flush()
}

// resolve decides. The key is shown, so that a decision whose answer was lost can be repeated.
func (a *attentionRun) resolve(cmd *cobra.Command, id string, r attentionv1.Resolution) error {
	if a.reason == "" {
		return errNoReason
	}
	if a.key == "" {
		a.key = uuid.NewString()
	}
	err := a.call(cmd.Context(), func(ctx context.Context, s attentionv1.AttentionServiceClient) error {
		resp, err := s.Resolve(ctx, &attentionv1.ResolveRequest{
			RequestKey: a.key, OrderId: id, Step: a.step, Resolution: r, Actor: a.actor, Reason: a.reason,
		})
		if err != nil {
			return err
		}
		if a.json {
			return a.print(cmd.OutOrStdout(), stack.Order, resp)
		}
		again := ""
		if resp.GetReplayed() {
			again = " (decided before)"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s of order %s: %s%s; the order is %s now\n", resp.GetAction().GetStep(), id, resolutionName(r), again, resp.GetStatus())
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; the same with --request-key %s is decided once, however often it is repeated", err, a.key)
	}
	return nil
}

func resolutionName(r attentionv1.Resolution) string {
	switch r {
	case attentionv1.Resolution_RESOLUTION_RETRY:
		return "retry"
	case attentionv1.Resolution_RESOLUTION_UNDO_OTHER_WAY:
		return "undo"
	case attentionv1.Resolution_RESOLUTION_MARK_DONE:
		return "mark-done"
	default:
		return r.String()
	}
}

// clock writes a time for people; "-" if there is none.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Format(time.RFC3339)
}
