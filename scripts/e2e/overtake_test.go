package e2e_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/order"
	"github.com/throughline/throughline/services/payment"
	"github.com/throughline/throughline/services/shipping"
	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/control"
	paymentsim "github.com/throughline/throughline/services/simulator/payment"
)

// parts is the system without its gateway, part by part, so that a test can leave one out and touch the messages meanwhile.
type parts struct {
	t         *testing.T
	databases map[string]string
	nats      string
	js        jetstream.JetStream
	stream    jetstream.Stream
	provider  *control.Client
	carrier   *control.Client
	urls      map[string]string
	api       orderv1.OrderServiceClient
}

func newParts(ctx context.Context, t *testing.T) *parts {
	t.Helper()
	p := &parts{t: t, nats: messagingtest.New(t).URL(), databases: make(map[string]string), urls: make(map[string]string)}
	for _, name := range []string{"order", "payment", "shipping"} {
		p.databases[name] = pgtest.URL(t)
	}
	quiet := slog.New(slog.DiscardHandler)
	provider, err := paymentsim.New(paymentsim.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	parcels, err := carrier.New(carrier.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p.urls["payment"], p.urls["shipping"] = p.serve(provider), p.serve(parcels)
	p.provider, p.carrier = control.New(p.urls["payment"]), control.New(p.urls["shipping"])
	conn, err := grpc.NewClient(p.run("order"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p.api = orderv1.NewOrderServiceClient(conn)
	nc, err := nats.Connect(p.nats)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if p.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	system.Eventually(ctx, t, "the stream of commands", func() bool {
		p.stream, err = p.js.Stream(ctx, "CMD")
		return err == nil
	})
	return p
}

// credential is what the services show each other here.
const credential = "e2e"

// run runs an instance of a service, and gives where it serves gRPC.
func (p *parts) run(name string) string {
	p.t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(p.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(p.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})).With("service", name)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		switch name {
		case "order":
			var cfg order.Config
			cfg.DatabaseURL, cfg.NATSURL, cfg.ServiceCredential, cfg.Grace = p.databases[name], p.nats, credential, 10*time.Second
			cfg.PaymentAddr, cfg.ShippingAddr = "127.0.0.1:1", "127.0.0.1:1" // nobody is asked: what is to happen happens by messages
			ended <- order.RunWith(ctx, cfg, order.Options{GRPCListener: ln, Logger: log})
		case "payment":
			var cfg payment.Config
			cfg.DatabaseURL, cfg.NATSURL, cfg.ServiceCredential, cfg.Grace = p.databases[name], p.nats, credential, 10*time.Second
			cfg.ProviderURL = p.urls[name]
			ended <- payment.RunWith(ctx, cfg, payment.Options{GRPCListener: ln, Logger: log})
		case "shipping":
			var cfg shipping.Config
			cfg.DatabaseURL, cfg.NATSURL, cfg.ServiceCredential, cfg.Grace = p.databases[name], p.nats, credential, 10*time.Second
			cfg.CarrierURL = p.urls[name]
			ended <- shipping.RunWith(ctx, cfg, shipping.Options{GRPCListener: ln, Logger: log})
		}
	}()
	p.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			p.t.Errorf("%s ended with: %v", name, err)
		}
	})
	return ln.Addr().String()
}

// as is a call of the gateway's for a client, with a key.
func as(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+credential, "client-id", "storefront", "idempotency-key", key)
}

func (p *parts) place(ctx context.Context, key string) string {
	p.t.Helper()
	resp, err := p.api.CreateOrder(as(ctx, key), &orderv1.CreateOrderRequest{
		Currency: "EUR", PaymentMethod: "pm_card_visa", Lines: []*orderv1.Line{{Sku: "BOOK-1", Quantity: 2, UnitPrice: 1250}},
		ShipTo: &orderv1.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"},
	})
	if err != nil {
		p.t.Fatalf("placing an order: %v", err)
	}
	return resp.GetOrder().GetOrderId()
}

func (p *parts) cancel(ctx context.Context, id string) {
	p.t.Helper()
	if _, err := p.api.CancelOrder(as(ctx, "cancel-"+id), &orderv1.CancelOrderRequest{OrderId: id}); err != nil {
		p.t.Fatalf("cancelling an order: %v", err)
	}
}

func (p *parts) await(ctx context.Context, id string, want orderv1.OrderStatus) {
	p.t.Helper()
	system.Eventually(ctx, p.t, "order "+id+" to be "+want.String(), func() bool {
		resp, err := p.api.GetOrder(as(ctx, "get"), &orderv1.GetOrderRequest{OrderId: id})
		return err == nil && resp.GetOrder().GetStatus() == want
	})
}

