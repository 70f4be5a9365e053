package saga

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/telemetry"
)

const selectTrace = `SELECT traceparent, tracestate FROM saga_instance WHERE saga_id = $1`

// QueueTrace adds to a batch of reads the question in which trace a saga began. Once the batch has run the answer is in into, which stays as it is
// if there is no such saga.
func QueueTrace(b *pgx.Batch, id uuid.UUID, into *telemetry.Carrier) {
	b.Queue(selectTrace, id).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&into.TraceParent, &into.TraceState); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}
