package postgres

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// CancellationConstraint is the name of the constraint that a second cancellation under one key violates.
const CancellationConstraint = "order_cancellation_pkey"

// Cancellation is an accepted cancellation as it is remembered, for ever.
type Cancellation struct {
	// RequestID follows from client, operation and key.
	RequestID uuid.UUID
	OrderID   uuid.UUID
	// Request is the canonical request.
	Request []byte
}

const insertCancellation = `INSERT INTO order_cancellation (request_id, order_id, request) VALUES ($1, $2, $3)`

// QueueCancellation adds a cancellation to a batch that runs as one transaction. It fails with a violation of
// [CancellationConstraint] if the key was used before.
func QueueCancellation(b *pgx.Batch, c Cancellation) {
	b.Queue(insertCancellation, c.RequestID, c.OrderID, c.Request)
}

const selectCancellation = `SELECT request_id, order_id, request FROM order_cancellation WHERE request_id = $1`

// QueueGetCancellation adds the reading of a cancellation to a batch of reads; *into stays nil if there is none.
func QueueGetCancellation(b *pgx.Batch, id uuid.UUID, into **Cancellation) {
	b.Queue(selectCancellation, id).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Cancellation])
		if err != nil {
			return fmt.Errorf("reading cancellation %s: %w", id, err)
		}
		if len(found) == 1 {
			*into = &found[0]
		}
		return nil
	})
}
