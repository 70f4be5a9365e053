// Package postgres holds the order service's own table.
package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/services/order/internal/order"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations creates the table of this package.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "customer_order", FS: migrations, Dir: "migrations"}
}

// Constraint is the name of the constraint that a repeated insert violates.
const Constraint = "customer_order_pkey"

// ErrNotFound says that there is no such order, or none of this client.
var ErrNotFound = errors.New("no such order")

// Row is an order as it is stored.
type Row struct {
	OrderID        uuid.UUID
	No             int64 // given by the database
	ClientID       string
	IdempotencyKey string
	Status         order.Status
	Currency       string
	Total          int64
	// Request is the canonical request; Hash is its fingerprint in the form of Version.
	Request       []byte
	Hash          []byte
	Version       int16
	FailureReason string
	// NextAction is what the customer has to do, encoded; nil while nothing is.
	NextAction []byte
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

const insertOrders = `
INSERT INTO customer_order (order_id, client_id, idempotency_key, status, currency, total, request, request_hash, request_version,
                            created_at, updated_at)
SELECT order_id, client_id, idempotency_key, status, currency, total, request, request_hash, request_version, created_at, created_at
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::bytea[], $9::smallint[],
              $10::timestamptz[])
    AS r (order_id, client_id, idempotency_key, status, currency, total, request, request_hash, request_version, created_at)
 ORDER BY order_id`

// QueueInsert adds new orders to a batch that runs as one transaction. It fails with a violation of [Constraint] if one of them is
// there already. Rows are inserted in the order of their ids.
func QueueInsert(b *pgx.Batch, rows []Row) {
	n := len(rows)
	sorted := slices.Clone(rows)
	slices.SortFunc(sorted, func(a, b Row) int { return slices.Compare(a.OrderID[:], b.OrderID[:]) })
	ids, clients, keys, statuses := make([]uuid.UUID, n), make([]string, n), make([]string, n), make([]string, n)
	currencies, totals, requests, hashes := make([]string, n), make([]int64, n), make([][]byte, n), make([][]byte, n)
	versions, created := make([]int16, n), make([]time.Time, n)
	for i, r := range sorted {
		ids[i], clients[i], keys[i], statuses[i] = r.OrderID, r.ClientID, r.IdempotencyKey, string(r.Status)
		currencies[i], totals[i], requests[i], hashes[i] = r.Currency, r.Total, r.Request, r.Hash
		versions[i], created[i] = r.Version, r.CreatedAt
	}
	b.Queue(insertOrders, ids, clients, keys, statuses, currencies, totals, requests, hashes, versions, created)
}

// StatusChange is what a saga's change means for its order.
type StatusChange struct {
	OrderID       uuid.UUID
	Status        order.Status
	FailureReason string
	NextAction    []byte // nil clears it
}

// Rows are locked in the order of their ids. No condition on the old status is needed: the saga's compare-and-set, in the same
// transaction, decides who may write.
const updateStatuses = `
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[]) AS w (order_id, status, failure_reason, next_action)
), locked AS MATERIALIZED (
    SELECT o.order_id
      FROM customer_order o JOIN wanted w ON w.order_id = o.order_id
     ORDER BY o.order_id
       FOR UPDATE OF o
)
UPDATE customer_order o
   SET status = w.status, failure_reason = w.failure_reason, next_action = w.next_action, updated_at = now()
  FROM wanted w JOIN locked l ON l.order_id = w.order_id
 WHERE o.order_id = w.order_id`

// QueueStatus adds changes, sorted by order id, to a batch.
func QueueStatus(b *pgx.Batch, changes []StatusChange) {
	n := len(changes)
	if n == 0 {
		return
	}
	ids, statuses, reasons, actions := make([]uuid.UUID, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i, c := range changes {
		ids[i], statuses[i], reasons[i], actions[i] = c.OrderID, string(c.Status), c.FailureReason, c.NextAction
	}
	b.Queue(updateStatuses, ids, statuses, reasons, actions)
}

const orderColumns = `order_id, order_no, client_id, idempotency_key, status, currency, total, request, request_hash, request_version,
       failure_reason, next_action, created_at, updated_at`

const selectOrders = `SELECT ` + orderColumns + ` FROM customer_order WHERE order_id = ANY ($1::uuid[])`

const selectPage = `
SELECT ` + orderColumns + `
  FROM customer_order
 WHERE client_id = $1 AND order_no < $2
 ORDER BY order_no DESC
 LIMIT $3`

const selectKnown = `SELECT order_id FROM customer_order WHERE order_id = ANY ($1::uuid[])`

func scanRow(row pgx.CollectableRow) (Row, error) {
	var r Row
	err := row.Scan(&r.OrderID, &r.No, &r.ClientID, &r.IdempotencyKey, &r.Status, &r.Currency, &r.Total, &r.Request, &r.Hash, &r.Version,
		&r.FailureReason, &r.NextAction, &r.CreatedAt, &r.UpdatedAt)
	return r, err
}

// QueueGet adds the reading of an order to a batch of reads; *into stays nil if there is none.
func QueueGet(b *pgx.Batch, id uuid.UUID, into **Row) {
	b.Queue(selectOrders, []uuid.UUID{id}).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, scanRow)
		if err != nil {
			return fmt.Errorf("reading order %s: %w", id, err)
		}
		if len(found) == 1 {
			*into = &found[0]
		}
		return nil
	})
}

// Get reads an order of a client. The error wraps [ErrNotFound] also if it is another client's.
func Get(ctx context.Context, pool *pgxpool.Pool, clientID string, id uuid.UUID) (Row, error) {
	rows, err := pool.Query(ctx, selectOrders, []uuid.UUID{id})
	if err != nil {
		return Row{}, fmt.Errorf("reading order %s: %w", id, err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanRow)
	switch {
	case errors.Is(err, pgx.ErrNoRows), err == nil && r.ClientID != clientID:
		return Row{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	case err != nil:
		return Row{}, fmt.Errorf("reading order %s: %w", id, err)
	}
	return r, nil
}

// List reads at most limit orders of a client with a number below before, the newest first.
func List(ctx context.Context, pool *pgxpool.Pool, clientID string, before int64, limit int) ([]Row, error) {
	rows, err := pool.Query(ctx, selectPage, clientID, before, limit)
	if err != nil {
		return nil, fmt.Errorf("listing orders: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanRow)
	if err != nil {
		return nil, fmt.Errorf("listing orders: %w", err)
	}
	return found, nil
}

// Known tells which of some orders exist.
func Known(ctx context.Context, pool *pgxpool.Pool, ids []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := pool.Query(ctx, selectKnown, ids)
	if err != nil {
		return nil, fmt.Errorf("looking for orders: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("looking for orders: %w", err)
	}
	known := make(map[uuid.UUID]bool, len(found))
	for _, id := range found {
		known[id] = true
	}
	return known, nil
}

const selectEnded = `
SELECT order_id FROM customer_order WHERE order_id = ANY ($1::uuid[]) AND status IN ('CONFIRMED', 'FAILED', 'CANCELLED')`

// Ended tells which of some orders have ended.
func Ended(ctx context.Context, pool *pgxpool.Pool, ids []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := pool.Query(ctx, selectEnded, ids)
	if err != nil {
		return nil, fmt.Errorf("looking for ended orders: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("looking for ended orders: %w", err)
	}
	return found, nil
}
