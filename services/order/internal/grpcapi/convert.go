package grpcapi

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/jsonpb"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// statuses is the form of the statuses on the wire.
var statuses = map[order.Status]orderv1.OrderStatus{
	order.Pending:        orderv1.OrderStatus_ORDER_STATUS_PENDING,
	order.Confirmed:      orderv1.OrderStatus_ORDER_STATUS_CONFIRMED,
	order.Compensating:   orderv1.OrderStatus_ORDER_STATUS_COMPENSATING,
	order.Failed:         orderv1.OrderStatus_ORDER_STATUS_FAILED,
	order.Cancelled:      orderv1.OrderStatus_ORDER_STATUS_CANCELLED,
	order.NeedsAttention: orderv1.OrderStatus_ORDER_STATUS_NEEDS_ATTENTION,
}

func requestOf(m *orderv1.CreateOrderRequest) *order.Request {
	r := &order.Request{
		Currency: m.GetCurrency(), PaymentMethod: m.GetPaymentMethod(), Note: m.GetNote(), Metadata: m.GetMetadata(),
		Lines: make([]order.Line, len(m.GetLines())),
	}
	for i, l := range m.GetLines() {
		r.Lines[i] = order.Line{SKU: l.GetSku(), Quantity: l.GetQuantity(), UnitPrice: l.GetUnitPrice()}
	}
	if a := m.GetShipTo(); a != nil {
		r.ShipTo = &order.Address{
			Name: a.GetName(), Line1: a.GetLine1(), Line2: a.GetLine2(), City: a.GetCity(), Region: a.GetRegion(),
			PostalCode: a.GetPostalCode(), Country: a.GetCountry(),
		}
	}
	return r
}

// canonical is the form of a request that is stored, hashed and compared.
func canonical(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", m.ProtoReflect().Descriptor().FullName(), err)
	}
	return b, nil
}

// orderOf is an order as its client sees it.
func orderOf(row *postgres.Row) (*orderv1.Order, error) {
	req := new(orderv1.CreateOrderRequest)
	if err := proto.Unmarshal(row.Request, req); err != nil {
		return nil, fmt.Errorf("decoding the request of order %s: %w", row.OrderID, err)
	}
	var next *orderv1.NextAction
	if row.NextAction != nil {
		next = new(orderv1.NextAction)
		if err := proto.Unmarshal(row.NextAction, next); err != nil {
			return nil, fmt.Errorf("decoding the next action of order %s: %w", row.OrderID, err)
		}
	}
	return &orderv1.Order{
		OrderId: row.OrderID.String(), Status: statuses[row.Status], Currency: row.Currency, Total: row.Total,
		Lines: req.GetLines(), ShipTo: req.GetShipTo(), PaymentMethod: req.GetPaymentMethod(), Note: req.GetNote(),
		Metadata: req.GetMetadata(), FailureReason: row.FailureReason, IdempotencyKey: row.IdempotencyKey,
		CreatedAt: timestamppb.New(row.CreatedAt), UpdatedAt: timestamppb.New(row.UpdatedAt),
		NextAction: next,
	}, nil
}

// render gives the body that the gateway serves for an answer that consists of an order.
func render(o *orderv1.Order) ([]byte, error) {
	b, err := jsonpb.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("rendering order %s: %w", o.GetOrderId(), err)
	}
	return b, nil
}
