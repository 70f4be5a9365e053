package provider

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/services/payment/internal/payment"
)

// The operations, as they are named in errors, and in the provider keys of the steps.
const (
	opCreate   = "create"
	opConfirm  = "confirm"
	opRetrieve = "retrieve"
	opSearch   = "search"
	opCapture  = "capture"
	opCancel   = "cancel"
	opRefund   = "refund"
	opRefunds  = "list refunds"
	opList     = "list"
)

// DefaultTimeout bounds one request. Two of them, a write and the question that follows when it is not answered, fit into the
// time of one attempt at a step.
const DefaultTimeout = 5 * time.Second

// OrderPlaceholder stands for the order's id in [Config.ReturnURL].
const OrderPlaceholder = "{order_id}"

// Config makes a [Client].
type Config struct {
	// URL is the provider's: scheme, host and port.
	URL string
	// Key is our secret API key.
	Key string
	// Timeout bounds one request, answer included; 0 means DefaultTimeout.
	Timeout time.Duration
	// ReturnURL is where the provider sends a customer back who has authenticated; "{order_id}" in it stands for the order. Without it a
	// real provider gives no link to send the customer to, but only something for its own script in a browser.
	ReturnURL string
	// Transport takes the place of the network; nil is the network.
	Transport http.RoundTripper
	// Wrap puts something around the transport, such as spans; nil puts nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Client calls the provider. It is safe for concurrent use.
type Client struct {
	api       *stripe.Client
	backend   stripe.Backend // for what the SDK reads more of than is wanted
	key       string
	transport *http.Transport
	returnURL string
}

// New makes a client. It connects to nothing yet.
func New(cfg Config) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	transport := newTransport()
	var around http.RoundTripper = once{transport}
	if cfg.Transport != nil {
		around = once{cfg.Transport}
	}
	if cfg.Wrap != nil {
		around = cfg.Wrap(around)
	}
	backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String(strings.TrimSuffix(cfg.URL, "/")),
		HTTPClient:        &http.Client{Timeout: cfg.Timeout, Transport: around},
		MaxNetworkRetries: stripe.Int64(0), // a step decides what is repeated, and after which question
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull}, // errors are returned, and logged once
	})
	return &Client{
		backend: backend, key: cfg.Key, transport: transport, returnURL: cfg.ReturnURL,
		// All four: one that is left out is nil, and a client without any calls the real host.
		api: stripe.NewClient(cfg.Key, stripe.WithBackends(&stripe.Backends{
			API: lean{backend}, Connect: backend, Uploads: backend, MeterEvents: backend,
		})),
	}
}

// Close closes the connections that wait.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Payment is the provider's side of one order's payment.
type Payment struct {
	client *Client
	charge payment.Charge
	amount int64 // in the provider's convention
}

// Payment gives the provider's side of a charge. The error is ErrAmount.
func (c *Client) Payment(charge payment.Charge) (*Payment, error) {
	amount, err := toProvider(charge.Amount)
	if err != nil {
		return nil, err
	}
	return &Payment{client: c, charge: charge, amount: amount}, nil
}

func (p *Payment) currency() string { return strings.ToLower(string(p.charge.Amount.Currency)) }

// maxLink bounds an address for customers, in bytes. More is cut off by some mail programs and browsers.
const maxLink = 2048

const (
	metaOrderID = "order_id"
	metaStepKey = "step_key"
	charge      = "latest_charge"
)

// Create makes an intent that holds nothing before it is confirmed. Repeated under its key it is how the id of an intent is learnt.
func (p *Payment) Create(ctx context.Context, key uuid.UUID) (payment.Intent, error) {
	params := &stripe.PaymentIntentCreateParams{
		Amount:             stripe.Int64(p.amount),
		Currency:           stripe.String(p.currency()),
		CaptureMethod:      stripe.String(string(stripe.PaymentIntentCaptureMethodManual)),
		PaymentMethod:      stripe.String(p.charge.Method),
		PaymentMethodTypes: []*string{stripe.String("card")}, // others may take money without being confirmed by us
	}
	params.AddMetadata(metaOrderID, p.charge.OrderID.String())
	params.AddMetadata(metaStepKey, p.charge.StepKey.String())
	params.SetIdempotencyKey(key.String())
	q := write(ctx, opCreate, key, "")
	pi, err := p.client.api.V1PaymentIntents.Create(q.ctx, params)
	return p.answer(q, pi, err)
}

