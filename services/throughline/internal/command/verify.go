package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/throughline/throughline/pkg/money"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/verify"
)

var (
	errViolations = errors.New("effects do not agree")
	errUnseen     = errors.New("not all could be looked at")
	errSpan       = errors.New("--since must be longer than nothing")
)

// progressEvery is how often at most a person is told how far it is.
const progressEvery = 100 * time.Millisecond

// verifyRun is what the command was told.
type verifyRun struct {
	*operator

	since time.Duration
	all   bool
}

// verifyCommand proves effects over all services, while they run.
func verifyCommand(environ []string) *cobra.Command {
	v := &verifyRun{operator: &operator{environ: environment(environ)}}
	cmd := describe(&cobra.Command{
		Use:   "verify",
		Short: "Prove that orders, money, parcels and messages agree, while the system runs",
		Long: `Prove that orders, money, parcels and messages agree, while the system runs.

It compares what the services know with the provider's and the carrier's own books: one charge and one parcel an order; CONFIRMED is paid and
shipped, closed is undone, and money adds up; nobody waits beyond a deadline; every message is pending, or where its stream has acknowledged it,
or was dealt with once. What looks wrong is looked at again before it is called so: an order that moves, or has something still to be done for it,
is in flight, and not a violation. It only reads.

The order service does the same every THROUGHLINE_VERIFY_EVERY for what has changed since the last time. --all looks at every order that there is, at
every payment and parcel of the outside, and at every message that is kept: it takes long where there are millions, and costs the services little.`,
		Example: "  throughline verify --since 24h\n  throughline verify --all --json | jq '.violations[].order_id'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return v.run(cmd) },
	}, verifyLine, ending{0, "all was looked at, and all agrees"}, ending{ExitIncomplete, "what was looked at agrees, and not all could be looked at"},
		ending{ExitWrong, "there are violations"}, refusal)
	v.flags(cmd)
	f := cmd.Flags()
	f.DurationVar(&v.since, "since", time.Hour, "look at orders that something has happened to since so long ago")
	f.BoolVar(&v.all, "all", false, "look at all orders, and at all messages that are kept")
	cmd.MarkFlagsMutuallyExclusive("since", "all")
	return cmd
}

