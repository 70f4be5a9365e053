package participanttest

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/participant"
)

// Schema is the table of [Projector].
const Schema = `
CREATE TABLE business_row (
    order_id        uuid   NOT NULL CONSTRAINT business_row_pkey PRIMARY KEY,
    event_seq       bigint NOT NULL,
    last_message_id uuid,
    revision        bigint NOT NULL
)`

// Projector is a participant.Projector that keeps no more than a business row needs, and tells each result as an event.
type Projector struct {
	// Name names the service in events.
	Name string
}

var _ participant.Projector = Projector{}

// QueueLoad implements participant.Projector.
func (Projector) QueueLoad(b *pgx.Batch, orders []uuid.UUID, into map[uuid.UUID]*participant.Row) {
	b.Queue(`SELECT order_id, event_seq, coalesce(last_message_id, '00000000-0000-0000-0000-000000000000'), revision
		FROM business_row WHERE order_id = ANY ($1::uuid[])`, orders).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var r participant.Row
			if err := rows.Scan(&r.ID, &r.EventSeq, &r.LastMessageID, &r.Revision); err != nil {
				return err
			}
			into[r.ID] = &r
		}
		return rows.Err()
	})
}

// Events implements participant.Projector.
func (p Projector) Events(r participant.Result) ([]messaging.Message, error) {
	fact := r.StepName
	if _, ok := r.Outcome.(participant.Refused); ok {
		fact += "_refused"
	}
	return []messaging.Message{{Subject: "evt." + p.Name + "." + fact, Type: "test." + fact, Source: "/" + p.Name}}, nil
}

// QueueStore implements participant.Projector.
func (Projector) QueueStore(b *pgx.Batch, changes []participant.Change) error {
	for _, c := range changes {
		if c.Row.Revision == 0 {
			b.Queue(`INSERT INTO business_row VALUES ($1, $2, nullif($3, '00000000-0000-0000-0000-000000000000'::uuid), 1)`,
				c.Row.ID, c.Row.EventSeq, c.Row.LastMessageID)
			continue
		}
		b.Queue(`WITH moved AS (
				UPDATE business_row SET event_seq = $2, last_message_id = nullif($3, '00000000-0000-0000-0000-000000000000'::uuid), revision = revision + 1
				 WHERE order_id = $1 AND revision = $4 RETURNING 1)
			SELECT throughline_require((SELECT count(*) FROM moved), 1, 'business_row')`,
			c.Row.ID, c.Row.EventSeq, c.Row.LastMessageID, c.Row.Revision)
	}
	return nil
}
