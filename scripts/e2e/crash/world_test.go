package crash_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/control"
	paymentsim "github.com/throughline/throughline/services/simulator/payment"
	"github.com/throughline/throughline/services/throughline/verify"
)

const (
	// ackWait takes the place of the consumers' own half minute: what a dead process had in hand comes again soon.
	ackWait = 2 * time.Second
	poll    = 100 * time.Millisecond
)

// world is the system: one process for each service, on a database and a broker of the test's own.
type world struct {
	t                 *testing.T
	dir, binary       string
	processes         map[string]*process
	databases         map[string]*pgxpool.Pool
	js                jetstream.JetStream
	provider, carrier *control.Client
	shop              *system.Client

	ctx    context.Context // of the test; ends when time is up or something is beyond repair
	giveUp context.CancelFunc
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), processes: make(map[string]*process), databases: make(map[string]*pgxpool.Pool)}
	w.binary = build(t)
	w.ctx, w.giveUp = context.WithTimeout(context.Background(), patience)
	t.Cleanup(w.giveUp)
	broker := messagingtest.New(t).URL()
	nc, err := nats.Connect(broker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if w.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	ports := system.FreePorts(t, 1)
	at := func(name string) string { return fmt.Sprintf("127.0.0.1:%d", ports[name]) }
	secret := "whsec_Y3Jhc2hjcmFzaGNyYXNoY3Jhc2g="
	provider, err := paymentsim.New(paymentsim.Config{
		Logger: slog.New(slog.DiscardHandler), WebhookURL: "http://" + at("payment-webhooks") + "/webhooks/provider", WebhookSecret: secret,
	})
	if err != nil {
		t.Fatal(err)
	}
	parcels, err := carrier.New(carrier.Config{
		Logger: slog.New(slog.DiscardHandler), WebhookURL: "http://" + at("shipping-webhooks") + "/webhooks/carrier", WebhookSecret: secret,
	})
	if err != nil {
		t.Fatal(err)
	}
	providerURL, carrierURL := serve(t, provider), serve(t, parcels)
	w.provider, w.carrier = control.New(providerURL), control.New(carrierURL)
	listen := func(service string, more ...string) []string {
		return append(more, "THROUGHLINE_GRPC_ADDR="+at(service+"-grpc"), "THROUGHLINE_HTTP_ADDR="+at(service+"-http"))
	}
	stored := func(service string, more ...string) []string {
		url := pgtest.URL(t)
		w.databases[service] = pgtest.Open(t, url)
		return listen(service, append(more, "DATABASE_URL="+url, "NATS_URL="+broker)...)
	}
	// A lease is as short as the time of two calls lets it be: it is what a crash between claim and record costs.
	w.keep("payment", stored("payment", "THROUGHLINE_PROVIDER_URL="+providerURL, "THROUGHLINE_PROVIDER_TIMEOUT=2s", "THROUGHLINE_STEP_LEASE=5s",
		"THROUGHLINE_WEBHOOK_ADDR="+at("payment-webhooks"), "THROUGHLINE_WEBHOOK_SECRET="+secret)...)
	w.keep("shipping", stored("shipping", "THROUGHLINE_CARRIER_URL="+carrierURL, "THROUGHLINE_CARRIER_TIMEOUT=2s", "THROUGHLINE_STEP_LEASE=5s",
		"THROUGHLINE_WEBHOOK_ADDR="+at("shipping-webhooks"), "THROUGHLINE_WEBHOOK_SECRET="+secret)...)
	w.keep("order", stored("order", "THROUGHLINE_PAYMENT_ADDR="+at("payment-grpc"), "THROUGHLINE_SHIPPING_ADDR="+at("shipping-grpc"))...)
	w.keep("gateway", "THROUGHLINE_GRPC_ADDR="+at("grpc"), "THROUGHLINE_HTTP_ADDR="+at("http"), "THROUGHLINE_ORDER_ADDR="+at("order-grpc"),
		"THROUGHLINE_API_KEYS=storefront=key-of-the-storefront")
	w.shop = &system.Client{ID: "storefront", Key: "key-of-the-storefront", URLs: []string{"http://" + at("http")}, HTTP: &http.Client{
		Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64},
	}}
	t.Cleanup(w.shop.HTTP.CloseIdleConnections)
	go w.hurry(w.ctx)
	return w
}

