package order_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/messaging"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

func (c *client) key(who, key string) *orderv1.IdempotencyKey {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := c.api.GetIdempotencyKey(grpcx.Outgoing(ctx, grpcx.Entries{ClientID: who}),
		&orderv1.GetIdempotencyKeyRequest{Key: key}, grpc.WaitForReady(true))
	if err != nil {
		c.t.Fatalf("asking about a key: %v", err)
	}
	return resp.GetIdempotencyKey()
}

// What is told of a key: nothing before its order and to others, then the order, the times and the replays.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	unknown := func(who string) {
		t.Helper()
		got := c.key(who, "k")
		if got.GetState() != orderv1.KeyState_KEY_STATE_UNKNOWN || got.GetOrderId() != "" || got.GetFirstSeenAt() != nil ||
			got.GetExpiresAt() != nil || got.GetReplays() != 0 || got.GetKey() != "k" {
			t.Errorf("got %v for %s, want an unknown key", got, who)
		}
	}
	unknown("storefront")
	placed := c.must(c.create("storefront", "k", request()))
	unknown("marketplace")
	const replays = 3
	for range replays {
		c.must(c.create("storefront", "k", request()))
	}
	c.wantReason(c.create("storefront", "k", request(func(r *orderv1.CreateOrderRequest) { r.Note = "x" })), grpcx.KeyMismatch)
	got := c.key("storefront", "k")
	for deadline := time.Now().Add(patience); got.GetReplays() < replays && time.Now().Before(deadline); got = c.key("storefront", "k") {
	}
	if got.GetState() != orderv1.KeyState_KEY_STATE_SETTLED || got.GetOrderId() != placed.order.GetOrderId() || got.GetReplays() != replays {
		t.Errorf("got %v, want order %s and %d replays", got, placed.order.GetOrderId(), replays)
	}
	if seen := got.GetFirstSeenAt().AsTime(); !seen.Equal(placed.order.GetCreatedAt().AsTime()) {
		t.Errorf("got first seen at %s, want %s", seen, placed.order.GetCreatedAt().AsTime())
	}
	// The database's clock may differ from ours by what the transaction took.
	if lives := got.GetExpiresAt().AsTime().Sub(got.GetFirstSeenAt().AsTime()); lives < 23*time.Hour || lives > 25*time.Hour {
		t.Errorf("got a lifetime of %s, want 24h", lives)
	}
	if _, err := w.db.Exec(t.Context(), `DELETE FROM idempotency_record`); err != nil {
		t.Fatal(err)
	}
	got = c.key("storefront", "k")
	if got.GetState() != orderv1.KeyState_KEY_STATE_SETTLED || got.GetOrderId() != placed.order.GetOrderId() || got.GetExpiresAt() != (*timestamppb.Timestamp)(nil) {
		t.Errorf("got %v, want a settled key whose answer has expired", got)
	}
}

// Who waits for an order learns of its end when it comes, on any instance, and otherwise gets it as it is.
func TestGetWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	instances := []*client{w.start(w.url), w.start(w.url)}
	c := instances[0]
	get := func(c *client, id string, seconds int32) (*orderv1.Order, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		resp, err := c.api.GetOrder(grpcx.Outgoing(ctx, grpcx.Entries{ClientID: "storefront"}), &orderv1.GetOrderRequest{OrderId: id, WaitSeconds: seconds})
		return resp.GetOrder(), err
	}
	placed := c.must(c.create("storefront", "k", request()))
	id := placed.order.GetOrderId()
	if o, err := get(c, id, 1); err != nil || o.GetStatus() != orderv1.OrderStatus_ORDER_STATUS_PENDING {
		t.Errorf("got %v, %v after a wait that nothing ended, want a pending order", o, err)
	}
	if _, err := get(c, id, -1); grpcx.ReasonOf(err) != grpcx.RequestInvalid {
		t.Errorf("got %v for a negative wait, want %s", err, grpcx.RequestInvalid)
	}
	type got struct {
		order *orderv1.Order
		err   error
	}
	answers := make(chan got, len(instances))
	for _, in := range instances {
		go func() {
			o, err := get(in, id, 3600) // counts as the longest
			answers <- got{o, err}
		}()
	}
	w.participants(func(string) (string, string) { return messaging.OutcomeDone, "" })
	for range instances {
		if a := <-answers; a.err != nil || a.order.GetStatus() != confirmed {
			t.Errorf("got %v, %v, want a confirmed order", a.order, a.err)
		}
	}
	if o, err := get(c, id, 3600); err != nil || o.GetStatus() != confirmed {
		t.Errorf("got %v, %v for an order that has ended, want it at once", o, err)
	}
}
