package shipping_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/messaging"
	shippingv1 "github.com/throughline/throughline/proto/gen/throughline/shipping/v1"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/steptest"
	"github.com/throughline/throughline/services/shipping"
	"github.com/throughline/throughline/services/shipping/internal/postgres"
	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/control"
)

const (
	create   = "create_shipment"
	dispatch = "dispatch_shipment"
	cancel   = "cancel_shipment"
)

// world is a shipping service's surroundings with a carrier simulator in them.
type world struct {
	*steptest.World
	sim    *control.Client
	config shipping.Config
}

// newWorld makes surroundings without an instance of the service.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, carrier.Config{})
}

func newWorldWith(t *testing.T, sim carrier.Config) *world {
	t.Helper()
	sim.Logger, sim.APIKey = slog.New(slog.DiscardHandler), "carrier_key"
	server, err := carrier.New(sim)
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
		World: steptest.New(t, "shipping", postgres.Migrations()), sim: control.New(url),
		config: shipping.Config{CarrierURL: url, CarrierKey: "carrier_key", CarrierTimeout: 500 * time.Millisecond, StepSettle: 600 * time.Millisecond},
	}
}

// start runs an instance of the service.
func (w *world) start() *steptest.Instance {
	w.T.Helper()
	return w.Start(func(ctx context.Context, base service.Config, opts service.Options) error {
		cfg := w.config
		cfg.Config = base
		return shipping.RunWith(ctx, cfg, opts)
	})
}

// order is an order whose parcel is to move.
type order struct {
	*steptest.Order
	w       *world
	address *shippingv1.Address
}

func (w *world) order(t *testing.T) *order {
	return &order{Order: w.Order(t), w: w, address: &shippingv1.Address{
		Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE",
	}}
}

func (o *order) createCommand() messaging.Message {
	o.T.Helper()
	return o.Command(create, &shippingv1.CreateShipment{
		OrderId: o.ID.String(), ClientId: "steptest", ShipTo: o.address, Items: []*shippingv1.Item{{Sku: "BOOK-1", Quantity: 2}},
	})
}

func (o *order) dispatchCommand() messaging.Message {
	o.T.Helper()
	return o.Command(dispatch, &shippingv1.DispatchShipment{OrderId: o.ID.String()})
}

func (o *order) cancelCommand() messaging.Message {
	o.T.Helper()
	return o.Command(cancel, &shippingv1.CancelShipment{OrderId: o.ID.String()})
}

func (o *order) ask(m messaging.Message) messaging.Message {
	o.T.Helper()
	o.Publish(m)
	return o.Reply(m.StepName)
}

func (o *order) create() messaging.Message   { o.T.Helper(); return o.ask(o.createCommand()) }
func (o *order) dispatch() messaging.Message { o.T.Helper(); return o.ask(o.dispatchCommand()) }
func (o *order) cancel() messaging.Message   { o.T.Helper(); return o.ask(o.cancelCommand()) }

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
		o.T.Fatalf("acting at the carrier: %s: %v", do, err)
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

func (o *order) ledger() control.CarrierLedger {
	o.T.Helper()
	l, err := o.w.sim.CarrierLedger(o.T.Context(), o.ID.String())
	if err != nil {
		o.T.Fatalf("reading the ledger: %v", err)
	}
	return l
}

// wantShipments compares the statuses of the order's shipments at the carrier, oldest first.
func (o *order) wantShipments(want ...string) {
	o.T.Helper()
	l := o.ledger()
	var got []string
	for _, s := range l.Shipments {
		got = append(got, s.Status)
	}
	if !slices.Equal(got, want) {
		o.T.Errorf("shipments at the carrier: got %v, want %v; calls: %+v", got, want, l.Calls)
	}
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

// wantRow compares the service's own row.
func (o *order) wantRow(status, reason string) {
	o.T.Helper()
	var gotStatus, gotReason string
	err := o.w.DB.QueryRow(o.T.Context(), `SELECT status, refusal_reason FROM shipment WHERE order_id = $1`, o.ID).Scan(&gotStatus, &gotReason)
	if err != nil || gotStatus != status || gotReason != reason {
		o.T.Errorf("row: got %q %q, %v, want %q %q", gotStatus, gotReason, err, status, reason)
	}
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

// result decodes the payload of a message.
func result[M any, P interface {
	*M
	proto.Message
}](t *testing.T, m messaging.Message) P {
	t.Helper()
	var into P = new(M)
	if err := proto.Unmarshal(m.Payload, into); err != nil {
		t.Fatalf("decoding the payload of %s: %v", m.Subject, err)
	}
	return into
}
