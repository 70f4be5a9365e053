package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/app"
	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/jsonpb"
)

const (
	credential    = "between-us-in-tests"
	storefrontKey = "key-of-the-storefront"
	marketKey     = "key-of-the-marketplace"
	r0            = `{"currency":"EUR","lines":[{"sku":"BOOK-1","quantity":2,"unit_price":1250}],` +
		`"ship_to":{"name":"A. Buyer","line1":"1 High St","city":"Berlin","postal_code":"10115","country":"DE"},` +
		`"payment_method":"pm_card_visa","note":"","metadata":{}}`
)

// orders is the gateway's neighbour: as much of an order service as the edge can see.
type orders struct {
	orderv1.UnimplementedOrderServiceServer
	orderv1.UnimplementedAccessServiceServer

	mu     sync.Mutex
	calls  []call
	stored map[string]stored
	// keys are the clients' keys by prefix.
	keys  map[string]tableKey
	asked int // for keys
	terms *orderv1.GetTermsResponse
	// before, if set, runs first in each call; an error is the answer.
	before func(ctx context.Context, method string) error
}

type call struct {
	method string
	md     metadata.MD
	left   time.Duration // until the deadline
	req    proto.Message
}

type stored struct {
	req  *orderv1.CreateOrderRequest
	resp *orderv1.CreateOrderResponse
	body string
}

func (o *orders) note(ctx context.Context, method string, req proto.Message) error {
	md, _ := metadata.FromIncomingContext(ctx)
	c := call{method: method, md: md.Copy(), req: proto.Clone(req)}
	if deadline, ok := ctx.Deadline(); ok {
		c.left = time.Until(deadline)
	}
	o.mu.Lock()
	o.calls = append(o.calls, c)
	before := o.before
	o.mu.Unlock()
	if before != nil {
		return before(ctx, method)
	}
	return nil
}

func (o *orders) CreateOrder(ctx context.Context, req *orderv1.CreateOrderRequest) (*orderv1.CreateOrderResponse, error) {
	if err := o.note(ctx, "CreateOrder", req); err != nil {
		return nil, err
	}
	client, err := grpcx.ClientID(ctx)
	if err != nil {
		return nil, err
	}
	key, err := grpcx.IdempotencyKey(ctx)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	id := keys.OrderID(client, key).String()
	s, replay := o.stored[id]
	switch {
	case replay && !proto.Equal(s.req, req):
		return nil, grpcx.Error(grpcx.KeyMismatch, "the key names another order", grpcx.WithViolations(
			grpcx.Violation{Path: "lines[0].quantity", Detail: "differs"}))
	case !replay:
		order := &orderv1.Order{OrderId: id, Status: orderv1.OrderStatus_ORDER_STATUS_PENDING, Currency: req.GetCurrency(),
			Lines: req.GetLines(), ShipTo: req.GetShipTo(), Note: req.GetNote(), IdempotencyKey: key}
		for _, l := range req.GetLines() {
			order.Total += l.GetQuantity() * l.GetUnitPrice()
		}
		body, err := jsonpb.Marshal(order)
		if err != nil {
			return nil, err
		}
		// The blank shows that the gateway does not render the body again.
		s = stored{req: req, resp: &orderv1.CreateOrderResponse{Order: order}, body: "{ " + string(body[1:])}
		o.stored[id] = s
	}
	md := metadata.Pairs(grpcx.MetadataHTTPBody, s.body)
	if replay {
		md.Set(grpcx.MetadataReplayed, "true")
	}
	return s.resp, grpc.SetHeader(ctx, md)
}

func (o *orders) GetOrder(ctx context.Context, req *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
	if err := o.note(ctx, "GetOrder", req); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s, ok := o.stored[req.GetOrderId()]
	if !ok {
		return nil, grpcx.Error(grpcx.OrderNotFound, "there is no such order")
	}
	return &orderv1.GetOrderResponse{Order: s.resp.GetOrder()}, nil
}

func (o *orders) ListOrders(ctx context.Context, req *orderv1.ListOrdersRequest) (*orderv1.ListOrdersResponse, error) {
	if err := o.note(ctx, "ListOrders", req); err != nil {
		return nil, err
	}
	return &orderv1.ListOrdersResponse{NextPageToken: "next"}, nil
}

