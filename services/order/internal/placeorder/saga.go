package placeorder

import (
	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	shippingv1 "github.com/throughline/throughline/proto/gen/throughline/shipping/v1"
)

// Definition is the saga place-order.
var Definition = saga.MustDefine("place-order", 1,
	saga.Compensatable("authorize_payment", authorizePayment, voidPayment),
	saga.Compensatable("create_shipment", createShipment, cancelShipment),
	saga.Pivot("capture_payment", capturePayment),
	saga.Retriable("dispatch_shipment", dispatchShipment),
)

func authorizePayment(o *orderv1.PlaceOrder) saga.Command {
	return saga.To("payment", "authorize_payment", &paymentv1.AuthorizePayment{
		OrderId: o.GetOrderId(), ClientId: o.GetClientId(),
		Currency: o.GetRequest().GetCurrency(), Amount: o.GetTotal(), PaymentMethod: o.GetRequest().GetPaymentMethod(),
	})
}

// voidPayment undoes the capture as well: it makes net money zero.
func voidPayment(o *orderv1.PlaceOrder) saga.Command {
	return saga.To("payment", "void_payment", &paymentv1.VoidPayment{OrderId: o.GetOrderId()})
}

func createShipment(o *orderv1.PlaceOrder) saga.Command {
	return saga.To("shipping", "create_shipment", &shippingv1.CreateShipment{
		OrderId: o.GetOrderId(), ClientId: o.GetClientId(),
		ShipTo: shipTo(o.GetRequest().GetShipTo()), Items: items(o.GetRequest().GetLines()),
	})
}

func cancelShipment(o *orderv1.PlaceOrder) saga.Command {
	return saga.To("shipping", "cancel_shipment", &shippingv1.CancelShipment{OrderId: o.GetOrderId()})
}

func capturePayment(o *orderv1.PlaceOrder) saga.Command {
	return saga.To("payment", "capture_payment", &paymentv1.CapturePayment{OrderId: o.GetOrderId()})
}

func dispatchShipment(o *orderv1.PlaceOrder) saga.Command {
	return saga.To("shipping", "dispatch_shipment", &shippingv1.DispatchShipment{OrderId: o.GetOrderId()})
}

// Undos names the steps that undo others.
func Undos() []string {
	o := new(orderv1.PlaceOrder)
	return []string{voidPayment(o).Step, cancelShipment(o).Step}
}
