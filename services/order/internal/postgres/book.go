package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/saga"
)

// The request is left out, which is most of a row.
const selectBook = `
SELECT order_id, client_id, idempotency_key, status, currency, total, failure_reason, created_at, updated_at
  FROM customer_order
 WHERE order_id = ANY ($1::uuid[])`

// LookUp reads some orders, of whichever clients, without their requests. Those that do not exist are left out.
func LookUp(ctx context.Context, db saga.Querier, ids []uuid.UUID) (map[uuid.UUID]Row, error) {
	rows, err := db.Query(ctx, selectBook, ids)
	if err != nil {
		return nil, fmt.Errorf("looking up orders: %w", err)
	}
	found := make(map[uuid.UUID]Row, len(ids))
	var r Row
	_, err = pgx.ForEachRow(rows, []any{
		&r.OrderID, &r.ClientID, &r.IdempotencyKey, &r.Status, &r.Currency, &r.Total, &r.FailureReason, &r.CreatedAt, &r.UpdatedAt,
	}, func() error {
		found[r.OrderID] = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking up orders: %w", err)
	}
	return found, nil
}

// CountAttention tells how many orders need a person.
func CountAttention(ctx context.Context, pool *pgxpool.Pool) (n int64, err error) {
	if err := pool.QueryRow(ctx, `SELECT count(*) FROM attention`).Scan(&n); err != nil {
		return 0, fmt.Errorf("counting orders that need attention: %w", err)
	}
	return n, nil
}

const selectIDs = `SELECT order_id FROM customer_order WHERE order_id > $1 ORDER BY order_id LIMIT $2`

// ListIDs gives the ids of at most limit orders above one, in their order.
func ListIDs(ctx context.Context, db saga.Querier, after uuid.UUID, limit int) ([]uuid.UUID, error) {
	rows, err := db.Query(ctx, selectIDs, after, limit)
	if err != nil {
		return nil, fmt.Errorf("listing the ids of orders: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("listing the ids of orders: %w", err)
	}
	return ids, nil
}
