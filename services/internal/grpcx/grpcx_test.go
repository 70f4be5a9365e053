package grpcx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const credential = "between-us"

// service answers GetOrder with what a test gives it.
type service struct {
	orderv1.UnimplementedOrderServiceServer
	get func(context.Context, *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error)
}

func (s service) GetOrder(ctx context.Context, r *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
	return s.get(ctx, r)
}

type getFunc = func(context.Context, *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error)

// serve runs a server on loopback and answers its address.
func serve(t *testing.T, c grpcx.ServerConfig, get getFunc) (*grpcx.Server, string) {
	t.Helper()
	if c.Credentials == nil {
		c.Credentials = []string{credential}
	}
	s, err := grpcx.NewServer(c)
	if err != nil {
		t.Fatalf("NewServer: %v", err)
	}
	orderv1.RegisterOrderServiceServer(s, service{get: get})
	var lc net.ListenConfig
	lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(lis)
	}()
	t.Cleanup(func() { s.Stop(); <-served })
	return s, lis.Addr().String()
}

func dial(t *testing.T, c grpcx.ClientConfig) *grpc.ClientConn {
	t.Helper()
	if c.Credential == "" {
		c.Credential = credential
	}
	conn, err := grpcx.Dial(c)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func get(ctx context.Context, conn *grpc.ClientConn, opts ...grpc.CallOption) error {
	_, err := orderv1.NewOrderServiceClient(conn).GetOrder(ctx, &orderv1.GetOrderRequest{}, opts...)
	return err
}

func found(context.Context, *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
	return &orderv1.GetOrderResponse{}, nil
}

func TestErrorsCrossTheWire(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, grpcx.ServerConfig{}, func(context.Context, *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
		return nil, fmt.Errorf("looking: %w", grpcx.Error(grpcx.KeyInProgress, "still running",
			grpcx.WithMetadata("orderId", "o-1"), grpcx.WithRetryAfter(1500*time.Millisecond),
			grpcx.WithViolations(grpcx.Violation{Path: "lines[0].sku", Detail: "is empty"}, grpcx.Violation{Path: "note", Detail: "is long"})))
	})
	err := get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr}))
	if got := status.Code(err); got != codes.Aborted {
		t.Errorf("code: got %v, want %v", got, codes.Aborted)
	}
	if got := grpcx.ReasonOf(err); got != grpcx.KeyInProgress {
		t.Errorf("reason: got %q, want %q", got, grpcx.KeyInProgress)
	}
	if got := grpcx.Metadata(err)["orderId"]; got != "o-1" {
		t.Errorf("metadata orderId: got %q, want o-1", got)
	}
	if got, ok := grpcx.RetryDelay(err); !ok || got != 1500*time.Millisecond {
		t.Errorf("retry delay: got %v, %v, want 1.5s", got, ok)
	}
	want := []grpcx.Violation{{Path: "lines[0].sku", Detail: "is empty"}, {Path: "note", Detail: "is long"}}
	if got := grpcx.Violations(err); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("violations: got %v, want %v", got, want)
	}
}

func TestUnplannedErrorsAreHidden(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		fail   func(context.Context) error
		code   codes.Code
		reason grpcx.Reason
		logged bool
	}{
		{"plain error", func(context.Context) error { return errors.New("dsn=hunter2") }, codes.Internal, grpcx.Internal, true},
		{"foreign status", func(context.Context) error { return status.Error(codes.DataLoss, "hunter2") }, codes.Internal, grpcx.Internal, true},
		{"panic", func(context.Context) error { panic("hunter2") }, codes.Internal, grpcx.Internal, true},
		{"own deadline", func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("hunter2: %w", ctx.Err()) },
			codes.DeadlineExceeded, grpcx.Deadline, false},
		{"a neighbour away", func(context.Context) error { return status.Error(codes.Unavailable, "hunter2") },
			codes.Unavailable, grpcx.Unavailable, false},
		{"not served", func(context.Context) error { return status.Error(codes.Unimplemented, "hunter2") },
			codes.Unimplemented, grpcx.NotImplemented, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log syncBuffer
			c := grpcx.ServerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxDuration: 100 * time.Millisecond}
			_, addr := serve(t, c, func(ctx context.Context, _ *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
				return nil, tt.fail(ctx)
			})
			err := get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr}))
			if status.Code(err) != tt.code || grpcx.ReasonOf(err) != tt.reason {
				t.Errorf("got %v %q, want %v %q", status.Code(err), grpcx.ReasonOf(err), tt.code, tt.reason)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the caller was told %q", err)
			}
			if got := strings.Contains(log.String(), "hunter2"); got != tt.logged {
				t.Errorf("logged: got %v, want %v: %s", got, tt.logged, log.String())
			}
		})
	}
}

