package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	doctorv1 "github.com/throughline/throughline/proto/gen/throughline/doctor/v1"
)

// errSick says that the doctor has found something that somebody must look at.
var errSick = errors.New("something needs a person")

// doctorCommand examines all services.
func doctorCommand(environ []string) *cobra.Command {
	o := &operator{environ: environment(environ)}
	cmd := describe(&cobra.Command{
		Use:   "doctor",
		Short: "Check that settings, streams and consumers fit together, and say what the tables grow to",
		Long: `Check that settings, streams and consumers fit together, and say what the tables grow to.

Each rule compares two times that must not cross: what can still arrive with what is remembered, what is being dealt with and when it
is delivered again. Streams and consumers are looked at as they are now. Sizes are what is expected at the rate of the last seconds.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return examine(cmd, o) },
	}, answers("throughline.doctor.v1.ExamineResponse"), ending{0, "all is well"}, someSilent, refusal,
		ending{ExitWrong, "a rule is broken, a dead letter is open, or a message is set aside"})
	o.flags(cmd)
	return cmd
}

func examine(cmd *cobra.Command, o *operator) error {
	sick := 0
	// What one service can publish again must not be older than what another one's inbox remembers.
	var longest, shortest *doctorv1.Rule
	var longestAt, shortestAt string
	answers, err := askDoctors(cmd.Context(), o)
	for _, service := range withDatabase() {
		resp, ok := answers[service]
		if !ok {
			continue
		}
		for _, r := range resp.GetRules() {
			if r.GetShorter() != "THROUGHLINE_OUTBOX_RETENTION" {
				continue
			}
			if longest == nil || r.GetShorterValue().AsDuration() > longest.GetShorterValue().AsDuration() {
				longest, longestAt = r, service
			}
			if shortest == nil || r.GetLongerValue().AsDuration() < shortest.GetLongerValue().AsDuration() {
				shortest, shortestAt = r, service
			}
		}
		if resp.GetOpenDeadLetters() > 0 || resp.GetSetAsideMessages() > 0 {
			sick++
		}
		for _, r := range resp.GetRules() {
			if r.GetBroken() {
				sick++
			}
		}
		if o.json {
			err = errors.Join(err, o.print(cmd.OutOrStdout(), service, resp))
		} else {
			err = errors.Join(err, showExamination(cmd.OutOrStdout(), service, resp))
		}
	}
	if longest != nil && longest.GetShorterValue().AsDuration() > shortest.GetLongerValue().AsDuration() {
		sick++
		err = errors.Join(err, fmt.Errorf("what %s can publish again (%s) is older than what %s remembers (%s)",
			longestAt, longest.GetShorterValue().AsDuration(), shortestAt, shortest.GetLongerValue().AsDuration()))
	}
	if sick > 0 {
		err = coded{errors.Join(err, errSick), ExitWrong}
	}
	return err
}

// askDoctors asks all services side by side, since each watches its tables for some seconds. It gives the answers of those that gave one.
func askDoctors(ctx context.Context, o *operator) (map[string]*doctorv1.ExamineResponse, error) {
	var mu sync.Mutex
	answers := make(map[string]*doctorv1.ExamineResponse)
	err := o.atOnce(ctx, nil, func(ctx context.Context, service string, conn *grpc.ClientConn) error {
		resp, err := doctorv1.NewDoctorServiceClient(conn).Examine(ctx, &doctorv1.ExamineRequest{})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		answers[service] = resp
		return nil
	})
	return answers, err
}

func showExamination(out io.Writer, service string, resp *doctorv1.ExamineResponse) error {
	fmt.Fprintf(out, "%s\n", service)
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	for _, r := range resp.GetRules() {
		verdict := "ok"
		if r.GetBroken() {
			verdict = "BROKEN"
		}
		fmt.Fprintf(w, "  %s\t%s %s <= %s %s\t%s\n", verdict, r.GetShorter(), r.GetShorterValue().AsDuration(), r.GetLonger(), r.GetLongerValue().AsDuration(), r.GetName())
	}
	for _, c := range resp.GetConsumers() {
		if c.GetError() != "" {
			fmt.Fprintf(w, "  UNKNOWN\t%s %s\t%s\n", c.GetStream(), c.GetName(), c.GetError())
			continue
		}
		fmt.Fprintf(w, "  consumer\t%s\t%d waiting, %d in hand, %d redelivered, behind by %s\n", c.GetName(), c.GetPending(), c.GetUnacknowledged(),
			c.GetRedelivered(), c.GetLag().AsDuration())
	}
	for _, t := range resp.GetTables() {
		kept := "for ever"
		expected := ""
		if d := t.GetKeptFor().AsDuration(); d > 0 {
			kept = "for " + d.Round(time.Hour).String()
			expected = fmt.Sprintf("; at %.1f rows/s it grows to %d rows, %s", t.GetRowsPerSecond(), t.GetExpectedRows(), bytesText(t.GetExpectedBytes()))
		}
		fmt.Fprintf(w, "  table\t%s\t%d rows, %s, kept %s%s\n", t.GetName(), t.GetRows(), bytesText(t.GetBytes()), kept, expected)
	}
	fmt.Fprintf(w, "  outbox\t%d pending, %d set aside\tthe oldest for %s\n", resp.GetPendingMessages(), resp.GetSetAsideMessages(),
		resp.GetOldestPending().AsDuration().Round(time.Millisecond))
	fmt.Fprintf(w, "  dead letters\t%d open\t\n", resp.GetOpenDeadLetters())
	return w.Flush()
}

// bytesText is a size for people.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
}
