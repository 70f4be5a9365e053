package command

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	outboxv1 "github.com/throughline/throughline/proto/gen/throughline/outbox/v1"
	"github.com/throughline/throughline/services/internal/topology"
)

type outboxRun struct {
	operator
	services    []string
	from, to    string
	orderID     string
	stream      string
	first, last uint64
	execute     bool
	actor       string
	reason      string
}

// outboxCommand is about what services have sent.
func outboxCommand(environ []string) *cobra.Command {
	o := &outboxRun{operator: operator{environ: environment(environ)}}
	cmd := &cobra.Command{Use: "outbox", Short: "Look at what services have sent, and send it again"}
	o.flags(cmd)
	republish := describe(&cobra.Command{
		Use:   "republish",
		Short: "Send messages again: of a time, of an order, or of a gap in a stream",
		Long: `Send messages again: of a time, of an order, or of a gap in a stream.

Message ids stay, so that consumers that had a message do nothing. What is still pending is left to the relay, and what is older than
inboxes remember is skipped. It only lists what it would send, unless --execute is given; then --reason is needed, and who did it and
why is kept by the service. At most 500 messages a second are sent.`,
		Args: cobra.NoArgs, RunE: o.republish,
	}, answers("throughline.outbox.v1.SentMessage"), ending{0, "nothing failed, also if there was nothing to send"}, someSilent, notDone)
	f := republish.Flags()
	f.StringSliceVar(&o.services, "service", nil, "only what these services have sent")
	f.StringVar(&o.from, "from", "", "written at or after this time (RFC 3339), or so long ago (2h30m)")
	f.StringVar(&o.to, "to", "", "written before this time, or so long ago")
	f.StringVar(&o.orderID, "order-id", "", "about this order")
	f.StringVar(&o.stream, "stream", "", "in this stream, between --first-sequence and --last-sequence")
	f.Uint64Var(&o.first, "first-sequence", 0, "the first sequence number of the gap")
	f.Uint64Var(&o.last, "last-sequence", 0, "the last sequence number of the gap")
	f.BoolVar(&o.execute, "execute", false, "do it; without this it is only said what would be sent")
	f.StringVar(&o.reason, "reason", "", "why; kept by the service")
	f.StringVar(&o.actor, "actor", whoAmI(), "who; kept by the service")
	mustComplete(republish, "service", several(withDatabase()...))
	mustComplete(republish, "stream", choices(topology.Commands, topology.Replies, topology.Events))
	cmd.AddCommand(republish)
	return cmd
}

func (o *outboxRun) selection(now time.Time) (*outboxv1.Selection, error) {
	s := &outboxv1.Selection{OrderId: o.orderID, Stream: o.stream, FirstSequence: o.first, LastSequence: o.last}
	for _, t := range []struct {
		flag, text string
		into       **timestamppb.Timestamp
	}{{"from", o.from, &s.From}, {"to", o.to, &s.To}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			ago, failed := time.ParseDuration(t.text)
			if failed != nil {
				return nil, fmt.Errorf("reading --%s: %q is neither a time like 2006-01-02T15:04:05Z nor a duration like 2h30m", t.flag, t.text)
			}
			at = now.Add(-ago)
		}
		*t.into = timestamppb.New(at)
	}
	if s.GetFrom() == nil && s.GetTo() == nil && o.orderID == "" && o.stream == "" {
		return nil, errors.New("say what is to be sent again: --from and --to, --order-id, or --stream")
	}
	return s, nil
}

func (o *outboxRun) republish(cmd *cobra.Command, _ []string) error {
	if o.execute && o.reason == "" {
		return errors.New("--execute needs --reason: say why")
	}
	selection, err := o.selection(time.Now())
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	if !o.json {
		fmt.Fprintln(w, "SERVICE\tMESSAGE\tORDER\tSUBJECT\tWRITTEN\tPLACE\tOUTCOME")
	}
	failed, sent := 0, 0
	err = o.each(cmd.Context(), o.services, func(ctx context.Context, service string, conn *grpc.ClientConn) error {
		return o.pages(ctx, conn, selection, func(m *outboxv1.SentMessage) error {
			outcome := "would be sent"
			switch {
			case m.GetSkipped() != "":
				outcome = "skipped: " + m.GetSkipped()
			case m.GetError() != "":
				outcome = "failed: " + m.GetError()
				failed++
			case o.execute:
				outcome = fmt.Sprintf("sent as %d", m.GetNewSequence())
				sent++
			}
			if o.json {
				return o.print(cmd.OutOrStdout(), service, m)
			}
			_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s %d\t%s\n", service, m.GetMessageId(), m.GetOrderId(), m.GetSubject(),
				m.GetWrittenAt().AsTime().Format(time.RFC3339), m.GetStream(), m.GetStreamSequence(), outcome)
			return err
		})
	})
	err = errors.Join(err, w.Flush())
	if err == nil && failed > 0 {
		err = coded{fmt.Errorf("%w: %d sent, %d failed", errNotAllDone, sent, failed), ExitRefused}
	}
	return err
}

func (o *outboxRun) pages(ctx context.Context, conn *grpc.ClientConn, s *outboxv1.Selection, found func(*outboxv1.SentMessage) error) error {
	client := outboxv1.NewOutboxServiceClient(conn)
	for token := ""; ; {
		var (
			messages []*outboxv1.SentMessage
			next     string
		)
		if o.execute {
			resp, err := client.Republish(ctx, &outboxv1.RepublishRequest{Selection: s, PageToken: token, Actor: o.actor, Reason: o.reason})
			if err != nil {
				return err
			}
			messages, next = resp.GetMessages(), resp.GetNextPageToken()
		} else {
			resp, err := client.ListSent(ctx, &outboxv1.ListSentRequest{Selection: s, PageToken: token})
			if err != nil {
				return err
			}
			messages, next = resp.GetMessages(), resp.GetNextPageToken()
		}
		for _, m := range messages {
			if err := found(m); err != nil {
				return err
			}
		}
		if token = next; token == "" {
			return nil
		}
	}
}