func TestCredential(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, grpcx.ServerConfig{Credentials: []string{"new", "old", ""}}, found)
	// Without the clients' own health check, which would already find that nothing is to be had here.
	bare, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	t.Cleanup(func() { _ = bare.Close() })
	for header, want := range map[string]grpcx.Reason{
		"Bearer new": "", "Bearer old": "", "": grpcx.Unauthenticated, "Bearer ": grpcx.Unauthenticated,
		"Bearer ne": grpcx.Unauthenticated, "Bearer newer": grpcx.Unauthenticated, "new": grpcx.Unauthenticated,
	} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", header)
		if got := grpcx.ReasonOf(get(ctx, bare)); got != want {
			t.Errorf("authorization %q: got %q, want %q", header, got, want)
		}
		stream, err := healthpb.NewHealthClient(bare).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if got := grpcx.ReasonOf(err); got != want {
			t.Errorf("authorization %q on a stream: got %v, want %q", header, err, want)
		}
	}
	if err := get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr, Credential: "old"})); err != nil {
		t.Errorf("GetOrder over Dial: %v", err)
	}
	if err := get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr, Credential: "wrong"})); status.Code(err) != codes.Unavailable {
		t.Errorf("GetOrder over Dial with the wrong credential: got %v, want %v", err, codes.Unavailable)
	}
	if _, err := grpcx.NewServer(grpcx.ServerConfig{Credentials: []string{""}}); !errors.Is(err, grpcx.ErrNoCredential) {
		t.Errorf("NewServer without a credential: got %v, want ErrNoCredential", err)
	}
	if _, err := grpcx.Dial(grpcx.ClientConfig{Addr: addr}); !errors.Is(err, grpcx.ErrNoCredential) {
		t.Errorf("Dial without a credential: got %v, want ErrNoCredential", err)
	}
	if _, err := grpcx.Dial(grpcx.ClientConfig{Addr: " ,", Credential: "x"}); !errors.Is(err, grpcx.ErrNoAddress) {
		t.Errorf("Dial without an address: got %v, want ErrNoAddress", err)
	}
}

// Services that are for operators take their credential and no other; it opens nothing else.
func TestOperatorCredential(t *testing.T) {
	t.Parallel()
	const reserved = "throughline.order.v1.OrderService"
	_, addr := serve(t, grpcx.ServerConfig{
		Credentials: []string{"service"}, Operators: grpcx.Operators{Services: []string{reserved}, Credentials: []string{"operator", ""}},
	}, found)
	for credential, want := range map[string]grpcx.Reason{"operator": "", "service": grpcx.Unauthenticated} {
		if got := grpcx.ReasonOf(get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr, Credential: credential}))); got != want {
			t.Errorf("the operators' service with the %s credential: got %q, want %q", credential, got, want)
		}
	}
	_, addr = serve(t, grpcx.ServerConfig{
		Credentials: []string{"service"}, Operators: grpcx.Operators{Services: []string{"other.Service"}, Credentials: []string{"operator"}},
	}, found)
	for credential, want := range map[string]grpcx.Reason{"service": "", "operator": grpcx.Unauthenticated} {
		if got := grpcx.ReasonOf(get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr, Credential: credential}))); got != want {
			t.Errorf("another service with the %s credential: got %q, want %q", credential, got, want)
		}
	}
	_, addr = serve(t, grpcx.ServerConfig{
		Credentials: []string{"service"}, Operators: grpcx.Operators{Shared: []string{reserved}, Credentials: []string{"operator"}},
	}, found)
	for credential, allowed := range map[string]bool{"service": true, "operator": true, "other": false} {
		if err := get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr, Credential: credential})); (err == nil) != allowed {
			t.Errorf("a shared service with the %s credential: got %v, want allowed %v", credential, err, allowed)
		}
	}
	_, addr = serve(t, grpcx.ServerConfig{Credentials: []string{"service"}, Operators: grpcx.Operators{Services: []string{reserved}}}, found)
	if got := grpcx.ReasonOf(get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr, Credential: "service"}))); got != grpcx.Unauthenticated {
		t.Errorf("the operators' service where there is no operator credential: got %q, want %q", got, grpcx.Unauthenticated)
	}
	_, err := grpcx.NewServer(grpcx.ServerConfig{Credentials: []string{"a", "b"}, Operators: grpcx.Operators{Credentials: []string{"b"}}})
	if !errors.Is(err, grpcx.ErrSameCredential) {
		t.Errorf("NewServer with one credential for both: got %v, want ErrSameCredential", err)
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		values []string
		want   string
		ok     bool
	}{
		{[]string{"Bearer abc"}, "abc", true},
		{[]string{" bearer   abc "}, "abc", true},
		{nil, "", false},
		{[]string{""}, "", false},
		{[]string{"Bearer"}, "", false},
		{[]string{"Bearer "}, "", false},
		{[]string{"Basic abc"}, "", false},
		{[]string{"abc"}, "", false},
		{[]string{"Bearer a b"}, "", false},
		{[]string{"Bearer a,Bearer b"}, "", false},
		{[]string{"Bearer a", "Bearer a"}, "", false},
	}
	for _, tt := range tests {
		if got, ok := grpcx.Bearer(tt.values); got != tt.want || ok != tt.ok {
			t.Errorf("Bearer(%q): got %q, %v, want %q, %v", tt.values, got, ok, tt.want, tt.ok)
		}
	}
}

