package app_test

import (
	"context"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/throughline/throughline/pkg/keys"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// Keys of the order service's table let in whom they belong to, for what they are for; they are asked for once in a while.
func TestClientsOfTheTable(t *testing.T) {
	t.Parallel()
	e := start(t)
	all := "Bearer " + e.addKey("shop", orderv1.Scope_SCOPE_ORDERS_READ, orderv1.Scope_SCOPE_ORDERS_WRITE)
	second := "Bearer " + e.addKey("shop", orderv1.Scope_SCOPE_ORDERS_WRITE)
	reader := "Bearer " + e.addKey("shop", orderv1.Scope_SCOPE_ORDERS_READ)
	e.created(e.create("k-1", r0, "Authorization", all), false)
	e.created(e.create("k-1", r0, "Authorization", second), true) // another key of the same client
	if got := e.last(t).md.Get("client-id"); len(got) != 1 || got[0] != "shop" {
		t.Errorf("client-id: got %q, want shop", got)
	}
	path := "/v1/orders/" + keys.OrderID("shop", "k-1").String()
	for _, reading := range []string{path, "/v1/orders", "/v1/idempotency-keys/k-1"} {
		if a := e.do("GET", reading, "", "Authorization", reader); a.status != 200 {
			t.Errorf("GET %s with a key for reading: got %d %s", reading, a.status, a.body)
		}
		a := e.do("GET", reading, "", "Authorization", second)
		e.refused(a, grpcx.Forbidden)
		if got, want := a.header.Get("WWW-Authenticate"), `Bearer realm="throughline", error="insufficient_scope"`; got != want {
			t.Errorf("WWW-Authenticate: got %q, want %q", got, want)
		}
	}
	e.refused(e.create("k-2", r0, "Authorization", reader), grpcx.Forbidden)
	e.refused(e.do("POST", path+"/cancel", "{}", "Idempotency-Key", "c", "Authorization", reader), grpcx.Forbidden)
	if got := e.keyQuestions(); got != 3 {
		t.Errorf("got %d questions about keys, want one for each of 3", got)
	}

	unknown := "Bearer " + apikey.Mint().Text
	for range 5 {
		e.refused(e.create("k-1", r0, "Authorization", unknown), grpcx.Unauthenticated)
		e.refused(e.create("k-1", r0, "Authorization", all[:len(all)-1]+"x"), grpcx.Unauthenticated)
		e.refused(e.create("k-1", r0, "Authorization", "Bearer tl_dev_storefront"), grpcx.Unauthenticated) // none of the form: not asked for
	}
	if got := e.keyQuestions(); got != 5 {
		t.Errorf("got %d questions about keys, want one for each of 5", got)
	}

	_, err := e.public().CreateOrder(with(t.Context(), "authorization", reader, "idempotency-key", "k-2"), orderR0(t))
	if grpcx.ReasonOf(err) != grpcx.Forbidden || status.Code(err) != codes.PermissionDenied {
		t.Errorf("gRPC with a key for reading: got %v, want %s", err, grpcx.Forbidden)
	}
}

// While nobody can say whose a key is, it is neither right nor wrong.
func TestClientsCannotBeAsked(t *testing.T) {
	t.Parallel()
	e := start(t)
	key := "Bearer " + e.addKey("shop", orderv1.Scope_SCOPE_ORDERS_WRITE)
	e.answerWith(func(_ context.Context, method string) error {
		if method == "ResolveKey" {
			return status.Error(codes.Internal, "broken")
		}
		return nil
	})
	a := e.create("k-1", r0, "Authorization", key)
	e.refused(a, grpcx.Unavailable)
	if a.header.Get("Retry-After") == "" {
		t.Error("got no Retry-After, want one")
	}
	e.created(e.create("k-1", r0), false) // of the fixed list
	e.answerWith(nil)
	e.created(e.create("k-1", r0, "Authorization", key), false)
}

// A client that calls too often waits, and no other client does.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	e := start(t, func(c *config.Config) { c.ClientRate, c.ClientBurst = 0.01, 3 })
	for i := range 3 {
		e.created(e.create("k-"+strconv.Itoa(i), r0), false)
	}
	a := e.create("k-0", r0)
	e.refused(a, grpcx.RateLimited)
	// The next is due 100 s after the first of the three.
	if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 50 || after > 100 {
		t.Errorf("Retry-After: got %q, want up to 100", a.header.Get("Retry-After"))
	}
	_, err := e.public().GetOrder(with(t.Context(), "authorization", "Bearer "+storefrontKey), &orderv1.GetOrderRequest{})
	if _, told := grpcx.RetryDelay(err); grpcx.ReasonOf(err) != grpcx.RateLimited || !told {
		t.Errorf("gRPC: got %v, want %s with a delay", err, grpcx.RateLimited)
	}
	e.created(e.create("k-0", r0, "Authorization", "Bearer "+marketKey), false)
}
