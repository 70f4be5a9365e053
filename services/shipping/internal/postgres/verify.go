package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

// Standing is a shipment as it is on record.
type Standing struct {
	OrderID    uuid.UUID
	State      shipping.State
	ShipmentID string
}

const selectStandings = `SELECT order_id, status, shipment_id FROM shipment WHERE order_id = ANY ($1::uuid[])`

// Standings reads the shipments of some orders. Those that have none are left out.
func Standings(ctx context.Context, db participant.Querier, orders []uuid.UUID) (map[uuid.UUID]Standing, error) {
	rows, err := db.Query(ctx, selectStandings, orders)
	if err != nil {
		return nil, fmt.Errorf("reading shipments: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Standing])
	if err != nil {
		return nil, fmt.Errorf("reading shipments: %w", err)
	}
	found := make(map[uuid.UUID]Standing, len(list))
	for _, s := range list {
		found[s.OrderID] = s
	}
	return found, nil
}
