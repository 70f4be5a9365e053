package app_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/jsonpb"
)

func orderR0(t *testing.T) *orderv1.CreateOrderRequest {
	t.Helper()
	req := new(orderv1.CreateOrderRequest)
	if err := jsonpb.Unmarshal([]byte(r0), req); err != nil {
		t.Fatalf("reading the order: %v", err)
	}
	return req
}

// with answers a context with outgoing metadata, by pairs.
func with(ctx context.Context, pairs ...string) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(pairs...))
}

// HTTP and gRPC callers place and replay the same orders.
func TestGRPCCreateAndReplay(t *testing.T) {
	t.Parallel()
	e := start(t)
	c := e.public()
	ctx := with(t.Context(), "authorization", "Bearer "+storefrontKey, "idempotency-key", `"k-1"`,
		"client-id", "marketplace", "http-body-bin", "x", "x-internal", "1")
	var header, trailer metadata.MD
	first, err := c.CreateOrder(ctx, orderR0(t), grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		t.Fatalf("CreateOrder: %v", err)
	}
	if got := header.Get(grpcx.MetadataReplayed); len(got) != 0 {
		t.Errorf("first answer: got idempotency-replayed %v, want none", got)
	}
	seen := e.last(t)
	for name, want := range map[string]string{"client-id": "storefront", "idempotency-key": "k-1", "http-body-bin": "", "x-internal": "",
		"authorization": "Bearer " + credential} {
		if got := strings.Join(seen.md.Get(name), "|"); got != want {
			t.Errorf("%s at the order service: got %q, want %q", name, got, want)
		}
	}
	again, err := c.CreateOrder(ctx, orderR0(t), grpc.Header(&header))
	if err != nil || !proto.Equal(first, again) {
		t.Errorf("replay: got %v, %v, want %v", again, err, first)
	}
	if got := header.Get(grpcx.MetadataReplayed); len(got) != 1 || got[0] != "true" {
		t.Errorf("replay: got idempotency-replayed %v, want true", got)
	}
	if got := header.Get(grpcx.MetadataHTTPBody); len(got) != 0 {
		t.Errorf("replay: got the HTTP body in a gRPC answer")
	}
	e.created(e.create("k-1", r0), true)

	other := orderR0(t)
	other.Lines[0].Quantity++
	_, err = c.CreateOrder(ctx, other)
	if got := grpcx.Violations(err); grpcx.ReasonOf(err) != grpcx.KeyMismatch || len(got) != 1 || got[0].Path != "lines[0].quantity" {
		t.Errorf("another order: got %v, want KEY_MISMATCH at lines[0].quantity", err)
	}
	got, err := c.GetOrder(with(t.Context(), "authorization", "Bearer "+storefrontKey), &orderv1.GetOrderRequest{OrderId: first.GetOrder().GetOrderId()})
	if err != nil || !proto.Equal(got.GetOrder(), first.GetOrder()) {
		t.Errorf("GetOrder: got %v, %v, want %v", got, err, first)
	}
	if _, err := c.CancelOrder(ctx, &orderv1.CancelOrderRequest{OrderId: first.GetOrder().GetOrderId()}); err != nil {
		t.Errorf("CancelOrder: %v", err)
	}
}

func TestGRPCRefusals(t *testing.T) {
	t.Parallel()
	e := start(t)
	c := e.public()
	const good = "Bearer " + storefrontKey
	unknown := orderR0(t)
	unknown.Lines[0].ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	large := orderR0(t)
	large.Note = strings.Repeat("x", 256<<10)
	tests := []struct {
		name  string
		pairs []string
		req   *orderv1.CreateOrderRequest
		want  grpcx.Reason
	}{
		{"no credential", []string{"idempotency-key", "k"}, nil, grpcx.Unauthenticated},
		{"two credentials", []string{"authorization", good, "authorization", good, "idempotency-key", "k"}, nil, grpcx.Unauthenticated},
		{"wrong credential", []string{"authorization", "Bearer " + credential, "idempotency-key", "k"}, nil, grpcx.Unauthenticated},
		{"no key", []string{"authorization", good}, nil, grpcx.KeyMissing},
		{"two keys", []string{"authorization", good, "idempotency-key", "k", "idempotency-key", "k"}, nil, grpcx.KeyRepeated},
		{"empty key", []string{"authorization", good, "idempotency-key", `""`}, nil, grpcx.KeyEmpty},
		{"malformed key", []string{"authorization", good, "idempotency-key", `"k`}, nil, grpcx.KeyMalformed},
		{"long key", []string{"authorization", good, "idempotency-key", strings.Repeat("k", 256)}, nil, grpcx.KeyTooLong},
		{"unknown field", []string{"authorization", good, "idempotency-key", "k"}, unknown, grpcx.RequestInvalid},
		{"too large", []string{"authorization", good, "idempotency-key", "k"}, large, grpcx.PayloadTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := tt.req
			if req == nil {
				req = orderR0(t)
			}
			_, err := c.CreateOrder(with(t.Context(), tt.pairs...), req)
			if got := grpcx.ReasonOf(err); got != tt.want || status.Code(err) != tt.want.Meaning().Code {
				t.Errorf("got %v, want %v %s", err, tt.want.Meaning().Code, tt.want)
			}
			if vs := grpcx.Violations(err); tt.want == grpcx.RequestInvalid && (len(vs) != 1 || vs[0].Path != "lines[0]") {
				t.Errorf("violations: got %v, want one at lines[0]", vs)
			}
		})
	}
	if n := len(e.seen()); n != 0 {
		t.Errorf("got %d calls to the order service, want none", n)
	}
	_, err := c.GetOrder(with(t.Context(), "authorization", good), &orderv1.GetOrderRequest{OrderId: "7"})
	if got := grpcx.ReasonOf(err); got != grpcx.OrderNotFound {
		t.Errorf("GetOrder of an id that nobody wrote: got %v, want ORDER_NOT_FOUND", err)
	}
}

func TestGRPCHealthNeedsNoCredential(t *testing.T) {
	t.Parallel()
	e := start(t)
	conn, err := grpc.NewClient(e.app.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("Check: got %v, %v, want SERVING", resp, err)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nope"}); status.Code(err) != codes.NotFound {
		t.Errorf("Check of a service that is not there: got %v, want NotFound", err)
	}
}
