package grpcapi

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// maxLookUp is how many orders one call may ask for.
const maxLookUp = 200

// Book is OrderBookService, for operators.
type Book struct {
	orderv1.UnimplementedOrderBookServiceServer
	pool *pgxpool.Pool
}

// NewBook makes an OrderBookService.
func NewBook(pool *pgxpool.Pool) *Book { return &Book{pool: pool} }

// LookUpOrders answers with what is known of some orders.
func (b *Book) LookUpOrders(ctx context.Context, req *orderv1.LookUpOrdersRequest) (*orderv1.LookUpOrdersResponse, error) {
	if n := len(req.GetOrderIds()); n < 1 || n > maxLookUp {
		return nil, invalid([]order.Violation{{Path: "order_ids", Detail: fmt.Sprintf("must be 1 to %d", maxLookUp)}})
	}
	ids := make([]uuid.UUID, 0, len(req.GetOrderIds()))
	for i, s := range req.GetOrderIds() {
		id, err := uuid.Parse(s)
		if err != nil {
			return nil, invalid([]order.Violation{{Path: fmt.Sprintf("order_ids[%d]", i), Detail: "is no order id"}})
		}
		ids = append(ids, id)
	}
	rows, err := postgres.LookUp(ctx, b.pool, ids)
	if err != nil {
		return nil, explain(ctx, err)
	}
	resp := new(orderv1.LookUpOrdersResponse)
	for _, id := range ids {
		r, ok := rows[id]
		if !ok {
			continue
		}
		resp.Orders = append(resp.Orders, &orderv1.BookEntry{
			OrderId: id.String(), ClientId: r.ClientID, IdempotencyKey: r.IdempotencyKey, Status: statuses[r.Status], Currency: r.Currency,
			Total: r.Total, FailureReason: r.FailureReason, CreatedAt: timestamppb.New(r.CreatedAt), UpdatedAt: timestamppb.New(r.UpdatedAt),
		})
	}
	return resp, nil
}

// CountUnfinished answers with how many orders have not ended.
func (b *Book) CountUnfinished(ctx context.Context, _ *orderv1.CountUnfinishedRequest) (*orderv1.CountUnfinishedResponse, error) {
	sagas, err := saga.CountUnfinished(ctx, b.pool)
	if err != nil {
		return nil, explain(ctx, err)
	}
	waiting, err := postgres.CountAttention(ctx, b.pool)
	if err != nil {
		return nil, explain(ctx, err)
	}
	resp := &orderv1.CountUnfinishedResponse{Pending: sagas.Running, Compensating: sagas.Compensating, NeedsAttention: waiting}
	if !sagas.Oldest.IsZero() {
		resp.OldestAt = timestamppb.New(sagas.Oldest)
	}
	return resp, nil
}
