package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/saga"
)

// ActionConstraint is the name of the constraint that a decision made twice violates.
const ActionConstraint = "attention_action_pkey"

// Attention is an order that needs a person.
type Attention struct {
	OrderID uuid.UUID
	// Reason is a stable word; Detail says it in words.
	Reason, Detail string
	Since          time.Time
}

// An order that needs a person for another reason than before has needed one since the first.
const upsertAttention = `
INSERT INTO attention (order_id, reason, detail, since)
SELECT order_id, reason, detail, since
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[]) AS n (order_id, reason, detail, since)
 ORDER BY order_id
    ON CONFLICT ON CONSTRAINT attention_pkey DO UPDATE SET reason = excluded.reason, detail = excluded.detail`

const deleteAttention = `DELETE FROM attention WHERE order_id = ANY ($1::uuid[])`

// QueueAttention adds to a batch which orders need a person from now on, and which do no longer; both are sorted by order id. Who may
// say so is decided by the saga's compare-and-set in the same transaction.
func QueueAttention(b *pgx.Batch, needs []Attention, settled []uuid.UUID) {
	if n := len(needs); n > 0 {
		ids, reasons, details, since := make([]uuid.UUID, n), make([]string, n), make([]string, n), make([]time.Time, n)
		for i, a := range needs {
			ids[i], reasons[i], details[i], since[i] = a.OrderID, a.Reason, a.Detail, a.Since
		}
		b.Queue(upsertAttention, ids, reasons, details, since)
	}
	if len(settled) > 0 {
		b.Queue(deleteAttention, settled)
	}
}

// Case is an order together with why it needs a person; Attention.Reason is empty if it needs none.
type Case struct {
	Attention
	ClientID, IdempotencyKey, Status, Currency, FailureReason string
	Total                                                     int64
}

const caseColumns = `o.order_id, coalesce(a.reason, ''), coalesce(a.detail, ''), coalesce(a.since, 'epoch'), o.client_id, o.idempotency_key, o.status,
       o.currency, o.failure_reason, o.total`

func scanCase(row pgx.CollectableRow) (Case, error) {
	var c Case
	err := row.Scan(&c.OrderID, &c.Reason, &c.Detail, &c.Since, &c.ClientID, &c.IdempotencyKey, &c.Status, &c.Currency, &c.FailureReason, &c.Total)
	return c, err
}

const selectCases = `
SELECT ` + caseColumns + `
  FROM attention a JOIN customer_order o ON o.order_id = a.order_id
 WHERE (a.since, a.order_id) > ($1, $2)
 ORDER BY a.since, a.order_id
 LIMIT $3`

// ListCases reads at most limit orders that need a person, behind one with that time and id; those that have waited longest come first.
func ListCases(ctx context.Context, pool *pgxpool.Pool, since time.Time, id uuid.UUID, limit int) ([]Case, error) {
	rows, err := pool.Query(ctx, selectCases, since, id, limit)
	if err != nil {
		return nil, fmt.Errorf("listing orders that need attention: %w", err)
	}
	cases, err := pgx.CollectRows(rows, scanCase)
	if err != nil {
		return nil, fmt.Errorf("listing orders that need attention: %w", err)
	}
	return cases, nil
}

const selectCase = `SELECT ` + caseColumns + ` FROM customer_order o LEFT JOIN attention a ON a.order_id = o.order_id WHERE o.order_id = $1`

// GetCase reads one order, whether it needs a person or not. The error wraps [ErrNotFound].
func GetCase(ctx context.Context, pool *pgxpool.Pool, id uuid.UUID) (Case, error) {
	rows, err := pool.Query(ctx, selectCase, id)
	if err != nil {
		return Case{}, fmt.Errorf("reading order %s: %w", id, err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, scanCase)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Case{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	case err != nil:
		return Case{}, fmt.Errorf("reading order %s: %w", id, err)
	}
	return c, nil
}

// Action is a decision of a person. Before and After are JSON.
type Action struct {
	RequestKey string
	OrderID    uuid.UUID
	// AskedStep is the step as the caller named it; Step is the command that it stands for.
	AskedStep, Step           string
	Resolution, Actor, Reason string
	Before, After             string
	CreatedAt                 time.Time
}

const insertAction = `
INSERT INTO attention_action (request_key, order_id, asked_step, step, resolution, actor, reason, before, after)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::jsonb, $9::jsonb)
RETURNING created_at`

// QueueAction adds a decision to a batch; the transaction fails with a violation of [ActionConstraint] if it was made before. CreatedAt
// is filled in once the batch has run.
func QueueAction(b *pgx.Batch, a *Action) {
	b.Queue(insertAction, a.RequestKey, a.OrderID, a.AskedStep, a.Step, a.Resolution, a.Actor, a.Reason, a.Before, a.After).
		QueryRow(func(row pgx.Row) error { return row.Scan(&a.CreatedAt) })
}

const actionColumns = `request_key, order_id, asked_step, step, resolution, actor, reason, before::text, after::text, created_at`

func scanAction(row pgx.CollectableRow) (Action, error) {
	var a Action
	err := row.Scan(&a.RequestKey, &a.OrderID, &a.AskedStep, &a.Step, &a.Resolution, &a.Actor, &a.Reason, &a.Before, &a.After, &a.CreatedAt)
	return a, err
}

// FindAction reads the decision with a key; false if there is none.
func FindAction(ctx context.Context, pool *pgxpool.Pool, key string) (Action, bool, error) {
	rows, err := pool.Query(ctx, `SELECT `+actionColumns+` FROM attention_action WHERE request_key = $1`, key)
	if err != nil {
		return Action{}, false, fmt.Errorf("reading a decision: %w", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, scanAction)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Action{}, false, nil
	case err != nil:
		return Action{}, false, fmt.Errorf("reading a decision: %w", err)
	}
	return a, true, nil
}

// ListActions reads the decisions about an order, in their sequence.
func ListActions(ctx context.Context, pool *pgxpool.Pool, order uuid.UUID) ([]Action, error) {
	rows, err := pool.Query(ctx, `SELECT `+actionColumns+` FROM attention_action WHERE order_id = $1 ORDER BY action_no`, order)
	if err != nil {
		return nil, fmt.Errorf("listing decisions about order %s: %w", order, err)
	}
	actions, err := pgx.CollectRows(rows, scanAction)
	if err != nil {
		return nil, fmt.Errorf("listing decisions about order %s: %w", order, err)
	}
	return actions, nil
}

const selectMarkedDone = `SELECT DISTINCT order_id FROM attention_action WHERE order_id = ANY ($1::uuid[]) AND resolution = 'mark_done'`

// MarkedDone tells for which of some orders a person has said that a step was done by other means.
func MarkedDone(ctx context.Context, db saga.Querier, orders []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := db.Query(ctx, selectMarkedDone, orders)
	if err != nil {
		return nil, fmt.Errorf("reading what persons have marked done: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("reading what persons have marked done: %w", err)
	}
	found := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		found[id] = true
	}
	return found, nil
}
