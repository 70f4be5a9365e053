// Package postgres keeps the business rows of the payment service.
package postgres

import (
	"embed"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/services/payment/internal/payment"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations makes the table payment.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "payment", FS: migrations, Dir: "migrations"}
}

const selectPayments = `SELECT order_id, event_seq, last_message_id, revision FROM payment WHERE order_id = ANY ($1::uuid[])`

// QueueLoad adds the reading of rows to a batch. Orders without a row are left out of into.
func QueueLoad(b *pgx.Batch, orders []uuid.UUID, into map[uuid.UUID]*participant.Row) {
	b.Queue(selectPayments, orders).Query(func(rows pgx.Rows) error {
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
	Update payment.Update
}

// insertPayments writes new rows, sorted by order. One that is there already undoes the whole transaction.
const insertPayments = `
INSERT INTO payment (order_id, status, payment_intent_id, currency, amount, amount_captured, amount_refunded, decline_reason, event_seq,
                     last_message_id, revision)
SELECT order_id, CASE status WHEN '' THEN 'pending' ELSE status END, payment_intent_id, currency, coalesce(amount, 0),
       coalesce(amount_captured, 0), coalesce(amount_refunded, 0), decline_reason, event_seq, last_message_id, 1
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[],
              $10::uuid[])
    AS c (order_id, status, payment_intent_id, currency, amount, amount_captured, amount_refunded, decline_reason, event_seq,
          last_message_id)
 ORDER BY order_id`

// updatePayments changes rows that still have the revision they were read with, locked in the order of their ids. A row that has
// moved undoes the whole transaction. Empty and NULL leave what is there.
const updatePayments = `
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
                         $9::bigint[], $10::uuid[], $11::bigint[])
        AS w (order_id, status, payment_intent_id, currency, amount, amount_captured, amount_refunded, decline_reason, event_seq,
              last_message_id, revision)
), locked AS MATERIALIZED (
    SELECT p.order_id
      FROM payment p JOIN wanted w ON w.order_id = p.order_id AND w.revision = p.revision
     ORDER BY p.order_id
       FOR UPDATE OF p
), moved AS (
    UPDATE payment p
       SET status = coalesce(nullif(w.status, ''), p.status),
           payment_intent_id = coalesce(nullif(w.payment_intent_id, ''), p.payment_intent_id),
           currency = coalesce(nullif(w.currency, ''), p.currency),
           amount = coalesce(w.amount, p.amount),
           amount_captured = coalesce(w.amount_captured, p.amount_captured),
           amount_refunded = coalesce(w.amount_refunded, p.amount_refunded),
           decline_reason = coalesce(nullif(w.decline_reason, ''), p.decline_reason),
           event_seq = w.event_seq, last_message_id = w.last_message_id, revision = p.revision + 1, updated_at = now()
      FROM wanted w JOIN locked l ON l.order_id = w.order_id
     WHERE p.order_id = w.order_id AND p.revision = w.revision
    RETURNING p.order_id
)
SELECT throughline_require((SELECT count(*) FROM moved), $12, 'payment')`

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
	if n := len(fresh.orders); n > 0 {
		b.Queue(insertPayments, fresh.args()...)
	}
	if n := len(known.orders); n > 0 {
		b.Queue(updatePayments, append(known.args(), known.revisions, n)...)
	}
}

// columns are changes as arrays.
type columns struct {
	orders                               []uuid.UUID
	states, intents, currencies, reasons []string
	amounts, captured, refunded          []*int64
	sequences, revisions                 []int64
	lastMessages                         []*uuid.UUID
}

func (c *columns) add(ch *Change) {
	u := &ch.Update
	c.orders, c.states, c.intents = append(c.orders, ch.Row.ID), append(c.states, string(u.State)), append(c.intents, u.IntentID)
	c.currencies, c.reasons = append(c.currencies, u.Currency), append(c.reasons, u.Reason)
	c.amounts, c.captured, c.refunded = append(c.amounts, u.Amount), append(c.captured, u.Captured), append(c.refunded, u.Refunded)
	c.sequences, c.revisions = append(c.sequences, ch.Row.EventSeq), append(c.revisions, ch.Row.Revision)
	var last *uuid.UUID
	if ch.Row.LastMessageID != uuid.Nil {
		last = &ch.Row.LastMessageID
	}
	c.lastMessages = append(c.lastMessages, last)
}

func (c *columns) args() []any {
	return []any{c.orders, c.states, c.intents, c.currencies, c.amounts, c.captured, c.refunded, c.reasons, c.sequences, c.lastMessages}
}