func (v *verifyRun) run(cmd *cobra.Command) error {
	if v.since <= 0 {
		return errSpan
	}
	verifier, done, err := v.connect()
	if err != nil {
		return err
	}
	defer done()
	var opts verify.Options
	if !v.all {
		opts.Since = time.Now().Add(-v.since)
	}
	shown := false
	if isTerminal(cmd.ErrOrStderr()) {
		var last time.Time
		opts.Progress = func(what string, n int64) {
			if time.Since(last) > progressEvery {
				last, shown = time.Now(), true
				fmt.Fprintf(cmd.ErrOrStderr(), "\r\x1b[K%d %s", n, what)
			}
		}
	}
	report, err := verifier.Run(grpcx.Outgoing(cmd.Context(), grpcx.Entries{}), opts)
	if shown {
		fmt.Fprint(cmd.ErrOrStderr(), "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	if v.json {
		err = printJSON(cmd.OutOrStdout(), reportLineOf(report))
	} else {
		err = showReport(cmd.OutOrStdout(), report)
	}
	if err != nil {
		return err
	}
	switch report.Outcome() {
	case verify.Violated:
		return coded{fmt.Errorf("%w: %d violations", errViolations, len(report.Violations)), ExitWrong}
	case verify.Incomplete:
		return coded{errUnseen, ExitIncomplete}
	default:
		return nil
	}
}

// connect makes connections to all services, without waiting for them.
func (v *verifyRun) connect() (verifier *verify.Verifier, done func(), err error) {
	credential, err := v.credential()
	if err != nil {
		return nil, nil, err
	}
	addrs := make(map[string]string)
	for _, service := range withDatabase() {
		addrs[service] = v.addr(service)
	}
	return verify.Dial(addrs, credential)
}

func showReport(out io.Writer, r *verify.Report) error {
	span := "ever"
	if !r.Since.IsZero() {
		span = "since " + r.Since.Format(time.DateTime)
	}
	many := func(n int64, word string) string { return counted(strconv.FormatInt(n, 10), word) }
	fmt.Fprintf(out, "looked at %s, %s, %s and %s %s, in %s\n",
		many(r.Orders, "order"), many(r.Messages, "message"), many(r.Payments, "payment"), many(r.Parcels, "parcel"), span, r.Took.Round(time.Millisecond))
	w := tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)
	flying := many(r.InFlight, "order") + ", " + many(r.PendingMessages, "message")
	if r.OldestInFlight > 0 {
		flying += fmt.Sprintf("; the oldest order on its way for %s", r.OldestInFlight.Round(time.Millisecond))
	}
	fmt.Fprintf(w, "  in flight\t%s\n", flying)
	if r.Open > 0 {
		fmt.Fprintf(w, "  open\t%s to be ended by a person (throughline attention list)\n", many(r.Open, "order"))
	}
	for _, m := range r.Money {
		fmt.Fprintf(w, "  money\tconfirmed %s, captured and kept %s\n", sumOf(m.Currency, m.Confirmed), sumOf(m.Currency, m.Moved))
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(w, "  not seen\t%s\n", plain(g.String()))
	}
	for _, v := range r.Violations {
		about := v.OrderID
		if v.ClientID != "" {
			about += " (" + v.ClientID + ", key " + v.Key + ")"
		}
		fmt.Fprintf(w, "  VIOLATION\t%s\t%s\t%s\n", v.Rule, plain(about), plain(v.Detail))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verdict := map[verify.Outcome]string{
		verify.Clean: "all agrees", verify.Incomplete: "what was looked at agrees, and not all could be looked at", verify.Violated: "effects do not agree",
	}
	_, err := fmt.Fprintln(out, verdict[r.Outcome()])
	return err
}

// sumOf is an amount for people.
func sumOf(currency string, minor int64) string {
	if m, err := money.New(currency, max(minor, -minor)); err == nil {
		sign := ""
		if minor < 0 {
			sign = "-"
		}
		return sign + m.String()
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", minor, currency))
}

// verifyLine is the line of JSON, for the help.
const verifyLine = `{"outcome":"clean|incomplete|violations","began":TIME,"since":TIME,"seconds":N,"orders":N,"messages":N,"payments":N,"parcels":N,` +
	`"open":N,"in_flight":N,"oldest_in_flight_seconds":N,"pending_messages":N,` +
	`"money":[{"currency":C,"confirmed":N,"moved":N}],` +
	`"violations":[{"rule":RULE,"order_id":ID,"client_id":CLIENT,"idempotency_key":KEY,"detail":TEXT}],"gaps":[{"service":SERVICE,"what":TEXT,"why":TEXT}]}`

type reportLine struct {
	Outcome         string          `json:"outcome"`
	Began           time.Time       `json:"began"`
	Since           *time.Time      `json:"since,omitempty"`
	Seconds         float64         `json:"seconds"`
	Orders          int64           `json:"orders"`
	Messages        int64           `json:"messages"`
	Payments        int64           `json:"payments"`
	Parcels         int64           `json:"parcels"`
	Open            int64           `json:"open"`
	InFlight        int64           `json:"in_flight"`
	OldestInFlight  float64         `json:"oldest_in_flight_seconds"`
	PendingMessages int64           `json:"pending_messages"`
	Money           []moneyLine     `json:"money"`
	Violations      []violationLine `json:"violations"`
	Gaps            []gapLine       `json:"gaps"`
}

type moneyLine struct {
	Currency  string `json:"currency"`
	Confirmed int64  `json:"confirmed"`
	Moved     int64  `json:"moved"`
}

type violationLine struct {
	Rule     string `json:"rule"`
	OrderID  string `json:"order_id"`
	ClientID string `json:"client_id"`
	Key      string `json:"idempotency_key"`
	Detail   string `json:"detail"`
}

type gapLine struct {
	Service string `json:"service"`
	What    string `json:"what"`
	Why     string `json:"why"`
}

func reportLineOf(r *verify.Report) reportLine {
	line := reportLine{
		Outcome: string(r.Outcome()), Began: r.Began.UTC(), Seconds: r.Took.Seconds(), Orders: r.Orders, Messages: r.Messages, Payments: r.Payments,
		Parcels: r.Parcels, Open: r.Open, InFlight: r.InFlight, OldestInFlight: r.OldestInFlight.Seconds(), PendingMessages: r.PendingMessages,
		Money: make([]moneyLine, 0), Violations: make([]violationLine, 0), Gaps: make([]gapLine, 0),
	}
	if !r.Since.IsZero() {
		since := r.Since.UTC()
		line.Since = &since
	}
	for _, m := range r.Money {
		line.Money = append(line.Money, moneyLine{m.Currency, m.Confirmed, m.Moved})
	}
	for _, v := range r.Violations {
		line.Violations = append(line.Violations, violationLine{string(v.Rule), v.OrderID, v.ClientID, v.Key, v.Detail})
	}
	for _, g := range r.Gaps {
		line.Gaps = append(line.Gaps, gapLine(g))
	}
	return line
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