func (o *orders) CancelOrder(ctx context.Context, req *orderv1.CancelOrderRequest) (*orderv1.CancelOrderResponse, error) {
	if err := o.note(ctx, "CancelOrder", req); err != nil {
		return nil, err
	}
	return &orderv1.CancelOrderResponse{Order: &orderv1.Order{
		OrderId: req.GetOrderId(), Status: orderv1.OrderStatus_ORDER_STATUS_COMPENSATING}}, nil
}

type tableKey struct {
	apikey.Key
	client string
	scopes []orderv1.Scope
}

func (o *orders) ResolveKey(ctx context.Context, req *orderv1.ResolveKeyRequest) (*orderv1.ResolveKeyResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	if o.before != nil {
		if err := o.before(ctx, "ResolveKey"); err != nil {
			return nil, err
		}
	}
	k, ok := o.keys[req.GetPrefix()]
	if !ok || !bytes.Equal(k.Hash[:], req.GetSha256()) {
		return &orderv1.ResolveKeyResponse{}, nil
	}
	return &orderv1.ResolveKeyResponse{ClientId: k.client, Scopes: k.scopes}, nil
}

// addKey gives a client a key in the order service's table.
func (o *orders) addKey(client string, scopes ...orderv1.Scope) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := apikey.Mint()
	if o.keys == nil {
		o.keys = map[string]tableKey{}
	}
	o.keys[k.Prefix] = tableKey{k, client, scopes}
	return k.Text
}

func (o *orders) keyQuestions() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

func (o *orders) GetIdempotencyKey(ctx context.Context, req *orderv1.GetIdempotencyKeyRequest) (*orderv1.GetIdempotencyKeyResponse, error) {
	if err := o.note(ctx, "GetIdempotencyKey", req); err != nil {
		return nil, err
	}
	return &orderv1.GetIdempotencyKeyResponse{IdempotencyKey: &orderv1.IdempotencyKey{
		Key: req.GetKey(), State: orderv1.KeyState_KEY_STATE_UNKNOWN}}, nil
}

// seen answers the calls so far.
func (o *orders) seen() []call {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]call(nil), o.calls...)
}

func (o *orders) last(t *testing.T) call {
	t.Helper()
	calls := o.seen()
	if len(calls) == 0 {
		t.Fatal("the order service was not called")
	}
	return calls[len(calls)-1]
}

// answerWith sets what every call is answered with.
func (o *orders) answerWith(before func(ctx context.Context, method string) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before = before
}

// edge is a gateway with its neighbour, both on loopback sockets.
type edge struct {
	*orders
	t     *testing.T
	app   *app.App
	base  string
	spans *tracetest.InMemoryExporter
	tel   *telemetry.Telemetry
	log   *logBuffer
	stop  context.CancelFunc
	ended chan error // one value, when the gateway has ended
	http  *http.Client
	order *grpcx.Server
}

func start(t *testing.T, change ...func(*config.Config)) *edge {
	t.Helper()
	e := &edge{t: t, orders: &orders{stored: map[string]stored{}}, spans: tracetest.NewInMemoryExporter(),
		log: new(logBuffer), ended: make(chan error, 1)}
	var err error
	if e.order, err = grpcx.NewServer(grpcx.ServerConfig{Credentials: []string{credential}}); err != nil {
		t.Fatalf("making the order service: %v", err)
	}
	orderv1.RegisterOrderServiceServer(e.order, e.orders)
	orderv1.RegisterAccessServiceServer(e.order, e.orders)
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	orderEnded := make(chan struct{})
	go func() { defer close(orderEnded); _ = e.order.Serve(lis) }()
	t.Cleanup(func() { e.order.Stop(); <-orderEnded })

	logger := slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e.tel, err = telemetry.Setup(t.Context(), telemetry.Config{ServiceName: "gateway", Exporter: e.spans, Logger: logger})
	if err != nil {
		t.Fatalf("setting up telemetry: %v", err)
	}
	t.Cleanup(func() { _ = e.tel.Shutdown(context.Background()) })
	cfg := config.Config{
		HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", OrderAddr: lis.Addr().String(), ServiceCredential: credential,
		APIKeys: "storefront=" + storefrontKey + ",marketplace=" + marketKey, CallTimeout: 10 * time.Second, Grace: 10 * time.Second,
	}
	for _, c := range change {
		c(&cfg)
	}
	if e.app, err = app.New(t.Context(), cfg, app.Network{}, e.tel, logger); err != nil {
		t.Fatalf("making the gateway: %v", err)
	}
	e.base = "http://" + e.app.HTTPAddr()
	e.http = &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
	stop, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	ready, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		e.ended <- e.app.Run(stop, context.WithoutCancel(stop), func() { close(ready) })
	}()
	t.Cleanup(func() { e.http.CloseIdleConnections(); cancel(); <-done })
	select {
	case <-ready:
	case <-done:
		t.Fatal("the gateway ended at once")
	}
	return e
}

