package placeorder_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	shippingv1 "github.com/throughline/throughline/proto/gen/throughline/shipping/v1"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/placeorder"
)

func data() *orderv1.PlaceOrder {
	return &orderv1.PlaceOrder{
		OrderId: sagatest.ID.String(), ClientId: "storefront", IdempotencyKey: "key-1", Total: 2500,
		Request: &orderv1.CreateOrderRequest{
			Currency: "EUR", PaymentMethod: "pm_card_visa", Note: "for us only",
			Lines:  []*orderv1.Line{{Sku: "BOOK-1", Quantity: 2, UnitPrice: 1250}},
			ShipTo: &orderv1.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"},
		},
	}
}

func start(t *testing.T) *sagatest.Story[*orderv1.PlaceOrder] {
	return sagatest.Start(t, placeorder.Definition, data())
}

func TestConfirmed(t *testing.T) {
	t.Parallel()
	start(t).
		Sent("authorize_payment").Done().
		Sent("create_shipment").Done().
		Sent("capture_payment").Done().
		Sent("dispatch_shipment").Done().
		SentNothingElse().
		Ended(saga.Completed)
}

func TestCardDeclined(t *testing.T) {
	t.Parallel()
	start(t).
		Sent("authorize_payment").Refuse("card_declined").
		SentNothingElse().
		Ended(saga.Compensated)
}

func TestAddressRefused(t *testing.T) {
	t.Parallel()
	start(t).
		Sent("authorize_payment").Done().
		Sent("create_shipment").Refuse("address_refused").
		Sent("void_payment").Done().
		SentNothingElse().
		Ended(saga.Compensated)
}

func TestCaptureRefused(t *testing.T) {
	t.Parallel()
	start(t).
		Sent("authorize_payment").Done().
		Sent("create_shipment").Done().
		Sent("capture_payment").Refuse("card_declined").
		Sent("cancel_shipment").Done().
		Sent("void_payment").Done().
		SentNothingElse().
		Ended(saga.Compensated)
}

func TestDispatchRefused(t *testing.T) {
	t.Parallel()
	start(t).
		Sent("authorize_payment").Done().
		Sent("create_shipment").Done().
		Sent("capture_payment").Done().
		Sent("dispatch_shipment").Refuse("lost").
		Sent("cancel_shipment").Done().
		Sent("void_payment").Done().
		SentNothingElse().
		Ended(saga.Compensated)
}

// Participants are told what they need, and not more: the carrier learns no prices.
func TestCommands(t *testing.T) {
	t.Parallel()
	id := sagatest.ID.String()
	s := start(t)
	for _, want := range []saga.Command{
		saga.To("payment", "authorize_payment", &paymentv1.AuthorizePayment{
			OrderId: id, ClientId: "storefront", Currency: "EUR", Amount: 2500, PaymentMethod: "pm_card_visa",
		}),
		saga.To("shipping", "create_shipment", &shippingv1.CreateShipment{
			OrderId: id, ClientId: "storefront", Items: []*shippingv1.Item{{Sku: "BOOK-1", Quantity: 2}},
			ShipTo: &shippingv1.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"},
		}),
		saga.To("payment", "capture_payment", &paymentv1.CapturePayment{OrderId: id}),
		saga.To("shipping", "dispatch_shipment", &shippingv1.DispatchShipment{OrderId: id}),
	} {
		got := s.Sent(want.Step).Command()
		if got.Participant != want.Participant || got.Step != want.Step || !proto.Equal(got.Payload, want.Payload) {
			t.Errorf("got %v, want %v", got, want)
		}
		s.Done()
	}
}

