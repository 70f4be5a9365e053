package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/throughline/throughline/proto/storefront"
)

// customer calls the gateway as a client does.
type customer struct {
	environ map[string]string
	url     string
	apiKey  string
	json    bool
}

const (
	urlVariable    = "THROUGHLINE_URL"
	apiKeyVariable = "THROUGHLINE_API_KEY" //nolint:gosec // the name of the variable, not a key
	defaultURL     = "http://127.0.0.1:8080"
	// devAPIKey is a client that exists in a system on embedded parts, and nowhere else.
	devAPIKey = "tl_dev_storefront"
	// completedOrders is as many as a person looks through.
	completedOrders = 20
)

func (c *customer) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.url, "url", "", "the gateway (default "+urlVariable+", or "+defaultURL+")")
	f.StringVar(&c.apiKey, "api-key", "", "the client's API key (default "+apiKeyVariable+", or the development client's); shown to others who list this machine's processes")
	f.BoolVar(&c.json, "json", false, "print one JSON object")
}

// unknownOrder is how commands end about an order that the client does not have.
var unknownOrder = ending{ExitNotFound, "the client has no such order"}

// complete offers the client's newest orders.
func (c *customer) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	return offer(cmd, &found, func(ctx context.Context) error {
		client, err := c.client()
		if err != nil {
			return err
		}
		page, err := client.ListOrders(ctx, completedOrders, "")
		for _, o := range page.Orders {
			found = append(found, cobra.CompletionWithDesc(o.ID, string(o.Status)+", key "+strconv.Quote(o.IdempotencyKey)))
		}
		return err
	})
}

func (c *customer) client() (*storefront.Client, error) {
	return storefront.New(firstOf(c.url, c.environ[urlVariable], defaultURL), firstOf(c.apiKey, c.environ[apiKeyVariable], devAPIKey))
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// orderLine is an order in JSON, and answeredLine what place and cancel print of one, for the help.
const (
	orderLine    = "the order, as GET /v1/orders/{id} answers it"
	answeredLine = `{"idempotency_key":KEY,"replayed":BOOL,"key_expired":BOOL,"order":ORDER}, with the order as GET /v1/orders/{id} answers it`
)

// answered is what place and cancel print.
type answered struct {
	Key        string           `json:"idempotency_key"`
	Replayed   bool             `json:"replayed"`
	KeyExpired bool             `json:"key_expired"`
	Order      storefront.Order `json:"order"`
}

func placeCommand(environ []string) *cobra.Command {
	c := &customer{environ: environment(environ)}
	var (
		key, file, note string
		lines           []string
		wait            time.Duration
	)
	cmd := describe(&cobra.Command{
		Use:   "place",
		Short: "Place an order, as a storefront does",
		Long: `Places an order over HTTP. Each call is repeated under its key until there is an answer or the command is interrupted; with --key it can be
repeated later, too, and never gives a second order.

The order is the JSON of POST /v1/orders in --file, or from standard input for "-". Without, it is a small sample for trying the system, with
the lines of --line, if there are any.`,
		Example: "  throughline place --key my-key --wait 20s\n  throughline place --line TEA-1:2:1250\n  throughline place --file order.json --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			order, err := orderOf(cmd.InOrStdin(), file, lines, note)
			if err != nil {
				return err
			}
			if key == "" {
				key = storefront.NewKey()
				// Before the call: whoever is interrupted can ask under it.
				fmt.Fprintln(cmd.ErrOrStderr(), "idempotency key:", key)
			}
			return c.place(cmd.Context(), cmd.OutOrStdout(), key, order, wait)
		},
	}, answeredLine, ending{0, "the order is placed, or was before under the same key; with --wait: it is CONFIRMED"},
		ending{ExitRefused, "it was refused; with --wait: it has not been sold"})
	c.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "the idempotency key (default a new one, which is printed first)")
	f.StringVar(&file, "file", "", `the order as JSON; "-" is standard input`)
	f.StringArrayVar(&lines, "line", nil, "SKU:QUANTITY:PRICE of a line, in minor units of the currency; may be repeated")
	f.StringVar(&note, "note", "", "a note with the order")
	f.DurationVar(&wait, "wait", 0, "wait for the end of the order, at most so long")
	mustBe(f, "file", "json")
	cmd.MarkFlagsMutuallyExclusive("file", "line")
	cmd.MarkFlagsMutuallyExclusive("file", "note")
	return cmd
}

// sample is an order that goes right on the simulators.
func sample() storefront.NewOrder {
	return storefront.NewOrder{
		Currency:      "EUR",
		Lines:         []storefront.Line{{SKU: "BOOK-1", Quantity: 2, UnitPrice: 1250}},
		ShipTo:        storefront.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"},
		PaymentMethod: "pm_card_visa",
	}
}

// orderOf reads the order of a command line.
func orderOf(stdin io.Reader, file string, lines []string, note string) (storefront.NewOrder, error) {
	order := sample()
	order.Note = note
	if len(lines) > 0 {
		order.Lines = nil
	}
	for _, text := range lines {
		line, err := lineOf(text)
		if err != nil {
			return order, err
		}
		order.Lines = append(order.Lines, line)
	}
	if file == "" {
		return order, nil
	}
	from := stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return order, fmt.Errorf("reading the order: %w", err)
		}
		defer opened.Close()
		from = opened
	}
	order = storefront.NewOrder{}
	d := json.NewDecoder(from)
	d.DisallowUnknownFields() // else a misspelt member would be left out without a word
	if err := d.Decode(&order); err != nil {
		return order, fmt.Errorf("reading the order from %s: %w", file, err)
	}
	return order, nil
}

