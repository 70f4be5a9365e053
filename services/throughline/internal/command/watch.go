package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/jsonpb"
	"github.com/throughline/throughline/services/internal/trail"
)

const (
	watchInterval = 500 * time.Millisecond
	// forgetAfter is how long an entry is remembered that was printed: answers overlap by some seconds.
	forgetAfter = time.Minute
)

// watcher follows orders.
type watcher struct {
	tracer

	interval   time.Duration
	w          io.Writer
	complaints io.Writer
	style      style
}

func watchCommand(environ []string) *cobra.Command {
	t := &watcher{tracer: tracer{operator: operator{environ: environment(environ)}}}
	cmd := describe(&cobra.Command{
		Use:   "watch [ID]",
		Short: "Follow one order until it has ended, or what happens to all orders",
		Long: `With an ID of any kind, as "trace" takes it, follows one order: prints what is on record about it, then each thing as it happens, and ends when
the order has. Without, follows the messages of all orders until Ctrl-C: commands, replies and events, as the services send them.
With --json, what services do not tell is said on standard error.`,
		Example: "  throughline watch my-key\n  throughline watch",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			t.complaints = cmd.OutOrStdout()
			if t.json {
				t.complaints = cmd.ErrOrStderr()
			}
			t.w, t.style = cmd.OutOrStdout(), styleFor(cmd.OutOrStdout(), t.environ)
			asked, closeAll, err := t.assembler()
			if err != nil {
				return err
			}
			defer closeAll()
			if len(args) == 1 {
				t.question.ID = args[0]
				err = t.one(ctx, asked)
			} else {
				err = t.all(ctx, asked)
			}
			if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
				return nil // the user has seen enough
			}
			return err
		},
	}, "throughline.trail.v1.Entry, as proto/README.md describes it", ending{0, "the order has ended, or Ctrl-C was pressed"}, unknownID,
		ending{ExitIncomplete, "the order has ended, and a service did not tell its part"})
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&t.question.ClientID, "client", "", "whose key the ID is")
	f.DurationVar(&t.interval, "interval", watchInterval, "how often to look")
	return cmd
}

// one follows an order until it has ended and nothing more is heard of it.
func (t *watcher) one(ctx context.Context, asked *trail.Assembler) error {
	match, _, err := asked.Find(ctx, t.question.ID, t.question.ClientID)
	if err != nil {
		return notFound(err)
	}
	printed := make(map[string]bool)
	var told []*trailv1.Gap
	for quiet := false; ; {
		story, err := asked.Timeline(ctx, match.GetOrderId(), trail.Question{})
		if err != nil {
			return notFound(err)
		}
		clean := tree{style: t.style, story: harmless(story), zero: trail.Zero(story)}
		news := false
		for i, e := range clean.story.GetEntries() {
			if key := newsOf(e); !printed[key] {
				printed[key], news = true, true
				if err := t.print(story.GetEntries()[i], clean.line(e)); err != nil {
					return err
				}
			}
		}
		if told, err = t.gaps(story.GetGaps(), told); err != nil {
			return err
		}
		switch {
		case !ended(story.GetStatus()) || news:
			quiet = false
		case quiet:
			return incomplete(story)
		default:
			quiet = true // once more: what follows the end is written after it
		}
		if err := wait(ctx, t.interval); err != nil {
			return err
		}
	}
}

// newsOf names what is to be said of an entry: its attempt has ended, its state has changed.
func newsOf(e *trailv1.Entry) string {
	switch e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_ATTEMPT, trailv1.EntryKind_ENTRY_KIND_ORDER, trailv1.EntryKind_ENTRY_KIND_DEAD_LETTER,
		trailv1.EntryKind_ENTRY_KIND_RECORD:
		return e.GetEntryId() + " " + e.GetOutcome()
	default:
		return e.GetEntryId()
	}
}

func ended(status string) bool {
	return slices.Contains([]string{"CONFIRMED", "FAILED", "CANCELLED"}, status)
}

func (t *watcher) print(e *trailv1.Entry, line string) error {
	if !t.json {
		_, err := fmt.Fprintln(t.w, line)
		return err
	}
	text, err := jsonpb.Marshal(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.w, "%s\n", text)
	return err
}

// gaps says which services do not answer, once for as long as that lasts.
func (t *watcher) gaps(now, told []*trailv1.Gap) ([]*trailv1.Gap, error) {
	for _, g := range now {
		known := slices.ContainsFunc(told, func(k *trailv1.Gap) bool { return k.GetDetail() == g.GetDetail() })
		if !known {
			if _, err := fmt.Fprintf(t.complaints, "%s %s\n", t.style.paint(red, "gap:"), plain(g.GetDetail())); err != nil {
				return told, err
			}
		}
	}
	return now, nil
}

// all follows what the services send.
func (t *watcher) all(ctx context.Context, asked *trail.Assembler) error {
	cursors := make(map[string]string)
	seen := make(map[string]time.Time)
	var told []*trailv1.Gap
	for {
		entries, gaps, more := lately(ctx, asked, cursors)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		slices.SortFunc(entries, func(a, b *trailv1.Entry) int { return a.GetAt().AsTime().Compare(b.GetAt().AsTime()) })
		now := time.Now()
		for _, e := range entries {
			if _, again := seen[e.GetEntryId()]; again {
				continue
			}
			seen[e.GetEntryId()] = now
			line := fmt.Sprintf("%s %s %-8s %s", t.style.paint(faint, e.GetAt().AsTime().Local().Format("15:04:05.000")), e.GetOrderId(), e.GetService(), plain(e.GetTitle()))
			if err := t.print(e, line); err != nil {
				return err
			}
		}
		for id, at := range seen {
			if now.Sub(at) > forgetAfter {
				delete(seen, id)
			}
		}
		var err error
		if told, err = t.gaps(gaps, told); err != nil {
			return err
		}
		if more {
			continue
		}
		if err := wait(ctx, t.interval); err != nil {
			return err
		}
	}
}

// page is what is asked for at once.
const page = 500

// lately asks each service for what it has sent since the cursors, which it moves on. more says that there is more already.
func lately(ctx context.Context, asked *trail.Assembler, cursors map[string]string) (entries []*trailv1.Entry, gaps []*trailv1.Gap, more bool) {
	for _, s := range asked.Sources {
		bounded, cancel := context.WithTimeout(grpcx.Outgoing(ctx, grpcx.Entries{}), trail.DefaultPatience)
		resp, err := s.Client.ListActivity(bounded, &trailv1.ListActivityRequest{Cursor: cursors[s.Service], PageSize: page})
		cancel()
		if err != nil {
			gaps = append(gaps, trail.GapOf(s.Service, err))
			continue
		}
		cursors[s.Service] = resp.GetNextCursor()
		entries = append(entries, resp.GetEntries()...)
		more = more || len(resp.GetEntries()) == page
	}
	return entries, gaps, more
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
