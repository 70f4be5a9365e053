package order_test

import (
	"testing"

	"github.com/google/uuid"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

func (d *desk) book(credential string) orderv1.OrderBookServiceClient {
	d.t.Helper()
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: d.addr, Credential: credential})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	return orderv1.NewOrderBookServiceClient(conn)
}

func TestOrderBook(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	book := d.book(operatorCredential)
	stuck := d.stuck("k")
	other := d.client.must(d.client.create("marketplace", "k", request())).order.GetOrderId()
	d.client.await("marketplace", other, orderv1.OrderStatus_ORDER_STATUS_NEEDS_ATTENTION)

	got, err := book.LookUpOrders(t.Context(), &orderv1.LookUpOrdersRequest{OrderIds: []string{other, uuid.NewString(), stuck}})
	if err != nil || len(got.GetOrders()) != 2 {
		t.Fatalf("orders: got %v, %v, want two", got, err)
	}
	// In the sequence of the question, whoever's they are.
	for i, want := range []struct{ id, client string }{{other, "marketplace"}, {stuck, "storefront"}} {
		o := got.GetOrders()[i]
		if o.GetOrderId() != want.id || o.GetClientId() != want.client || o.GetIdempotencyKey() != "k" || o.GetTotal() != 2500 || o.GetCurrency() != "EUR" ||
			o.GetStatus() != orderv1.OrderStatus_ORDER_STATUS_NEEDS_ATTENTION || o.GetFailureReason() != "address_refused" ||
			o.GetUpdatedAt().AsTime().Before(o.GetCreatedAt().AsTime()) {
			t.Errorf("order %d: got %v, want %v that needs attention", i, o, want)
		}
	}
	for name, ids := range map[string][]string{"none": nil, "too many": make([]string, 201), "no id": {"x"}} {
		if _, err := book.LookUpOrders(t.Context(), &orderv1.LookUpOrdersRequest{OrderIds: ids}); grpcx.ReasonOf(err) != grpcx.RequestInvalid {
			t.Errorf("%s: got %v, want %s", name, err, grpcx.RequestInvalid)
		}
	}
	if _, err := d.book(credential).LookUpOrders(t.Context(), &orderv1.LookUpOrdersRequest{OrderIds: []string{other}}); grpcx.ReasonOf(err) != grpcx.Unauthenticated {
		t.Errorf("with the service credential: got %v, want %s", err, grpcx.Unauthenticated)
	}
	// Those who wait for a person are counted as that, and not among those who go on by themselves.
	counted, err := book.CountUnfinished(t.Context(), &orderv1.CountUnfinishedRequest{})
	if err != nil || counted.GetNeedsAttention() != 2 || counted.GetPending() != 0 || counted.GetCompensating() != 0 || counted.GetOldestAt() != nil {
		t.Errorf("unfinished: got %v, %v, want two that need attention", counted, err)
	}
}
