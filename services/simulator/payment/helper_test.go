package payment_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/simulator/payment"
)

// simulator is a running payment simulator, seen only through HTTP.
type simulator struct {
	t       *testing.T
	url     string
	stripe  *stripe.Client
	control *control.Client
	stop    func() // returns once it has stopped and closed its ledger
}

// start runs a simulator on a free port until the test ends.
func start(t *testing.T, c payment.Config) *simulator {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.SearchLag == 0 {
		c.SearchLag = -1
	}
	server, err := payment.New(c)
	if err != nil {
		t.Fatalf("starting: %v", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, ln) }()
	stopped := false
	s := &simulator{t: t, url: "http://" + ln.Addr().String()}
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-served, server.Close()); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}
	t.Cleanup(s.stop)
	s.control = control.New(s.url)
	s.stripe = newStripe(s.url)
	return s
}

// newStripe is the provider's own client, as the product sets it up.
func newStripe(baseURL string) *stripe.Client {
	b := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: stripe.String(baseURL), MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		HTTPClient:    &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	return stripe.NewClient("sk_test_1", stripe.WithBackends(&stripe.Backends{API: b, Connect: b, Uploads: b, MeterEvents: b}))
}

// create makes an unconfirmed intent over 1099 EUR with manual capture.
func (s *simulator) create(order, method, key string) (*stripe.PaymentIntent, error) {
	p := &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(1099), Currency: stripe.String("eur"), CaptureMethod: stripe.String("manual"),
	}
	if method != "" {
		p.PaymentMethod = stripe.String(method)
	}
	p.AddMetadata("order_id", order)
	p.SetIdempotencyKey(key)
	return s.stripe.V1PaymentIntents.Create(s.t.Context(), p)
}

func (s *simulator) mustCreate(order, method string) *stripe.PaymentIntent {
	s.t.Helper()
	pi, err := s.create(order, method, "create-"+order)
	if err != nil {
		s.t.Fatalf("creating intent: %v", err)
	}
	return pi
}

func (s *simulator) confirm(id, key string) (*stripe.PaymentIntent, error) {
	p := &stripe.PaymentIntentConfirmParams{}
	p.SetIdempotencyKey(key)
	return s.stripe.V1PaymentIntents.Confirm(s.t.Context(), id, p)
}

func (s *simulator) capture(id, key string) (*stripe.PaymentIntent, error) {
	p := &stripe.PaymentIntentCaptureParams{}
	p.SetIdempotencyKey(key)
	return s.stripe.V1PaymentIntents.Capture(s.t.Context(), id, p)
}

func (s *simulator) cancel(id, key string) (*stripe.PaymentIntent, error) {
	p := &stripe.PaymentIntentCancelParams{CancellationReason: stripe.String("requested_by_customer")}
	p.SetIdempotencyKey(key)
	return s.stripe.V1PaymentIntents.Cancel(s.t.Context(), id, p)
}

func (s *simulator) refund(id, key string, amount int64) (*stripe.Refund, error) {
	p := &stripe.RefundCreateParams{PaymentIntent: stripe.String(id)}
	if amount > 0 {
		p.Amount = stripe.Int64(amount)
	}
	p.SetIdempotencyKey(key)
	return s.stripe.V1Refunds.Create(s.t.Context(), p)
}

func (s *simulator) retrieve(id string) *stripe.PaymentIntent {
	s.t.Helper()
	pi, err := s.stripe.V1PaymentIntents.Retrieve(s.t.Context(), id, nil)
	if err != nil {
		s.t.Fatalf("retrieving %s: %v", id, err)
	}
	return pi
}

// in brings a new intent of the order into the status.
func (s *simulator) in(order string, status stripe.PaymentIntentStatus) *stripe.PaymentIntent {
	s.t.Helper()
	method := "pm_card_visa"
	switch status {
	case stripe.PaymentIntentStatusRequiresPaymentMethod:
		method = ""
	case stripe.PaymentIntentStatusRequiresAction:
		method = "pm_card_threeDSecure2Required"
	}
	pi := s.mustCreate(order, method)
	var err error
	switch status {
	case stripe.PaymentIntentStatusRequiresAction, stripe.PaymentIntentStatusRequiresCapture:
		pi, err = s.confirm(pi.ID, "confirm-"+order)
	case stripe.PaymentIntentStatusSucceeded:
		if _, err = s.confirm(pi.ID, "confirm-"+order); err == nil {
			pi, err = s.capture(pi.ID, "capture-"+order)
		}
	case stripe.PaymentIntentStatusCanceled:
		pi, err = s.cancel(pi.ID, "cancel-"+order)
	}
	if err != nil {
		s.t.Fatalf("bringing intent to %s: %v", status, err)
	}
	if pi.Status != status {
		s.t.Fatalf("status: got %s, want %s", pi.Status, status)
	}
	return pi
}

func (s *simulator) ledger(order string) control.PaymentLedger {
	s.t.Helper()
	l, err := s.control.PaymentLedger(s.t.Context(), order)
	if err != nil {
		s.t.Fatalf("reading ledger: %v", err)
	}
	return l
}

func (s *simulator) fault(f control.Fault) string {
	s.t.Helper()
	id, err := s.control.AddFault(s.t.Context(), f)
	if err != nil {
		s.t.Fatalf("adding fault: %v", err)
	}
	return id
}

// held returns once n calls wait in the rule.
func (s *simulator) held(rule string, n int) {
	s.t.Helper()
	eventually(s.t, "calls held", func() bool {
		states, err := s.control.Faults(s.t.Context())
		if err != nil {
			s.t.Fatalf("listing faults: %v", err)
		}
		for _, state := range states {
			if state.ID == rule {
				return state.Held == n
			}
		}
		return false
	})
}

// eventually asks over HTTP until the answer is yes; each question is a round
// trip, which is pause enough.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !yes(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// raw is an answer with nothing interpreted.
type raw struct {
	status int
	body   string
	header http.Header
}

func (s *simulator) post(path, key, form string) raw {
	s.t.Helper()
	r, err := s.try(path, key, form)
	if err != nil {
		s.t.Fatalf("POST %s: %v", path, err)
	}
	return r
}

func (s *simulator) try(path, key, form string) (raw, error) {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(form))
	if err != nil {
		return raw{}, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer sk_test_1")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	return do(req)
}

// do uses a connection of its own: on a kept-alive one net/http would send a
// request with an Idempotency-Key again by itself when the answer is dropped.
func do(req *http.Request) (r raw, err error) {
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return raw{}, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	return raw{resp.StatusCode, string(body), resp.Header}, err
}

// asStripe returns the provider's error in err.
func asStripe(t *testing.T, err error) *stripe.Error {
	t.Helper()
	var e *stripe.Error
	if !errors.As(err, &e) {
		t.Fatalf("error: got %v, want a provider's error", err)
	}
	return e
}

const createForm = "amount=1099&currency=eur&capture_method=manual&payment_method=pm_card_visa&metadata%5Border_id%5D=o1"
