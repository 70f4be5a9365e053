package order_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/order"
)

const (
	credential         = "test-credential"
	operatorCredential = "test-operator"
	// patience bounds what must happen soon; it is far above what a slow machine needs.
	patience = 60 * time.Second
)

// world is the order service's surroundings: its database, its broker, and a stand-in for all participants.
type world struct {
	t      *testing.T
	url    string // of the database
	db     *pgxpool.Pool
	broker *natsserver.Server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: pgtest.URL(t), broker: messagingtest.New(t)}
	w.db = pgtest.Open(t, w.url)
	return w
}

// start runs an instance of the service on a database URL, and gives a client of it.
func (w *world) start(databaseURL string) *client {
	w.t.Helper()
	return w.dial(w.run(databaseURL, order.Config{}))
}

// run runs an instance of the service, and gives its address.
func (w *world) run(databaseURL string, cfg order.Config) string {
	w.t.Helper()
	cfg.Config = service.Config{
		DatabaseURL: databaseURL, NATSURL: w.broker.URL(), ServiceCredential: credential, OperatorCredential: operatorCredential, Grace: patience,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan service.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- order.RunWith(ctx, cfg, order.Options{
			Logger: slog.New(slog.NewTextHandler(w.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			Ready:  func(a service.Addresses) { ready <- a },
		})
	}()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("order service ended with %v, want no error", err)
		}
	})
	select {
	case a := <-ready:
		return a.GRPC
	case err := <-ended:
		ended <- nil
		w.t.Fatalf("order service ended: %v", err)
	case <-time.After(patience):
		w.t.Fatal("order service did not become ready")
	}
	return ""
}

func (w *world) dial(addr string) *client {
	w.t.Helper()
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: addr, Credential: credential})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return &client{t: w.t, addr: addr, api: orderv1.NewOrderServiceClient(conn)}
}

