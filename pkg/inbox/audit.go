package inbox

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const selectBuried = `SELECT message_id FROM dead_letter WHERE consumer = $1 AND message_id = ANY ($2::uuid[])`

// Audit tells which of some messages a consumer has dealt with, and which of them became a dead letter, settled or not. One may be both: a
// dead letter that was replayed.
func Audit(ctx context.Context, db Querier, consumer string, messages []uuid.UUID) (received, letters map[uuid.UUID]bool, err error) {
	if received, err = readIDs(ctx, db, selectSeen, consumer, messages); err != nil {
		return nil, nil, fmt.Errorf("reading inbox rows: %w", err)
	}
	if letters, err = readIDs(ctx, db, selectBuried, consumer, messages); err != nil {
		return nil, nil, fmt.Errorf("reading dead letters: %w", err)
	}
	return received, letters, nil
}

func readIDs(ctx context.Context, db Querier, sql, consumer string, messages []uuid.UUID) (map[uuid.UUID]bool, error) {
	rows, err := db.Query(ctx, sql, consumer, messages)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	set := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set, nil
}
