package grpcx_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/throughline/throughline/services/internal/grpcx"
)

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
