package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/jsonpb"
	"github.com/throughline/throughline/services/internal/trail"
)

// tracer asks for stories of orders.
type tracer struct {
	operator

	question trail.Question
}

func traceCommand(environ []string) *cobra.Command {
	t := &tracer{operator: operator{environ: environment(environ)}}
	cmd := describe(&cobra.Command{
		Use:   "trace ID",
		Short: "Tell what became of an order: every attempt, call, message and decision",
		Long: `Tells the story of one order as a tree. Under each step stand the messages about it, its attempts with the calls that they made, and what
the saga made of it; "+" is the time since the order was placed. What is undone is marked.

ID is whatever there is: the order's id; the key that the client minted (with --client, if several clients have used it); the key of a step,
which the carrier has as the reference; the id of a message; the payment provider's id or idempotency key; the carrier's id.

Addresses, notes and payment methods are masked. --reveal shows them; that needs --reason, and is put on record with the order.`,
		Example: "  throughline trace my-key\n  throughline trace 3fd5c1a2-0b1e-5f6a-9d2e-8a7b6c5d4e3f --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.question.ID = args[0]
			return t.trace(cmd.Context(), cmd.OutOrStdout())
		},
	}, "throughline.trail.v1.Timeline, as proto/README.md describes it", ending{0, "the whole story was told"}, unknownID,
		ending{ExitIncomplete, "the story was told with gaps, because a service did not answer"})
	t.flags(cmd)
	t.questionFlags(cmd)
	return cmd
}

// unknownID is how commands end that take ids of any kind.
var unknownID = ending{ExitNotFound, "no order is known by the ID"}

func (t *tracer) questionFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.question.ClientID, "client", "", "whose key the ID is")
	f.BoolVar(&t.question.Reveal, "reveal", false, "show personal data; needs --reason, and is put on record")
	f.StringVar(&t.question.Reason, "reason", "", "why personal data is needed")
	f.StringVar(&t.question.Actor, "actor", whoAmI(), "who asks, for the record")
}

func (t *tracer) trace(ctx context.Context, w io.Writer) error {
	if t.question.Reveal && t.question.Reason == "" {
		return errors.New("--reveal needs --reason: what you are shown is put on record")
	}
	asked, closeAll, err := t.assembler()
	if err != nil {
		return err
	}
	defer closeAll()
	story, err := asked.Assemble(ctx, t.question)
	if err != nil {
		return notFound(err)
	}
	if t.json {
		err = printTimeline(w, story)
	} else {
		err = drawTree(w, story, styleFor(w, t.environ))
	}
	if err != nil {
		return err
	}
	return incomplete(story)
}

// notFound gives an error the code that it ends the program with.
func notFound(err error) error {
	_, ambiguous := errors.AsType[*trail.AmbiguousError](err)
	switch {
	case ambiguous:
		return fmt.Errorf("%w: say whose key it is with --client, or ask by the order's id", err)
	case errors.Is(err, trail.ErrNotFound):
		return coded{err, ExitNotFound}
	}
	return err
}

func incomplete(story *trailv1.Timeline) error {
	for _, g := range story.GetGaps() {
		if g.GetReason() != trail.GapLeftOut {
			return coded{errors.New("the story has gaps: " + g.GetDetail()), ExitIncomplete}
		}
	}
	return nil
}

// assembler connects to all services, without waiting for them.
func (o *operator) assembler() (*trail.Assembler, func(), error) {
	credential, err := o.credential()
	if err != nil {
		return nil, nil, err
	}
	a := new(trail.Assembler)
	var closers []func() error
	closeAll := func() {
		for _, c := range closers {
			_ = c() // nothing is open on it any more
		}
	}
	for _, service := range withDatabase() {
		conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: o.addr(service), Credential: credential})
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		closers = append(closers, conn.Close)
		a.Sources = append(a.Sources, trail.Source{Service: service, Client: trailv1.NewTrailServiceClient(conn)})
	}
	return a, closeAll, nil
}

// printTimeline prints a story as one line of JSON.
func printTimeline(w io.Writer, story *trailv1.Timeline) error {
	text, err := jsonpb.Marshal(story)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
