package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Any reads an order, whoever's it is. The error wraps [ErrNotFound].
func Any(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID) (Row, error) {
	rows, err := pool.Query(ctx, selectOrders, []uuid.UUID{id})
	if err != nil {
		return Row{}, fmt.Errorf("reading order %s: %w", id, err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanRow)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Row{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	case err != nil:
		return Row{}, fmt.Errorf("reading order %s: %w", id, err)
	}
	return r, nil
}

// selectClientsWithOrders goes from one client to the next by the index on clients, however many orders each has.
const selectClientsWithOrders = `
WITH RECURSIVE c (client_id) AS (
    (SELECT client_id FROM customer_order ORDER BY client_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.client_id FROM customer_order o WHERE o.client_id > c.client_id ORDER BY o.client_id LIMIT 1)
      FROM c
     WHERE c.client_id IS NOT NULL
)
SELECT client_id FROM c WHERE client_id IS NOT NULL`

// ClientsWithOrders gives all clients that have ever placed an order.
func ClientsWithOrders(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, err := pool.Query(ctx, selectClientsWithOrders)
	if err != nil {
		return nil, fmt.Errorf("listing clients with orders: %w", err)
	}
	clients, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("listing clients with orders: %w", err)
	}
	return clients, nil
}

// Found is an order that an id led to.
type Found struct {
	OrderID  uuid.UUID
	ClientID string
}

const selectFound = `
SELECT order_id, client_id FROM customer_order WHERE order_id = ANY ($1::uuid[])
UNION
SELECT c.order_id, o.client_id
  FROM order_cancellation c JOIN customer_order o ON o.order_id = c.order_id
 WHERE c.request_id = ANY ($2::uuid[])`

// FindAny gives those of some orders that exist, and those that were cancelled by one of some requests.
func FindAny(ctx context.Context, pool *pgxpool.Pool, orders, cancellations []uuid.UUID) ([]Found, error) {
	rows, err := pool.Query(ctx, selectFound, orders, cancellations)
	if err != nil {
		return nil, fmt.Errorf("looking for orders: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Found])
	if err != nil {
		return nil, fmt.Errorf("looking for orders: %w", err)
	}
	return found, nil
}

// AcceptedCancellation is a cancellation with the time of its transaction.
type AcceptedCancellation struct {
	Cancellation
	CreatedAt time.Time
}

const selectCancellations = `
SELECT request_id, order_id, request, created_at FROM order_cancellation WHERE order_id = $1 ORDER BY created_at, request_id`

// ListCancellations reads the cancellations of an order that were accepted, in their sequence.
func ListCancellations(ctx context.Context, pool *pgxpool.Pool, order uuid.UUID) ([]AcceptedCancellation, error) {
	rows, err := pool.Query(ctx, selectCancellations, order)
	if err != nil {
		return nil, fmt.Errorf("listing cancellations of order %s: %w", order, err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c AcceptedCancellation, err error) {
		err = row.Scan(&c.RequestID, &c.OrderID, &c.Request, &c.CreatedAt)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("listing cancellations of order %s: %w", order, err)
	}
	return found, nil
}