// serve serves a simulator and gives its URL.
func (p *parts) serve(s interface {
	Serve(ctx context.Context, ln net.Listener) error
	Close() error
},
) string {
	p.t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(p.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	p.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, s.Close()); err != nil {
			p.t.Errorf("stopping a simulator: %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}

// steal takes a command from the stream before anybody can read it.
func (p *parts) steal(ctx context.Context, step string) *jetstream.RawStreamMsg {
	p.t.Helper()
	var m *jetstream.RawStreamMsg
	system.Eventually(ctx, p.t, step+" to be sent", func() bool {
		var err error
		m, err = p.stream.GetLastMsgForSubject(ctx, step)
		return err == nil
	})
	if err := p.stream.DeleteMsg(ctx, m.Sequence); err != nil {
		p.t.Fatalf("taking %s from the stream: %v", step, err)
	}
	return m
}

// again publishes a message as a copy that the broker does not know.
func (p *parts) again(ctx context.Context, m *jetstream.RawStreamMsg) {
	p.t.Helper()
	msg := nats.NewMsg(m.Subject)
	msg.Data = m.Data
	for name, values := range m.Header {
		msg.Header[name] = values
	}
	msg.Header.Set(nats.MsgIdHdr, uuid.NewString())
	if _, err := p.js.PublishMsg(ctx, msg); err != nil {
		p.t.Fatalf("publishing a copy of %s: %v", m.Subject, err)
	}
}

// drained waits until every command has been taken.
func (p *parts) drained(ctx context.Context) {
	p.t.Helper()
	system.Eventually(ctx, p.t, "all commands to be taken", func() bool {
		info, err := p.stream.Info(ctx)
		return err == nil && info.State.Msgs == 0
	})
}

// TestUndoOvertakesAction lets an undo arrive, three times at once and at two instances, before the action that it undoes, which a
// client's cancellation has made needless. The action that comes later is refused without a call.
func TestUndoOvertakesAction(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ service, action, undo string }{
		"payment":  {"payment", "cmd.payment.authorize_payment", "cmd.payment.void_payment"},
		"shipping": {"shipping", "cmd.shipping.create_shipment", "cmd.shipping.cancel_shipment"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := system.Context(t, 3*time.Minute)
			p := newParts(ctx, t)
			if tt.service == "shipping" {
				p.run("payment") // its step comes first
			}
			id := p.place(ctx, "k")
			action := p.steal(ctx, tt.action)
			p.cancel(ctx, id)
			undo := p.steal(ctx, tt.undo)
			for range 3 {
				p.again(ctx, undo)
			}
			p.run(tt.service)
			p.run(tt.service)
			p.await(ctx, id, orderv1.OrderStatus_ORDER_STATUS_CANCELLED)
			p.again(ctx, action)
			p.drained(ctx)
			// Its reply is a refusal, which changes nothing; and the replies of all copies are in before the next order's.
			p.run("shipping")
			if tt.service == "shipping" {
				p.run("payment")
			}
			other := p.place(ctx, "other")
			p.await(ctx, other, orderv1.OrderStatus_ORDER_STATUS_CONFIRMED)
			p.await(ctx, id, orderv1.OrderStatus_ORDER_STATUS_CANCELLED)

			payments, err := p.provider.PaymentLedger(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			parcels, err := p.carrier.CarrierLedger(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if tt.service == "payment" && len(payments.Calls) != 0 {
				t.Errorf("calls to the provider: got %+v, want none", payments.Calls)
			}
			for _, in := range payments.Intents {
				if in.Status != "canceled" || in.AmountCaptured != 0 {
					t.Errorf("payment: got %+v, want it cancelled", in)
				}
			}
			if len(parcels.Shipments) != 0 {
				t.Errorf("parcels: got %+v, want none", parcels.Shipments)
			}
			for _, c := range parcels.Calls {
				if c.Operation == "shipments.create" {
					t.Errorf("calls to the carrier: got %+v, want no creation", c)
				}
			}
			for service, url := range p.databases {
				var letters int
				if err := pgtest.Open(t, url).QueryRow(ctx, `SELECT count(*) FROM dead_letter`).Scan(&letters); err != nil || letters != 0 {
					t.Errorf("dead letters of %s: got %d, %v, want none", service, letters, err)
				}
			}
		})
	}
}
