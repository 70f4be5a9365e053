package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	deadletterv1 "github.com/throughline/throughline/proto/gen/throughline/deadletter/v1"
	"github.com/throughline/throughline/services/internal/topology"
)

// errNotAllDone says that something was asked for and not done, so that the exit status tells scripts.
var errNotAllDone = errors.New("not everything was done")

// notDone is how commands end that do something about several messages.
var notDone = ending{ExitRefused, "not everything was done: some failed or were refused, as is printed for each"}

type deadLettersRun struct {
	operator
	services []string
	consumer string
	orderID  string
	all      bool
	execute  bool
	actor    string
	reason   string
}

// deadLettersCommand is about messages that services could not deal with.
func deadLettersCommand(environ []string) *cobra.Command {
	d := &deadLettersRun{operator: operator{environ: environment(environ)}}
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "Look at messages that a service could not deal with, replay or discard them",
		Long: `Look at messages that a service could not deal with, replay or discard them.

A replay runs the handler from the stored message, inside the service: nobody else sees it, and what came of it is printed for each
message. replay and discard only say what they would do, unless --execute is given; then --reason is needed, and who did it, why and
with what outcome is kept with the message. A dead letter is named SERVICE/ID, as list prints it.`,
	}
	d.flags(cmd)
	const acted = `"dead_letter":ID,`
	done := ending{0, "nothing failed, also if there was nothing to do"}
	list := describe(&cobra.Command{Use: "list", Short: "List the open ones, the oldest first", Args: cobra.NoArgs, RunE: d.list},
		answers("throughline.deadletter.v1.DeadLetter"), ending{0, "all were printed, also if there are none"}, someSilent, refusal)
	d.filters(list)
	list.Flags().BoolVar(&d.all, "all", false, "settled ones, too")
	show := describe(&cobra.Command{
		Use: "show SERVICE/ID", Short: "Show one, whole, and what was done about it", Args: cobra.ExactArgs(1), RunE: d.show,
	}, answers("throughline.deadletter.v1.GetDeadLetterResponse"), ending{0, "it was shown"}, unknownName, refusal)
	replay := describe(&cobra.Command{
		Use: "replay [SERVICE/ID...]", Short: "Have them handled again; those of the filters when none is named", RunE: d.replay,
	}, envelope(acted, "throughline.deadletter.v1.Report"), done, unknownName, someSilent, notDone)
	discard := describe(&cobra.Command{
		Use: "discard SERVICE/ID...", Short: "Decide that they are never to be dealt with", Args: cobra.MinimumNArgs(1), RunE: d.discard,
	}, envelope(acted, "throughline.deadletter.v1.Report"), done, unknownName, someSilent, notDone)
	for _, named := range []*cobra.Command{show, replay, discard} {
		named.ValidArgsFunction = d.complete
	}
	d.filters(replay)
	for _, act := range []*cobra.Command{replay, discard} {
		act.Flags().BoolVar(&d.execute, "execute", false, "do it; without this it is only said what would be done")
		act.Flags().StringVar(&d.reason, "reason", "", "why; kept with the message")
		act.Flags().StringVar(&d.actor, "actor", whoAmI(), "who; kept with the message")
	}
	cmd.AddCommand(list, show, replay, discard)
	return cmd
}

func (d *deadLettersRun) filters(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&d.services, "service", nil, "only of these services")
	cmd.Flags().StringVar(&d.consumer, "consumer", "", "only of this consumer")
	cmd.Flags().StringVar(&d.orderID, "order-id", "", "only of this order")
	mustComplete(cmd, "service", several(withDatabase()...))
	mustComplete(cmd, "consumer", choices(topology.OrderRepliesConsumer, topology.PaymentCommandsConsumer, topology.ShippingCommandsConsumer))
}

