package placeorder

import (
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	shippingv1 "github.com/throughline/throughline/proto/gen/throughline/shipping/v1"
)

// shipTo and items turn an order's words into those of the shipping service, which is told no prices.

func shipTo(a *orderv1.Address) *shippingv1.Address {
	return &shippingv1.Address{
		Name: a.GetName(), Line1: a.GetLine1(), Line2: a.GetLine2(), City: a.GetCity(), Region: a.GetRegion(),
		PostalCode: a.GetPostalCode(), Country: a.GetCountry(),
	}
}

func items(lines []*orderv1.Line) []*shippingv1.Item {
	all := make([]*shippingv1.Item, len(lines))
	for i, l := range lines {
		all[i] = &shippingv1.Item{Sku: l.GetSku(), Quantity: l.GetQuantity()}
	}
	return all
}