// build makes the program with fault points.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "throughline")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "faultpoints", "-o", path,
		"github.com/throughline/throughline/services/throughline/cmd/throughline").CombinedOutput()
	if err != nil {
		t.Fatalf("building the program with fault points: %v\n%s", err, out)
	}
	// That a release has none is looked for by this name, too.
	if program, err := os.ReadFile(path); err != nil || !bytes.Contains(program, []byte("pkg/fault.die")) {
		t.Fatalf("looking for fault points in the program: got none (%v)", err)
	}
	return path
}

func serve(t *testing.T, s interface {
	Serve(ctx context.Context, ln net.Listener) error
	Close() error
},
) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, s.Close()); err != nil {
			t.Errorf("stopping a simulator: %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}

// consumers are those whose patience is cut short, by their streams.
func consumers() map[string][]string {
	return map[string][]string{"CMD": {"payment-commands", "shipping-commands"}, "RPL": {"order-replies"}}
}

// hurry keeps the consumers' patience short. Each start of a service sets its own again.
func (w *world) hurry(ctx context.Context) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for stream, names := range consumers() {
			for _, name := range names {
				c, err := w.js.Consumer(ctx, stream, name)
				if err != nil {
					continue // not there yet
				}
				if cfg := c.CachedInfo().Config; cfg.AckWait != ackWait {
					cfg.AckWait = ackWait
					_, _ = w.js.UpdateConsumer(ctx, stream, cfg) // the next tick sees whether it worked
				}
			}
		}
	}
}

// ended waits until an order is at rest, and tells whether the crashes had held it up for longer than a step's budget: such an order is undone, as it
// should be, and shows nothing of what it would have come to. It asks the database, which is the one part that nobody kills.
func (w *world) ended(ctx context.Context, id uuid.UUID) (late bool, err error) {
	tick := time.NewTicker(2 * poll)
	defer tick.Stop()
	for {
		var status, reason string
		if err := w.databases["order"].QueryRow(ctx, `SELECT status, failure_reason FROM customer_order WHERE order_id = $1`, id).Scan(&status, &reason); err != nil {
			return false, fmt.Errorf("waiting for order %s: %w", id, err)
		}
		if status != verify.Pending && status != verify.Compensating {
			return reason == saga.ReasonTimedOut, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false, fmt.Errorf("waiting for order %s, which is %s: %w", id, status, ctx.Err())
		}
	}
}

// quiet waits until nothing moves any more: all orders at rest, nothing to publish, nothing to take. It gives the orders.
func (w *world) quiet(ctx context.Context) map[string]verify.Order {
	w.t.Helper()
	byID := make(map[string]verify.Order)
	tick := time.NewTicker(2 * poll)
	defer tick.Stop()
	for moving := "nothing was looked at"; moving != ""; {
		select {
		case <-ctx.Done():
			w.t.Fatalf("waiting for everything to come to rest: %s", moving)
		case <-tick.C:
		}
		moving = w.moving(ctx, byID)
	}
	return byID
}

// moving tells what moves, and notes all orders.
func (w *world) moving(ctx context.Context, byID map[string]verify.Order) string {
	orders, err := w.shop.Orders(ctx)
	if err != nil {
		return fmt.Sprintf("orders: %v", err)
	}
	for _, o := range orders {
		byID[o.ID] = o
		if o.Status == verify.Pending || o.Status == verify.Compensating {
			return fmt.Sprintf("order %s is %s", o.ID, o.Status)
		}
	}
	for service, db := range w.databases {
		var n int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&n); err != nil || n > 0 {
			return fmt.Sprintf("outbox of %s: %d rows, %v", service, n, err)
		}
	}
	for stream := range consumers() {
		s, err := w.js.Stream(ctx, stream)
		if err != nil || s.CachedInfo().State.Msgs > 0 {
			return fmt.Sprintf("stream %s: not empty, %v", stream, err)
		}
	}
	return ""
}

// lay arms a passage.
func (w *world) lay(path string) {
	w.t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		w.t.Fatal(err)
	}
}
