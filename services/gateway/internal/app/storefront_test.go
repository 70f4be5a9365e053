package app_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/proto/storefront"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// The published client and the edge mean the same.
func TestStorefrontClient(t *testing.T) {
	t.Parallel()
	e := start(t)
	c, err := storefront.New(e.base, storefrontKey)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	order := storefront.NewOrder{
		Currency: "EUR", Lines: []storefront.Line{{SKU: "BOOK-1", Quantity: 2, UnitPrice: 1250}},
		ShipTo: storefront.Address{Name: "A. <B>", Line1: "1 High St", City: "Łódź", PostalCode: "10115", Country: "PL"},
		Note:   "ring \"twice\"\u2028", PaymentMethod: "pm_card_visa", Metadata: map[string]string{"a b": "c"},
	}
	// A key with everything that has a meaning to a parser, while the order service is away at first.
	const key = ` a, "b"; \c=`
	var mu sync.Mutex
	left := 5 // more than the edge repeats by itself
	e.answerWith(func(context.Context, string) error {
		mu.Lock()
		defer mu.Unlock()
		if left--; left >= 0 {
			return status.Error(codes.Unavailable, "away")
		}
		return nil
	})
	first, err := c.PlaceOrder(t.Context(), key, order)
	if err != nil {
		t.Fatalf("PlaceOrder: %v", err)
	}
	if o := first.Order; first.Replayed || o.IdempotencyKey != key || o.Total != 2500 || o.ShipTo != order.ShipTo || o.Note != order.Note {
		t.Errorf("PlaceOrder: got %+v, want the order under its key", first)
	}
	again, err := c.PlaceOrder(t.Context(), key, order)
	if err != nil || !again.Replayed || again.Order.ID != first.Order.ID {
		t.Errorf("PlaceOrder again: got %+v, %v, want a replay", again, err)
	}
	other := order
	other.Note = ""
	_, err = c.PlaceOrder(t.Context(), key, other)
	var refused *storefront.Error
	if !errors.As(err, &refused) || refused.Reason != storefront.ReasonKeyMismatch || len(refused.Fields) == 0 {
		t.Errorf("PlaceOrder of another order: got %v, want KEY_MISMATCH with fields", err)
	}
	if got, err := c.GetOrder(t.Context(), first.Order.ID); err != nil || got.ID != first.Order.ID || got.Status != storefront.Pending {
		t.Errorf("GetOrder: got %+v, %v", got, err)
	}
	if _, err := c.GetOrder(t.Context(), "../orders"); !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound {
		t.Errorf("GetOrder of a path: got %v, want 404", err)
	}
	if p, err := c.ListOrders(t.Context(), 10, ""); err != nil || p.NextToken != "next" {
		t.Errorf("ListOrders: got %+v, %v", p, err)
	}
	if got, err := c.CancelOrder(t.Context(), storefront.NewKey(), first.Order.ID, "ordered twice"); err != nil || got.Order.Status != storefront.Compensating {
		t.Errorf("CancelOrder: got %+v, %v", got, err)
	}
	if got, err := c.GetOrderWithin(t.Context(), first.Order.ID, 1500*time.Millisecond); err != nil || got.ID != first.Order.ID {
		t.Errorf("GetOrderWithin: got %+v, %v", got, err)
	}
	if got := e.last(t).req.(*orderv1.GetOrderRequest).GetWaitSeconds(); got != 2 {
		t.Errorf("GetOrderWithin: got a wait of %d s, want 2", got)
	}
	if got, err := c.LookUpKey(t.Context(), key); err != nil || got.Key != key || got.State != storefront.KeyUnknown {
		t.Errorf("LookUpKey: got %+v, %v", got, err)
	}
	e.answerWith(func(ctx context.Context, _ string) error {
		return grpc.SetHeader(ctx, metadata.Pairs(grpcx.MetadataKeyExpired, "true"))
	})
	if got, err := c.PlaceOrder(t.Context(), key, order); err != nil || !got.KeyExpired || !got.Replayed {
		t.Errorf("PlaceOrder under an expired key: got %+v, %v, want it marked", got, err)
	}
	e.answerWith(nil)
	// The reasons by which the client decides are those of the edge.
	for theirs, ours := range map[string]grpcx.Reason{
		storefront.ReasonKeyMismatch: grpcx.KeyMismatch, storefront.ReasonKeyInProgress: grpcx.KeyInProgress,
		storefront.ReasonInvalid: grpcx.RequestInvalid, storefront.ReasonOrderNotFound: grpcx.OrderNotFound,
		storefront.ReasonCancelTooLate: grpcx.CancelTooLate,
	} {
		if theirs != string(ours) {
			t.Errorf("reason: the client has %q, the edge %q", theirs, ours)
		}
	}
}