// complete offers the open ones that are not named yet.
func (d *deadLettersRun) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() == "show" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	return offer(cmd, &found, func(ctx context.Context) error {
		return d.each(ctx, nil, func(ctx context.Context, service string, conn *grpc.ClientConn) error {
			resp, err := deadletterv1.NewDeadLetterServiceClient(conn).ListDeadLetters(ctx, &deadletterv1.ListDeadLettersRequest{})
			for _, l := range resp.GetDeadLetters() {
				if name := fmt.Sprintf("%s/%d", service, l.GetId()); !slices.Contains(args, name) {
					found = append(found, cobra.CompletionWithDesc(name, shortened(l.GetError())))
				}
			}
			return err
		})
	})
}

func (d *deadLettersRun) list(cmd *cobra.Command, _ []string) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	if !d.json {
		fmt.Fprintln(w, "DEAD LETTER\tSTATE\tSINCE\tCONSUMER\tORDER\tSUBJECT\tATTEMPTS\tERROR")
	}
	err := d.each(cmd.Context(), d.services, func(ctx context.Context, service string, conn *grpc.ClientConn) error {
		return d.pages(ctx, conn, func(l *deadletterv1.DeadLetter) error {
			if d.json {
				return d.print(cmd.OutOrStdout(), service, l)
			}
			_, err := fmt.Fprintf(w, "%s/%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", service, l.GetId(), l.GetState(), l.GetCreatedAt().AsTime().Format("2006-01-02T15:04:05Z"),
				l.GetConsumer(), l.GetOrderId(), l.GetSubject(), l.GetAttempts(), shortened(l.GetError()))
			return err
		})
	})
	return errors.Join(err, w.Flush())
}

// pages calls found with each letter of the filters.
func (d *deadLettersRun) pages(ctx context.Context, conn *grpc.ClientConn, found func(*deadletterv1.DeadLetter) error) error {
	client := deadletterv1.NewDeadLetterServiceClient(conn)
	req := &deadletterv1.ListDeadLettersRequest{Consumer: d.consumer, OrderId: d.orderID, IncludeSettled: d.all}
	for {
		resp, err := client.ListDeadLetters(ctx, req)
		if err != nil {
			return err
		}
		for _, l := range resp.GetDeadLetters() {
			if err := found(l); err != nil {
				return err
			}
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return nil
		}
	}
}

// shortened is the first line of an error, cut.
func shortened(s string) string {
	const most = 100
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// parseName takes SERVICE/ID apart.
func parseName(name string) (service string, id int64, err error) {
	service, number, ok := strings.Cut(name, "/")
	if id, err = strconv.ParseInt(number, 10, 64); err != nil || !ok || !slices.Contains(withDatabase(), service) {
		return "", 0, fmt.Errorf("%q names no dead letter; they are named like payment/7", name)
	}
	return service, id, nil
}

func (d *deadLettersRun) show(cmd *cobra.Command, args []string) error {
	service, id, err := parseName(args[0])
	if err != nil {
		return err
	}
	return d.each(cmd.Context(), []string{service}, func(ctx context.Context, service string, conn *grpc.ClientConn) error {
		resp, err := deadletterv1.NewDeadLetterServiceClient(conn).GetDeadLetter(ctx, &deadletterv1.GetDeadLetterRequest{Id: id})
		if err != nil {
			return err
		}
		if d.json {
			return d.print(cmd.OutOrStdout(), service, resp)
		}
		return showLetter(cmd.OutOrStdout(), service, resp)
	})
}

func showLetter(out io.Writer, service string, resp *deadletterv1.GetDeadLetterResponse) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	l := resp.GetDeadLetter()
	fmt.Fprintf(w, "dead letter\t%s/%d, %s\nconsumer\t%s\norder\t%s\nmessage\t%s\nsubject\t%s\ntype\t%s\nstep\t%s\nattempts\t%d\nstored\t%s, sequence %d\nsince\t%s\nerror\t%s\n",
		service, l.GetId(), l.GetState(), l.GetConsumer(), l.GetOrderId(), l.GetMessageId(), l.GetSubject(), l.GetType(), l.GetStepName(),
		l.GetAttempts(), l.GetStoredAt().AsTime(), l.GetStreamSequence(), l.GetCreatedAt().AsTime(), l.GetError())
	names := make([]string, 0, len(resp.GetHeaders()))
	for name := range resp.GetHeaders() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "header\t%s: %s\n", name, resp.GetHeaders()[name])
	}
	fmt.Fprintf(w, "payload\t%d bytes\n", len(resp.GetPayload()))
	for _, a := range resp.GetActions() {
		fmt.Fprintf(w, "%s\t%s by %s (%s): %s %s\n", a.GetAction(), a.GetCreatedAt().AsTime(), a.GetActor(), a.GetReason(), a.GetOutcome(), a.GetDetail())
	}
	return w.Flush()
}