// lineOf reads SKU:QUANTITY:PRICE. A SKU may have colons in it.
func lineOf(text string) (storefront.Line, error) {
	parts := strings.Split(text, ":")
	n := len(parts)
	if n < 3 {
		return storefront.Line{}, fmt.Errorf("--line %q is not SKU:QUANTITY:PRICE, such as TEA-1:2:1250", text)
	}
	quantity, err := strconv.ParseInt(parts[n-2], 10, 64)
	if err != nil {
		return storefront.Line{}, fmt.Errorf("--line %q: the quantity %q is not a whole number", text, parts[n-2])
	}
	price, err := strconv.ParseInt(parts[n-1], 10, 64)
	if err != nil {
		return storefront.Line{}, fmt.Errorf("--line %q: the price %q is not a whole number of minor units", text, parts[n-1])
	}
	return storefront.Line{SKU: strings.Join(parts[:n-2], ":"), Quantity: quantity, UnitPrice: price}, nil
}

func (c *customer) place(ctx context.Context, w io.Writer, key string, order storefront.NewOrder, wait time.Duration) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	answer, err := client.PlaceOrder(ctx, key, order)
	if err != nil {
		return definite(err)
	}
	if wait <= 0 {
		return c.answer(w, key, answer)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	last, err := client.WaitFinal(waiting, answer.Order.ID)
	if last.ID != "" {
		answer.Order = last // whatever it has come to
	}
	if printed := c.answer(w, key, answer); printed != nil {
		return printed
	}
	switch {
	case err != nil:
		return fmt.Errorf("waiting for the end of order %s: %w", answer.Order.ID, err)
	case last.Status != storefront.Confirmed:
		return coded{fmt.Errorf("order %s is %s: %s", last.ID, last.Status, firstOf(last.FailureReason, "no reason was given")), ExitRefused}
	}
	return nil
}

func (c *customer) answer(w io.Writer, key string, a storefront.Answered) error {
	if c.json {
		return printJSON(w, answered{Key: key, Replayed: a.Replayed, KeyExpired: a.KeyExpired, Order: a.Order})
	}
	how := ""
	switch {
	case a.KeyExpired:
		how = " (known for long; this is how it is now)"
	case a.Replayed:
		how = " (a replay: the call had its effect before)"
	}
	_, err := fmt.Fprintf(w, "order %s %s%s\n", a.Order.ID, a.Order.Status, how)
	return err
}

func printJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("rendering the answer: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// definite gives the codes of the answers that will not change by calling again.
func definite(err error) error {
	e, ok := errors.AsType[*storefront.Error](err)
	switch {
	case !ok || e.StatusCode >= 500:
		return err
	case e.Reason == storefront.ReasonOrderNotFound:
		return coded{err, ExitNotFound}
	}
	return coded{err, ExitRefused}
}

func getCommand(environ []string) *cobra.Command {
	c := &customer{environ: environment(environ)}
	var wait time.Duration
	cmd := describe(&cobra.Command{
		Use:               "get ORDER-ID",
		Short:             "Show an order of one's own, as a storefront does",
		Long:              `Shows an order, as its client sees it. For what happened behind it, and for other ids than the order's, see "throughline trace".`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			order, err := client.GetOrderWithin(cmd.Context(), args[0], wait)
			if err != nil {
				return definite(err)
			}
			return c.show(cmd.OutOrStdout(), order)
		},
	}, orderLine, ending{0, "the order was shown"}, unknownOrder, refusal)
	c.flags(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait for the end of the order, at most so long; the service waits 20 s at most")
	return cmd
}

func (c *customer) show(w io.Writer, o storefront.Order) error {
	if c.json {
		return printJSON(w, o)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "order    %s\nstatus   %s\nkey      %s\ntotal    %d %s in minor units\n", o.ID, o.Status, strconv.Quote(o.IdempotencyKey), o.Total, o.Currency)
	for _, l := range o.Lines {
		fmt.Fprintf(&b, "line     %d x %s at %d\n", l.Quantity, strconv.Quote(l.SKU), l.UnitPrice)
	}
	if o.FailureReason != "" {
		fmt.Fprintf(&b, "because  %s\n", o.FailureReason)
	}
	if a := o.NextAction; a != nil {
		fmt.Fprintf(&b, "waits    for the customer: %s %s until %s\n", a.Type, a.URL, a.ExpiresAt.Format(time.RFC3339))
	}
	fmt.Fprintf(&b, "placed   %s\nchanged  %s\n", o.CreatedAt.Format(time.RFC3339Nano), o.UpdatedAt.Format(time.RFC3339Nano))
	_, err := io.WriteString(w, b.String())
	return err
}

func cancelCommand(environ []string) *cobra.Command {
	c := &customer{environ: environment(environ)}
	var key, reason string
	cmd := describe(&cobra.Command{
		Use:               "cancel ORDER-ID",
		Short:             "Cancel an order of one's own, as a storefront does",
		Long:              `Asks for the cancellation of an order. What was done for it is then undone; "throughline watch" shows how far that is.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			if key == "" {
				key = storefront.NewKey()
				fmt.Fprintln(cmd.ErrOrStderr(), "idempotency key:", key)
			}
			answer, err := client.CancelOrder(cmd.Context(), key, args[0], reason)
			if err != nil {
				return definite(err)
			}
			return c.answer(cmd.OutOrStdout(), key, answer)
		},
	}, answeredLine, ending{0, "the cancellation is accepted, or was before"}, unknownOrder, ending{ExitRefused, "it is too late, or was refused"})
	c.flags(cmd)
	cmd.Flags().StringVar(&key, "key", "", "the idempotency key of the cancellation (default a new one, which is printed first)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the order's history")
	return cmd
}