// Confirm holds the money, unless the provider says otherwise.
func (p *Payment) Confirm(ctx context.Context, key uuid.UUID, id string) (payment.Intent, error) {
	params := &stripe.PaymentIntentConfirmParams{}
	if url := p.client.returnURL; url != "" {
		// It belongs to the confirmation: with the creation the provider refuses it.
		params.ReturnURL = stripe.String(strings.ReplaceAll(url, OrderPlaceholder, p.charge.OrderID.String()))
	}
	params.AddExpand(charge)
	params.SetIdempotencyKey(key.String())
	q := write(ctx, opConfirm, key, id)
	pi, err := p.client.api.V1PaymentIntents.Confirm(q.ctx, id, params)
	return p.answer(q, pi, err)
}

// Retrieve asks for the intent as it is now.
func (p *Payment) Retrieve(ctx context.Context, id string) (payment.Intent, error) {
	params := &stripe.PaymentIntentRetrieveParams{}
	params.AddExpand(charge)
	q := question(ctx, opRetrieve, id)
	pi, err := p.client.api.V1PaymentIntents.Retrieve(q.ctx, id, params)
	return p.answer(q, pi, err)
}

// Find searches for the order's intents. What it finds is there, as it was a moment ago; what it does not find may be there all
// the same. Intents that are not this order's, or about other money, are left out.
func (p *Payment) Find(ctx context.Context) (found []payment.Intent, err error) {
	params := &stripe.PaymentIntentSearchParams{SearchParams: stripe.SearchParams{
		Query: fmt.Sprintf("metadata['%s']:'%s'", metaOrderID, p.charge.OrderID), Single: true,
	}}
	q := question(ctx, opSearch, "")
	defer func() { q.note(nil, "", "", err) }()
	for pi, err := range p.client.api.V1PaymentIntents.Search(q.ctx, params) {
		if err != nil {
			return nil, p.fail(opSearch, err)
		}
		if in, err := p.intent(pi); err == nil {
			found = append(found, in)
		}
	}
	return found, nil
}

// Capture takes all that is held.
func (p *Payment) Capture(ctx context.Context, key uuid.UUID, id string) (payment.Intent, error) {
	params := &stripe.PaymentIntentCaptureParams{}
	params.AddExpand(charge)
	params.SetIdempotencyKey(key.String())
	q := write(ctx, opCapture, key, id)
	pi, err := p.client.api.V1PaymentIntents.Capture(q.ctx, id, params)
	return p.answer(q, pi, err)
}

// Cancel ends the intent for good and releases what it holds.
func (p *Payment) Cancel(ctx context.Context, key uuid.UUID, id string, why payment.Cancellation) (payment.Intent, error) {
	params := &stripe.PaymentIntentCancelParams{CancellationReason: stripe.String(string(why))}
	params.SetIdempotencyKey(key.String())
	q := write(ctx, opCancel, key, id)
	pi, err := p.client.api.V1PaymentIntents.Cancel(q.ctx, id, params)
	return p.answer(q, pi, err)
}

// RefundRest gives back all that is captured and not refunded yet. No amount is sent: so a repeat under the key has the same
// parameters whatever was refunded meanwhile, and no race can give back more than was taken.
func (p *Payment) RefundRest(ctx context.Context, key uuid.UUID, id string) (payment.Refund, error) {
	params := &stripe.RefundCreateParams{PaymentIntent: stripe.String(id)}
	params.AddMetadata(metaOrderID, p.charge.OrderID.String())
	params.SetIdempotencyKey(key.String())
	q := write(ctx, opRefund, key, id)
	r, err := p.client.api.V1Refunds.Create(q.ctx, params)
	if err != nil {
		err = p.fail(opRefund, err)
		q.note(nil, "", "", err)
		return payment.Refund{}, err
	}
	refund, err := p.refund(r, id)
	if err != nil {
		err = p.fail(opRefund, err)
		q.note(r.LastResponse, "", "", err)
		return payment.Refund{}, err
	}
	q.note(r.LastResponse, refund.ID, string(refund.Status), nil)
	refund.Replayed = r.LastResponse != nil && replayed(r.LastResponse)
	return refund, nil
}

