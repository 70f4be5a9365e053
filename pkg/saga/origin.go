package saga

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/telemetry"
)

// ReadTrace gives the trace that a saga was started in; the zero value if there is no such saga, or it was started in none.
func ReadTrace(ctx context.Context, db Querier, id uuid.UUID) (telemetry.Carrier, error) {
	rows, err := db.Query(ctx, selectTrace, id)
	if err != nil {
		return telemetry.Carrier{}, fmt.Errorf("reading the trace of saga %s: %w", id, err)
	}
	c, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (c telemetry.Carrier, err error) {
		err = row.Scan(&c.TraceParent, &c.TraceState)
		return c, err
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return telemetry.Carrier{}, fmt.Errorf("reading the trace of saga %s: %w", id, err)
	}
	return c, nil
}
