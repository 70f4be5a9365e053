package payment_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/messaging"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/steptest"
	"github.com/throughline/throughline/services/payment"
	"github.com/throughline/throughline/services/payment/internal/postgres"
	"github.com/throughline/throughline/services/simulator/control"
	simulator "github.com/throughline/throughline/services/simulator/payment"
)

const (
	authorize = "authorize_payment"
	capture   = "capture_payment"
	void      = "void_payment"

	visa = "pm_card_visa"
)

// world is a payment service's surroundings with a payment simulator in them.
type world struct {
	*steptest.World
	sim    *control.Client
	config payment.Config
}

// newWorld makes surroundings without an instance of the service.
func newWorld(t *testing.T, sim simulator.Config) *world {
	t.Helper()
	if sim.SearchLag == 0 {
		sim.SearchLag = -1
	}
	sim.Logger = slog.New(slog.DiscardHandler)
	server, err := simulator.New(sim)
	if err != nil {
		t.Fatalf("starting the simulator: %v", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, server.Close()); err != nil {
			t.Errorf("stopping the simulator: %v", err)
		}
	})
	url := "http://" + ln.Addr().String()
	return &world{
		World: steptest.New(t, "payment", postgres.Migrations()), sim: control.New(url),
		config: payment.Config{ProviderURL: url, ProviderTimeout: 500 * time.Millisecond},
	}
}

// start runs an instance of the service.
func (w *world) start() *steptest.Instance {
	w.T.Helper()
	return w.Start(func(ctx context.Context, base service.Config, opts service.Options) error {
		cfg := w.config
		cfg.Config = base
		return payment.RunWith(ctx, cfg, opts)
	})
}

// order is an order whose money is to move.
type order struct {
	*steptest.Order
	w        *world
	currency string
	amount   int64
	method   string
}

func (w *world) order(t *testing.T) *order {
	return &order{Order: w.Order(t), w: w, currency: "EUR", amount: 2500, method: visa}
}

func (o *order) authorizeCommand() *paymentv1.AuthorizePayment {
	return &paymentv1.AuthorizePayment{
		OrderId: o.ID.String(), ClientId: "steptest", Currency: o.currency, Amount: o.amount, PaymentMethod: o.method,
	}
}

func (o *order) authorize() messaging.Message {
	o.T.Helper()
	return o.Ask(authorize, o.authorizeCommand())
}

func (o *order) captureCommand() messaging.Message {
	o.T.Helper()
	return o.Command(capture, &paymentv1.CapturePayment{OrderId: o.ID.String()})
}

func (o *order) capture() messaging.Message {
	o.T.Helper()
	return o.Ask(capture, &paymentv1.CapturePayment{OrderId: o.ID.String()})
}

func (o *order) void() messaging.Message {
	o.T.Helper()
	return o.Ask(void, &paymentv1.VoidPayment{OrderId: o.ID.String()})
}

// fault adds a rule for this order.
func (o *order) fault(f control.Fault) string {
	o.T.Helper()
	f.OrderID = o.ID.String()
	id, err := o.w.sim.AddFault(o.T.Context(), f)
	if err != nil {
		o.T.Fatalf("adding a fault: %v", err)
	}
	return id
}

func (o *order) act(do string) {
	o.T.Helper()
	if _, err := o.w.sim.Act(o.T.Context(), o.ID.String(), do); err != nil {
		o.T.Fatalf("acting at the provider: %s: %v", do, err)
	}
}

// held waits until n calls wait in a rule.
func (o *order) held(rule string, n int) {
	o.T.Helper()
	o.Until("calls are held", func() bool {
		states, err := o.w.sim.Faults(o.T.Context())
		if err != nil {
			o.T.Fatalf("listing faults: %v", err)
		}
		for _, s := range states {
			if s.ID == rule {
				return s.Held >= n
			}
		}
		return false
	})
}

func (o *order) release(rule string) {
	o.T.Helper()
	if _, err := o.w.sim.Release(o.T.Context(), rule); err != nil {
		o.T.Fatalf("releasing held calls: %v", err)
	}
}

func (o *order) ledger() control.PaymentLedger {
	o.T.Helper()
	l, err := o.w.sim.PaymentLedger(o.T.Context(), o.ID.String())
	if err != nil {
		o.T.Fatalf("reading the ledger: %v", err)
	}
	return l
}

// money sums up what the provider's ledger says about the order.
type money struct{ charges, held, captured, refunded, refunds int64 }

func (o *order) money() (m money) {
	o.T.Helper()
	l := o.ledger()
	for _, in := range l.Intents {
		m.held += in.AmountCapturable
		m.captured += in.AmountCaptured
		m.refunded += in.AmountRefunded
	}
	for _, c := range l.Calls {
		if c.Operation == "payment_intents.confirm" && c.Effect {
			m.charges++
		}
	}
	for _, r := range l.Refunds {
		if r.Status == "succeeded" {
			m.refunds++
		}
	}
	return m
}

func (o *order) wantMoney(want money) {
	o.T.Helper()
	if got := o.money(); got != want {
		o.T.Errorf("money at the provider: got %+v, want %+v; calls: %+v", got, want, o.ledger().Calls)
	}
}

// keys lists the different idempotency keys that an operation was sent with.
func (o *order) keys(operation string) (keys []string) {
	o.T.Helper()
	seen := make(map[string]bool)
	for _, c := range o.ledger().Calls {
		if c.Operation == operation && !seen[c.IdempotencyKey] {
			seen[c.IdempotencyKey] = true
			keys = append(keys, c.IdempotencyKey)
		}
	}
	return keys
}

// calls counts the calls of an operation.
func (o *order) calls(operation string) (n int) {
	o.T.Helper()
	for _, c := range o.ledger().Calls {
		if c.Operation == operation {
			n++
		}
	}
	return n
}

func wantDone(t *testing.T, m messaging.Message) {
	t.Helper()
	if m.Outcome != messaging.OutcomeDone {
		t.Fatalf("%s: got %s %q, want done", m.StepName, m.Outcome, m.Reason)
	}
}

func wantRefused(t *testing.T, m messaging.Message, reason string) {
	t.Helper()
	if m.Outcome != messaging.OutcomeRefused || m.Reason != reason {
		t.Fatalf("%s: got %s %q, want refused %q", m.StepName, m.Outcome, m.Reason, reason)
	}
}

// result decodes the result of a reply.
func result[M any, P interface {
	*M
	proto.Message
}](t *testing.T, m messaging.Message) P {
	t.Helper()
	var into P = new(M)
	if err := proto.Unmarshal(m.Payload, into); err != nil {
		t.Fatalf("decoding the result of %s: %v", m.StepName, err)
	}
	return into
}
