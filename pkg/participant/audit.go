package participant

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const selectDueOf = `
SELECT DISTINCT order_id FROM step WHERE order_id = ANY ($1::uuid[]) AND due_at IS NOT NULL AND (kind <> 'action' OR undone_at IS NULL)`

// Undecided tells which of some orders have a step that is still to be performed, now or later.
func Undecided(ctx context.Context, db Querier, orders []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := db.Query(ctx, selectDueOf, orders)
	if err != nil {
		return nil, fmt.Errorf("reading which orders have steps to perform: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("reading which orders have steps to perform: %w", err)
	}
	found := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		found[id] = true
	}
	return found, nil
}