// act does one thing about one letter.
type act func(ctx context.Context, client deadletterv1.DeadLetterServiceClient, id int64) (*deadletterv1.Report, error)

func (d *deadLettersRun) replay(cmd *cobra.Command, args []string) error {
	return d.act(cmd, args, "replay", func(ctx context.Context, client deadletterv1.DeadLetterServiceClient, id int64) (*deadletterv1.Report, error) {
		resp, err := client.ReplayDeadLetter(ctx, &deadletterv1.ReplayDeadLetterRequest{Id: id, DryRun: !d.execute, Actor: d.actor, Reason: d.reason})
		return resp.GetReport(), err
	})
}

func (d *deadLettersRun) discard(cmd *cobra.Command, args []string) error {
	return d.act(cmd, args, "discard", func(ctx context.Context, client deadletterv1.DeadLetterServiceClient, id int64) (*deadletterv1.Report, error) {
		resp, err := client.DiscardDeadLetter(ctx, &deadletterv1.DiscardDeadLetterRequest{Id: id, DryRun: !d.execute, Actor: d.actor, Reason: d.reason})
		return resp.GetReport(), err
	})
}

func (d *deadLettersRun) act(cmd *cobra.Command, args []string, what string, do act) error {
	if d.execute && d.reason == "" {
		return errors.New("--execute needs --reason: say why")
	}
	ids := make(map[string][]int64)
	for _, name := range args {
		service, id, err := parseName(name)
		if err != nil {
			return err
		}
		ids[service] = append(ids[service], id)
	}
	services := d.services
	if len(args) > 0 {
		services = nil
		for _, service := range withDatabase() {
			if len(ids[service]) > 0 {
				services = append(services, service)
			}
		}
	}
	counts := make(map[string]int)
	err := d.each(cmd.Context(), services, func(ctx context.Context, service string, conn *grpc.ClientConn) error {
		chosen := ids[service]
		if len(args) == 0 {
			// The list is read first: a replay takes letters from it.
			if err := d.pages(ctx, conn, func(l *deadletterv1.DeadLetter) error {
				if l.GetState() == "dead" {
					chosen = append(chosen, l.GetId())
				}
				return nil
			}); err != nil {
				return err
			}
		}
		for _, id := range chosen {
			report, err := do(ctx, deadletterv1.NewDeadLetterServiceClient(conn), id)
			if err != nil {
				return fmt.Errorf("%s of %s/%d: %w", what, service, id, err)
			}
			counts[report.GetOutcome()]++
			if d.json {
				err = printSaid(cmd.OutOrStdout(), said{Service: service, DeadLetter: id}, report)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/%d  %s  %s%s\n", service, id, report.GetOutcome(), report.GetDetail(), behind(report.GetFollowers()))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case counts["failed"]+counts["refused"] > 0:
		return coded{fmt.Errorf("%w: %d failed, %d refused", errNotAllDone, counts["failed"], counts["refused"]), ExitRefused}
	case !d.execute && counts["would"] > 0 && !d.json:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "nothing was done; --execute --reason WHY does it")
	}
	return err
}

func behind(followers int32) string {
	if followers == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d later events of the order follow)", followers)
}