func TestOutgoingIsMadeFromScratch(t *testing.T) {
	t.Parallel()
	seen := make(chan metadata.MD, 1)
	_, addr := serve(t, grpcx.ServerConfig{}, func(ctx context.Context, _ *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		seen <- md.Copy()
		return &orderv1.GetOrderResponse{}, nil
	})
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("client-id", "evil", "x-internal", "1"))
	ctx = metadata.AppendToOutgoingContext(ctx, "client-id", "evil", "authorization", "Bearer stolen")
	ctx = grpcx.Outgoing(ctx, grpcx.Entries{ClientID: "storefront", IdempotencyKey: ` a "quoted", key `})
	if err := get(ctx, dial(t, grpcx.ClientConfig{Addr: addr})); err != nil {
		t.Fatalf("GetOrder: %v", err)
	}
	md := <-seen
	for name, want := range map[string]string{
		"client-id": "storefront", "idempotency-key": ` a "quoted", key `, "authorization": "Bearer " + credential, "x-internal": "",
	} {
		if got := strings.Join(md.Get(name), "|"); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestIncomingEntries(t *testing.T) {
	t.Parallel()
	incoming := func(kv ...string) context.Context {
		return metadata.NewIncomingContext(context.Background(), metadata.Pairs(kv...))
	}
	if got, err := grpcx.ClientID(incoming("client-id", "a")); got != "a" || err != nil {
		t.Errorf("ClientID: got %q, %v, want a", got, err)
	}
	for _, ctx := range []context.Context{context.Background(), incoming("client-id", ""), incoming("client-id", "a", "client-id", "b")} {
		if got, err := grpcx.ClientID(ctx); grpcx.ReasonOf(err) != grpcx.Internal {
			t.Errorf("ClientID: got %q, %v, want INTERNAL", got, err)
		}
	}
	if got, err := grpcx.IdempotencyKey(incoming("idempotency-key", "k")); got != "k" || err != nil {
		t.Errorf("IdempotencyKey: got %q, %v, want k", got, err)
	}
	for want, ctx := range map[grpcx.Reason]context.Context{
		grpcx.KeyMissing:  incoming(),
		grpcx.KeyEmpty:    incoming("idempotency-key", ""),
		grpcx.KeyRepeated: incoming("idempotency-key", "k", "idempotency-key", "k"),
	} {
		if got, err := grpcx.IdempotencyKey(ctx); grpcx.ReasonOf(err) != want {
			t.Errorf("IdempotencyKey: got %q, %v, want %s", got, err, want)
		}
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name               string
		ask, client, serve time.Duration
		above, most        time.Duration
	}{
		{"none asked for: the client's", 0, 10 * time.Second, time.Minute, 5 * time.Second, 10 * time.Second},
		{"more than the server gives", 40 * time.Second, time.Minute, 3 * time.Second, time.Second, 3 * time.Second},
		{"a margin of 50 ms", 10 * time.Second, time.Minute, time.Minute, 5 * time.Second, 10*time.Second - 50*time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			left := make(chan time.Duration, 1)
			_, addr := serve(t, grpcx.ServerConfig{MaxDuration: tt.serve},
				func(ctx context.Context, _ *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
					deadline, _ := ctx.Deadline()
					left <- time.Until(deadline)
					return &orderv1.GetOrderResponse{}, nil
				})
			ctx := t.Context()
			if tt.ask > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.ask)
				defer cancel()
			}
			if err := get(ctx, dial(t, grpcx.ClientConfig{Addr: addr, MaxDuration: tt.client})); err != nil {
				t.Fatalf("GetOrder: %v", err)
			}
			if got := <-left; got <= tt.above || got > tt.most {
				t.Errorf("time left at the server: got %v, want more than %v and at most %v", got, tt.above, tt.most)
			}
		})
	}
}

