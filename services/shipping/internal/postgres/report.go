package postgres

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// setCarrierStatus is a set and no step of anything: repeated, or behind a later one, it changes nothing. It leaves the revision as it
// is, since nothing is computed from it.
const setCarrierStatus = `
UPDATE shipment
   SET carrier_status = $3, carrier_status_at = $4
 WHERE order_id = $1 AND shipment_id = $2 AND (carrier_status_at IS NULL OR carrier_status_at < $4)`

// QueueReport adds what the carrier has said of a shipment to a batch. It has no effect unless it is the order's shipment, and the news
// is later than what is there.
func QueueReport(b *pgx.Batch, order uuid.UUID, shipment, status string, at time.Time) {
	b.Queue(setCarrierStatus, order, shipment, status, at)
}