// answer is an HTTP answer, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; header lines come in pairs of name and value, one line each.
func (e *edge) do(method, path, body string, header ...string) answer {
	e.t.Helper()
	return e.send(e.request(method, path, strings.NewReader(body), header...))
}

func (e *edge) request(method, path string, body io.Reader, header ...string) *http.Request {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), method, e.base+path, body)
	if err != nil {
		e.t.Fatalf("making a request: %v", err)
	}
	r.Header.Set("Authorization", "Bearer "+storefrontKey)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	set := map[string]bool{}
	for i := 0; i < len(header); i += 2 {
		name := http.CanonicalHeaderKey(header[i])
		if !set[name] {
			r.Header.Del(name) // the first line given replaces the default
		}
		set[name] = true
		r.Header[name] = append(r.Header[name], header[i+1])
	}
	return r
}

func (e *edge) send(r *http.Request) answer {
	e.t.Helper()
	resp, err := e.http.Do(r)
	if err != nil {
		e.t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatalf("%s %s: reading the answer: %v", r.Method, r.URL.Path, err)
	}
	a := answer{resp.StatusCode, resp.Header, string(b)}
	if a.status >= 400 && r.Method != http.MethodHead {
		e.checkProblem(a)
	}
	return a
}

func (e *edge) create(key, body string, header ...string) answer {
	e.t.Helper()
	return e.do(http.MethodPost, "/v1/orders", body, append([]string{"Idempotency-Key", key}, header...)...)
}

type problem struct {
	Type, Title, Detail, Reason string
	Status                      int
	Errors                      []struct{ Path, Detail string }
}

// checkProblem checks what every answer of 400 or more must be.
func (e *edge) checkProblem(a answer) problem {
	e.t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		e.t.Errorf("status %d: got Content-Type %q, want a problem: %s", a.status, got, a.body)
	}
	if got, want := a.header.Get("Content-Length"), strconv.Itoa(len(a.body)); got != want {
		e.t.Errorf("status %d: got Content-Length %q, want %q", a.status, got, want)
	}
	var p problem
	d := json.NewDecoder(strings.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		e.t.Errorf("status %d: reading %q: %v", a.status, a.body, err)
	}
	if p.Status != a.status || p.Title == "" || p.Detail == "" {
		e.t.Errorf("status %d: got %+v, want the same status, a title and a detail", a.status, p)
	}
	if m := grpcx.Reason(p.Reason).Meaning(); p.Reason != "" &&
		(p.Type != grpcx.Reason(p.Reason).ProblemType() || p.Title != m.Title || p.Status != m.Status) {
		e.t.Errorf("got %+v, want what %s means: %+v", p, p.Reason, m)
	}
	return p
}

// refused checks an answer's reason, and the path of its first error where one is given.
func (e *edge) refused(a answer, reason grpcx.Reason, path ...string) {
	e.t.Helper()
	p := e.checkProblem(a)
	if p.Reason != string(reason) || a.status != reason.Meaning().Status {
		e.t.Errorf("got %d %s (%s), want %d %s", a.status, p.Reason, a.body, reason.Meaning().Status, reason)
	}
	if len(path) > 0 && (len(p.Errors) == 0 || p.Errors[0].Path != path[0] || p.Errors[0].Detail == "") {
		e.t.Errorf("got errors %+v, want the first at %q", p.Errors, path[0])
	}
}

// created checks an answer to a create.
func (e *edge) created(a answer, replayed bool) {
	e.t.Helper()
	if a.status != http.StatusCreated {
		e.t.Fatalf("got %d %s, want 201", a.status, a.body)
	}
	want := ""
	if replayed {
		want = "true"
	}
	if got := a.header.Get("Idempotency-Replayed"); got != want {
		e.t.Errorf("Idempotency-Replayed: got %q, want %q", got, want)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		e.t.Errorf("Content-Type: got %q, want application/json", got)
	}
}

// public connects to the gateway's gRPC port.
func (e *edge) public() orderv1.OrderServiceClient {
	e.t.Helper()
	conn, err := grpc.NewClient(e.app.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.t.Fatalf("connecting: %v", err)
	}
	e.t.Cleanup(func() { _ = conn.Close() })
	return orderv1.NewOrderServiceClient(conn)
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
