package grpcx_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

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