// Refunds lists all refunds of an intent.
func (p *Payment) Refunds(ctx context.Context, id string) (refunds []payment.Refund, err error) {
	params := &stripe.RefundListParams{PaymentIntent: stripe.String(id)}
	params.Limit = stripe.Int64(100)
	q := question(ctx, opRefunds, id)
	defer func() { q.note(nil, "", "", err) }()
	for r, err := range p.client.api.V1Refunds.List(q.ctx, params) {
		if err != nil {
			return nil, p.fail(opRefunds, err)
		}
		refund, err := p.refund(r, id)
		if err != nil {
			return nil, p.fail(opRefunds, err)
		}
		refunds = append(refunds, refund)
	}
	return refunds, nil
}

func (p *Payment) refund(r *stripe.Refund, intent string) (payment.Refund, error) {
	if r.ID == "" || r.PaymentIntent == nil || r.PaymentIntent.ID != intent || string(r.Currency) != p.currency() {
		return payment.Refund{}, fmt.Errorf("%w: refund %q", ErrNotOurs, safe(r.ID))
	}
	amount, err := fromProvider(p.charge.Amount.Currency, r.Amount)
	if err != nil {
		return payment.Refund{}, err
	}
	return payment.Refund{ID: r.ID, Status: payment.RefundStatus(r.Status), Amount: amount}, nil
}

// answer turns what the SDK returns into an intent of ours, or an error.
func (p *Payment) answer(q request, pi *stripe.PaymentIntent, err error) (payment.Intent, error) {
	if err != nil {
		err = p.fail(q.Operation, err)
		q.note(nil, "", "", err)
		return payment.Intent{}, err
	}
	in, err := p.intent(pi)
	if err != nil {
		err = p.fail(q.Operation, err)
		q.note(pi.LastResponse, "", "", err)
		return payment.Intent{}, err
	}
	q.note(pi.LastResponse, in.ID, string(in.Status), nil)
	in.Replayed = pi.LastResponse != nil && replayed(pi.LastResponse)
	return in, nil
}

// intent reads an intent, and refuses one that is not the order's.
func (p *Payment) intent(pi *stripe.PaymentIntent) (payment.Intent, error) {
	switch {
	case !plausible(pi.ID):
		return payment.Intent{}, fmt.Errorf("%w: it has no id", ErrNotOurs)
	case pi.Metadata[metaOrderID] != p.charge.OrderID.String() || pi.Metadata[metaStepKey] != p.charge.StepKey.String():
		return payment.Intent{}, fmt.Errorf("%w: %s names order %q", ErrNotOurs, pi.ID, safe(pi.Metadata[metaOrderID]))
	case pi.Amount != p.amount || string(pi.Currency) != p.currency():
		return payment.Intent{}, fmt.Errorf("%w: %s is about %d %s", ErrNotOurs, pi.ID, pi.Amount, safe(string(pi.Currency)))
	}
	in := payment.Intent{
		ID: pi.ID, Status: payment.Status(pi.Status), Amount: p.charge.Amount.Minor,
		Cancellation: payment.Cancellation(pi.CancellationReason),
	}
	if a := pi.NextAction; a != nil && in.Status == payment.RequiresAction {
		in.Action.Type = safe(string(a.Type))
		if a.RedirectToURL != nil {
			in.Action.URL = link(a.RedirectToURL.URL)
		}
	}
	if e := pi.LastPaymentError; e != nil {
		in.Decline = declineReason(e.Code, e.DeclineCode)
	}
	parts := []struct {
		to     *int64
		amount int64
	}{{&in.Held, pi.AmountCapturable}, {&in.Captured, pi.AmountReceived}, {&in.Refunded, 0}}
	if ch := pi.LatestCharge; ch != nil && in.Status == payment.Succeeded {
		parts[2].amount = ch.AmountRefunded
	}
	for _, part := range parts {
		amount, err := fromProvider(p.charge.Amount.Currency, part.amount)
		if err != nil {
			return payment.Intent{}, fmt.Errorf("%w: %s: %w", ErrNotOurs, pi.ID, err)
		}
		*part.to = amount
	}
	return in, nil
}

// link gives a web address of the provider's, or nothing if it is none: it is shown to customers.
func link(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || len(s) > maxLink {
		return ""
	}
	return u.String()
}

// plausible tells whether an id can be stored and put into a path.
func plausible(id string) bool {
	for _, r := range id {
		if (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-' {
			return false
		}
	}
	return id != "" && len(id) <= 255
}

func replayed(r *stripe.APIResponse) bool { return r.Header.Get("Idempotent-Replayed") == "true" }