// What the saga is called is in the subjects that everybody uses.
func TestNames(t *testing.T) {
	t.Parallel()
	if got, want := "rpl.order."+placeorder.Definition.Name(), topology.PlaceOrderReplies; got != want {
		t.Errorf("got reply subject %s, want %s", got, want)
	}
	if got, want := placeorder.Definition.Participants(), []string{topology.Payment, topology.Shipping}; !slices.Equal(got, want) {
		t.Errorf("got participants %v, want %v", got, want)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	running := saga.Instance{Status: saga.Running}
	compensating := saga.Instance{Status: saga.Compensating, Reason: "card_declined"}
	failed := saga.Instance{Status: saga.Compensated, Reason: "card_declined"}
	cancelling := saga.Instance{Status: saga.Compensating, Reason: saga.ReasonCancelled}
	cancelled := saga.Instance{Status: saga.Compensated, Reason: saga.ReasonCancelled}
	late := saga.Instance{Status: saga.Running, Attention: "capture_payment has no outcome"}
	refused := saga.Instance{
		Status: saga.Compensating, Reason: "card_declined", Attention: "void_payment was refused",
		Steps: []saga.StepState{{Name: "authorize_payment", Phase: saga.UndoRefused}},
	}
	captured := saga.Instance{Status: saga.Compensated, Reason: "timed_out", Attention: "capture_payment succeeded"}
	for _, tc := range []struct {
		name          string
		before, after saga.Instance
		want          []string
		status        order.Status
		reason        string // of needs_attention
	}{
		{"created", saga.Instance{}, running, []string{topology.OrderCreated}, order.Pending, ""},
		{"a step done", running, running, nil, order.Pending, ""},
		{"confirmed", running, saga.Instance{Status: saga.Completed}, []string{topology.OrderConfirmed}, order.Confirmed, ""},
		{"turned back", running, compensating, []string{topology.OrderCompensating}, order.Compensating, ""},
		{"nothing to undo", running, failed, []string{topology.OrderCompensating, topology.OrderFailed}, order.Failed, ""},
		{"an undo done", compensating, compensating, nil, order.Compensating, ""},
		{"failed", compensating, failed, []string{topology.OrderFailed}, order.Failed, ""},
		{"cancelling", running, cancelling, []string{topology.OrderCompensating}, order.Compensating, ""},
		{"cancelled", cancelling, cancelled, []string{topology.OrderCancelled}, order.Cancelled, ""},
		{"no outcome", running, late, []string{topology.OrderNeedsAttention}, order.NeedsAttention, placeorder.AttentionNoOutcome},
		{"still no outcome", late, late, nil, order.NeedsAttention, ""},
		{"an outcome after all", late, running, nil, order.Pending, ""},
		{"confirmed after all", late, saga.Instance{Status: saga.Completed}, []string{topology.OrderConfirmed}, order.Confirmed, ""},
		{"undo refused", compensating, refused, []string{topology.OrderNeedsAttention}, order.NeedsAttention, placeorder.AttentionUndoRefused},
		{"a late success is undone", failed, compensating, []string{topology.OrderCompensating}, order.Compensating, ""},
		{"money taken after the end", failed, captured, []string{topology.OrderNeedsAttention}, order.NeedsAttention, placeorder.AttentionLateSuccess},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			events, err := placeorder.Projector{}.Events(saga.Change[*orderv1.PlaceOrder]{Before: tc.before, After: tc.after, Data: data()})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range events {
				got = append(got, m.Subject)
				if m.Source != topology.OrderSource || m.Type == "" || len(m.Payload) == 0 {
					t.Errorf("got event %+v, want a source, a type and a payload", m)
				}
				if tc.reason != "" {
					e := new(orderv1.OrderNeedsAttention)
					if err := proto.Unmarshal(m.Payload, e); err != nil || e.GetReason() != tc.reason {
						t.Errorf("got reason %q, %v, want %q", e.GetReason(), err, tc.reason)
					}
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got events %v, want %v", got, tc.want)
			}
			if status := placeorder.StatusOf(&tc.after); status != tc.status {
				t.Errorf("got status %s, want %s", status, tc.status)
			}
		})
	}
}
