package grpcx_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/throughline/throughline/pkg/localnet"
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

// A server of this process is reached through it, and others over the network; health checks and several instances go the same way.
func TestLocal(t *testing.T) {
	t.Parallel()
	network := localnet.New()
	ways := make(chan string, 16)
	listen := func(in *localnet.Network) string {
		s, err := grpcx.NewServer(grpcx.ServerConfig{Credentials: []string{credential}})
		if err != nil {
			t.Fatalf("NewServer: %v", err)
		}
		orderv1.RegisterOrderServiceServer(s, service{get: func(ctx context.Context, r *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
			p, _ := peer.FromContext(ctx)
			ways <- p.Addr.Network()
			return found(ctx, r)
		}})
		var lc net.ListenConfig
		lis, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("listening: %v", err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = s.Serve(in.Listen(lis))
		}()
		t.Cleanup(func() { s.Stop(); <-served })
		return lis.Addr().String()
	}
	here, elsewhere := listen(network), listen(nil)
	for _, tc := range []struct {
		addr  string
		local *localnet.Network
		want  []string
	}{
		{here, network, []string{"pipe"}},
		{here, nil, []string{"tcp"}},
		{elsewhere, network, []string{"tcp"}},
		{here + "," + elsewhere, network, []string{"pipe", "tcp"}},
	} {
		conn := dial(t, grpcx.ClientConfig{Addr: tc.addr, Local: tc.local})
		seen := make(map[string]bool)
		for n := 0; len(seen) < len(tc.want) && n < 10_000; n++ {
			if err := get(t.Context(), conn, grpc.WaitForReady(true)); err != nil {
				t.Fatalf("calling %s: %v", tc.addr, err)
			}
			seen[<-ways] = true
		}
		for _, way := range tc.want {
			if !seen[way] {
				t.Errorf("calling %s: got calls by %v, want %v", tc.addr, seen, tc.want)
			}
		}
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
