// Package postgres keeps the business rows of the shipping service.
package postgres

import (
	"embed"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations makes the table shipment.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "shipment", FS: migrations, Dir: "migrations"}
}

const selectShipments = `SELECT order_id, event_seq, last_message_id, revision FROM shipment WHERE order_id = ANY ($1::uuid[])`

// QueueLoad adds the reading of rows to a batch. Orders without a row are left out of into.
func QueueLoad(b *pgx.Batch, orders []uuid.UUID, into map[uuid.UUID]*participant.Row) {
	b.Queue(selectShipments, orders).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			var (
				row  participant.Row
				last *uuid.UUID
			)
			if err := rows.Scan(&row.ID, &row.EventSeq, &last, &row.Revision); err != nil {
				return err
			}
			if last != nil {
				row.LastMessageID = *last
			}
			into[row.ID] = &row
		}
		return rows.Err()
	})
}

// Change is what becomes of one row: Row.Revision is what it was read with, 0 for a new one.
type Change struct {
	Row    participant.Row
	Update shipping.Update
}

// insertShipments writes new rows, sorted by order. One that is there already undoes the whole transaction.
const insertShipments = `
INSERT INTO shipment (order_id, status, shipment_id, refusal_reason, event_seq, last_message_id, revision)
SELECT order_id, CASE status WHEN '' THEN 'pending' ELSE status END, shipment_id, refusal_reason, event_seq, last_message_id, 1
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::uuid[])
    AS c (order_id, status, shipment_id, refusal_reason, event_seq, last_message_id)
 ORDER BY order_id`

// updateShipments changes rows that still have the revision they were read with, locked in the order of their ids. A row that has
// moved undoes the whole transaction. Empty leaves what is there.
const updateShipments = `
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::uuid[], $7::bigint[])
        AS w (order_id, status, shipment_id, refusal_reason, event_seq, last_message_id, revision)
), locked AS MATERIALIZED (
    SELECT s.order_id
      FROM shipment s JOIN wanted w ON w.order_id = s.order_id AND w.revision = s.revision
     ORDER BY s.order_id
       FOR UPDATE OF s
), moved AS (
    UPDATE shipment s
       SET status = coalesce(nullif(w.status, ''), s.status),
           shipment_id = coalesce(nullif(w.shipment_id, ''), s.shipment_id),
           refusal_reason = coalesce(nullif(w.refusal_reason, ''), s.refusal_reason),
           event_seq = w.event_seq, last_message_id = w.last_message_id, revision = s.revision + 1, updated_at = now()
      FROM wanted w JOIN locked l ON l.order_id = w.order_id
     WHERE s.order_id = w.order_id AND s.revision = w.revision
    RETURNING s.order_id
)
SELECT throughline_require((SELECT count(*) FROM moved), $8, 'shipment')`

// QueueStore adds the writing of changes, sorted by order id, to a batch.
func QueueStore(b *pgx.Batch, changes []Change) {
	var fresh, known columns
	for i := range changes {
		if changes[i].Row.Revision == 0 {
			fresh.add(&changes[i])
		} else {
			known.add(&changes[i])
		}
	}
	if len(fresh.orders) > 0 {
		b.Queue(insertShipments, fresh.args()...)
	}
	if n := len(known.orders); n > 0 {
		b.Queue(updateShipments, append(known.args(), known.revisions, n)...)
	}
}

// columns are changes as arrays.
type columns struct {
	orders                     []uuid.UUID
	states, shipments, reasons []string
	sequences, revisions       []int64
	lastMessages               []*uuid.UUID
}

func (c *columns) add(ch *Change) {
	u := &ch.Update
	c.orders, c.states = append(c.orders, ch.Row.ID), append(c.states, string(u.State))
	c.shipments, c.reasons = append(c.shipments, u.ShipmentID), append(c.reasons, u.Reason)
	c.sequences, c.revisions = append(c.sequences, ch.Row.EventSeq), append(c.revisions, ch.Row.Revision)
	var last *uuid.UUID
	if ch.Row.LastMessageID != uuid.Nil {
		last = &ch.Row.LastMessageID
	}
	c.lastMessages = append(c.lastMessages, last)
}

func (c *columns) args() []any {
	return []any{c.orders, c.states, c.shipments, c.reasons, c.sequences, c.lastMessages}
}