// connect gives a connection to the broker.
func (w *world) connect() *messaging.Conn {
	w.t.Helper()
	nc, err := messaging.Connect(messaging.Config{URL: w.broker.URL()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// verdict says what a participant replies to a step of an order.
type verdict func(step string) (outcome, reason string)

func allDone(string) (string, string) { return messaging.OutcomeDone, "" }

func refuse(step, reason string) verdict {
	return func(s string) (string, string) {
		if s == step {
			return messaging.OutcomeRefused, reason
		}
		return messaging.OutcomeDone, ""
	}
}

// participants answers all commands, as payment and shipping would, and remembers them.
type participants struct {
	mu       sync.Mutex
	commands map[uuid.UUID][]string
}

func (w *world) participants(v verdict) *participants {
	w.t.Helper()
	nc, p := w.connect(), &participants{commands: make(map[uuid.UUID][]string)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = nc.Consume(ctx, ctx, messaging.ConsumerConfig{Stream: topology.Commands, Name: "participants"},
			func(ctx context.Context, batch []messaging.Delivery) {
				for i := range batch {
					p.answer(ctx, nc, &batch[i], v)
				}
			})
	}()
	w.t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}

func (p *participants) answer(ctx context.Context, nc *messaging.Conn, d *messaging.Delivery, v verdict) {
	p.mu.Lock()
	p.commands[d.AggregateID] = append(p.commands[d.AggregateID], d.StepName)
	p.mu.Unlock()
	outcome, reason := v(d.StepName)
	if outcome == "" { // silence
		_ = d.Ack()
		return
	}
	reply := messaging.Message{
		ID: keys.NewMessageID(), Kind: messaging.Reply, Subject: topology.PlaceOrderReplies, Type: "throughline.test.v1.Reply",
		Source: "/test", AggregateID: d.AggregateID, IdempotencyKey: d.IdempotencyKey, StepName: d.StepName, StepKey: d.StepKey,
		Outcome: outcome, Reason: reason, LastSeen: d.ID, TraceParent: d.TraceParent, CreatedAt: time.Now(),
	}
	if _, err := nc.Publish(ctx, &reply).Wait(ctx); err == nil {
		_ = d.Ack()
	}
}

// of gives the steps that an order's commands asked for, each once, in their first sequence.
func (p *participants) of(orderID string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var steps []string
	for _, s := range p.commands[uuid.MustParse(orderID)] {
		if !slices.Contains(steps, s) {
			steps = append(steps, s)
		}
	}
	return steps
}

// client calls the service as the gateway does.
type client struct {
	t    *testing.T
	addr string
	api  orderv1.OrderServiceClient
}

// reply is what came back for a call.
type reply struct {
	order    *orderv1.Order
	body     string
	replayed bool
	expired  bool
	err      error
}

func (c *client) create(who, key string, req *orderv1.CreateOrderRequest) reply {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var header metadata.MD
	resp, err := c.api.CreateOrder(grpcx.Outgoing(ctx, grpcx.Entries{ClientID: who, IdempotencyKey: key}), req,
		grpc.Header(&header), grpc.WaitForReady(true))
	return reply{resp.GetOrder(), first(header, grpcx.MetadataHTTPBody), first(header, grpcx.MetadataReplayed) == "true",
		first(header, grpcx.MetadataKeyExpired) == "true", err}
}

func (c *client) cancel(who, key, orderID, reason string) reply {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var header metadata.MD
	resp, err := c.api.CancelOrder(grpcx.Outgoing(ctx, grpcx.Entries{ClientID: who, IdempotencyKey: key}),
		&orderv1.CancelOrderRequest{OrderId: orderID, Reason: reason}, grpc.Header(&header), grpc.WaitForReady(true))
	return reply{resp.GetOrder(), first(header, grpcx.MetadataHTTPBody), first(header, grpcx.MetadataReplayed) == "true",
		first(header, grpcx.MetadataKeyExpired) == "true", err}
}

func first(md metadata.MD, name string) string {
	if v := md.Get(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

func (c *client) get(who, orderID string) (*orderv1.Order, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := c.api.GetOrder(grpcx.Outgoing(ctx, grpcx.Entries{ClientID: who}), &orderv1.GetOrderRequest{OrderId: orderID}, grpc.WaitForReady(true))
	return resp.GetOrder(), err
}

// await asks for an order until it has a status.
func (c *client) await(who, orderID string, want orderv1.OrderStatus) *orderv1.Order {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		o, err := c.get(who, orderID)
		if err == nil && o.GetStatus() == want {
			return o
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("got order %v, %v, want status %s", o, err, want)
		}
	}
}

// must fails the test unless the call succeeded.
func (c *client) must(r reply) reply {
	c.t.Helper()
	if r.err != nil {
		c.t.Fatalf("got error %v, want none", r.err)
	}
	return r
}

// wantReason fails the test unless the call failed with a reason.
func (c *client) wantReason(r reply, want grpcx.Reason) {
	c.t.Helper()
	if got := grpcx.ReasonOf(r.err); got != want {
		c.t.Errorf("got reason %q (%v), want %s", got, r.err, want)
	}
}

func (w *world) count(sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.db.QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// request is an order that is in order; change changes it.
func request(change ...func(*orderv1.CreateOrderRequest)) *orderv1.CreateOrderRequest {
	r := &orderv1.CreateOrderRequest{
		Currency: "EUR", PaymentMethod: "pm_card_visa",
		Lines:  []*orderv1.Line{{Sku: "BOOK-1", Quantity: 2, UnitPrice: 1250}},
		ShipTo: &orderv1.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

// events gives the subjects and payloads of an order's events, in the sequence of the stream, up to one that ends with last.
func (w *world) events(orderID, last string) (subjects []string, seqs []int64) {
	w.t.Helper()
	nc := w.connect()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = nc.Consume(ctx, ctx, messaging.ConsumerConfig{Stream: topology.Events, Name: "test-" + uuid.NewString()},
		func(_ context.Context, batch []messaging.Delivery) {
			for i := range batch {
				d := &batch[i]
				_ = d.Ack()
				if d.AggregateID.String() != orderID || ctx.Err() != nil {
					continue
				}
				if int64(len(seqs)) >= d.AggregateSeq {
					continue // published again
				}
				subjects, seqs = append(subjects, d.Subject), append(seqs, d.AggregateSeq)
				if d.Subject == last {
					cancel()
				}
			}
		})
	return subjects, seqs
}

// proxy stands between the service and its database, and can lose the answer to one message.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	lose  []byte        // the answer to the next message with this is lost, and its connection with it
	lost  chan struct{} // closed when that has happened
	conns map[net.Conn]struct{}
	down  atomic.Bool // nobody is let in
}

// setDown ends all connections and lets nobody in, or lets them in again.
func (p *proxy) setDown(down bool) {
	p.down.Store(down)
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func newProxy(t *testing.T, databaseURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: u.Host, conns: make(map[net.Conn]struct{})}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := p.listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		serving.Wait()
	})
	return p, u.String()
}

func (p *proxy) loseAnswerTo(text string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.lost = []byte(text), make(chan struct{})
	return p.lost
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err == nil && p.down.Load() {
		_ = server.Close()
	}
	if err != nil || p.down.Load() {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	var doomed atomic.Pointer[chan struct{}]
	var copying sync.WaitGroup
	copying.Go(func() {
		pump(server, client, func(piece []byte) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.lose != nil && bytes.Contains(piece, p.lose) {
				p.lose = nil
				doomed.Store(&p.lost)
			}
			return true
		})
	})
	copying.Go(func() {
		pump(client, server, func([]byte) bool {
			lost := doomed.Load()
			if lost == nil {
				return true
			}
			// The server answers a batch this small at its end, after the commit.
			close(*lost)
			return false
		})
	})
	copying.Wait()
}

func pump(dst, src net.Conn, pass func([]byte) bool) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if !pass(buf[:n]) {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
