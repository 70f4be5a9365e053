package postgres

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/payment/internal/payment"
)

// Standing is a payment as it is on record.
type Standing struct {
	OrderID            uuid.UUID
	State              payment.State
	IntentID, Currency string
	// Minor units of Currency.
	Amount, Captured, Refunded int64
}

const selectStandings = `
SELECT order_id, status, payment_intent_id, currency, amount, amount_captured, amount_refunded FROM payment WHERE order_id = ANY ($1::uuid[])`

// Standings reads the payments of some orders. Those that have none are left out.
func Standings(ctx context.Context, db participant.Querier, orders []uuid.UUID) (map[uuid.UUID]Standing, error) {
	rows, err := db.Query(ctx, selectStandings, orders)
	if err != nil {
		return nil, fmt.Errorf("reading payments: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Standing])
	if err != nil {
		return nil, fmt.Errorf("reading payments: %w", err)
	}
	found := make(map[uuid.UUID]Standing, len(list))
	for _, s := range list {
		found[s.OrderID] = s
	}
	return found, nil
}