func TestLargeAnswerHeaderArrives(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte(`{"é":"`+"\x00\xff"+`"}`), 40<<10) // 400 KiB, more than any stored answer
	_, addr := serve(t, grpcx.ServerConfig{}, func(ctx context.Context, _ *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
		return &orderv1.GetOrderResponse{}, grpc.SetHeader(ctx, metadata.Pairs(grpcx.MetadataHTTPBody, string(body)))
	})
	var header metadata.MD
	if err := get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr}), grpc.Header(&header)); err != nil {
		t.Fatalf("GetOrder: %v", err)
	}
	if got := header.Get(grpcx.MetadataHTTPBody); len(got) != 1 || got[0] != string(body) {
		t.Errorf("body: got %d values, want the one that was sent", len(got))
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := map[string]int{}
	instance := func(name string) getFunc {
		return func(context.Context, *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			calls[name]++
			return &orderv1.GetOrderResponse{}, nil
		}
	}
	first, a := serve(t, grpcx.ServerConfig{}, instance("a"))
	_, b := serve(t, grpcx.ServerConfig{}, instance("b"))
	conn := dial(t, grpcx.ClientConfig{Addr: a + ", " + b})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	count := func(name string) int { mu.Lock(); defer mu.Unlock(); return calls[name] }
	for count("a") == 0 || count("b") == 0 {
		if err := get(ctx, conn, grpc.WaitForReady(true)); err != nil {
			t.Fatalf("GetOrder with two instances: %v", err)
		}
	}
	// A draining instance says so; from then on no call goes there, and none fails.
	first.Drain(make(chan struct{}))
	before := count("a")
	for range 50 {
		if err := get(ctx, conn); err != nil {
			t.Fatalf("GetOrder with one instance drained: %v", err)
		}
	}
	if got := count("a"); got != before {
		t.Errorf("calls to the drained instance: got %d more, want none", got-before)
	}
}

func TestDrainCutsOffWhenForced(t *testing.T) {
	t.Parallel()
	entered := make(chan struct{})
	s, addr := serve(t, grpcx.ServerConfig{}, func(ctx context.Context, _ *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failed := make(chan error, 1)
	conn := dial(t, grpcx.ClientConfig{Addr: addr})
	go func() { failed <- get(t.Context(), conn) }()
	<-entered
	force := make(chan struct{})
	close(force)
	s.Drain(force)
	if got := status.Code(<-failed); got != codes.Unavailable {
		t.Errorf("the call in hand: got %v, want %v", got, codes.Unavailable)
	}
}

func TestReasonsAreDistinct(t *testing.T) {
	t.Parallel()
	titles := map[string]grpcx.Reason{}
	for _, r := range grpcx.Reasons() {
		m := r.Meaning()
		if other, taken := titles[m.Title]; taken {
			t.Errorf("%s and %s have the title %q", r, other, m.Title)
		}
		titles[m.Title] = r
		if m.Status < 400 || m.Code == codes.OK {
			t.Errorf("%s: got status %d and code %v, want an error", r, m.Status, m.Code)
		}
		if got := grpcx.ReasonOf(grpcx.Error(r, "x")); got != r {
			t.Errorf("ReasonOf(Error(%s)): got %q", r, got)
		}
		if (r == grpcx.Internal) != (m.Status == 500) {
			t.Errorf("%s: status %d, and only INTERNAL may have 500", r, m.Status)
		}
	}
	if got, want := grpcx.KeyNotPrintable.ProblemType(), "https://throughline.dev/problems/key-not-printable"; got != want {
		t.Errorf("ProblemType: got %q, want %q", got, want)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
