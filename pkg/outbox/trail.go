package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// ageless is an age that no message has: who only looks does not ask what may be sent again.
const ageless = 100 * 365 * 24 * time.Hour

const selectTrail = `
SELECT ` + sentRow + `
 WHERE m.aggregate_id = $2
 ORDER BY m.created_at, m.message_id
 LIMIT $3`

// Trail gives the messages about an aggregate that are still kept, at most limit, in the sequence in which they were written.
func Trail(ctx context.Context, db Querier, aggregate uuid.UUID, limit int) ([]Sent, error) {
	return look(ctx, db, selectTrail, ageless, aggregate, limit)
}

const selectLately = `
SELECT ` + sentRow + `
 WHERE m.message_id > $2
 ORDER BY m.message_id
 LIMIT $3`

// Lately gives messages about all aggregates with an id above after, at most limit, in the order of their ids. Ids grow with the time at
// which they were minted, but transactions commit in any order: one that is told late has an id below others that were told before.
func Lately(ctx context.Context, db Querier, after uuid.UUID, limit int) ([]Sent, error) {
	return look(ctx, db, selectLately, ageless, after, limit)
}

func look(ctx context.Context, db Querier, sql string, args ...any) ([]Sent, error) {
	rows, err := db.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("reading what was sent: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanSent)
	if err != nil {
		return nil, fmt.Errorf("reading what was sent: %w", err)
	}
	return found, nil
}

// AggregateOf tells which aggregate a message that is still kept is about; false if there is no such message.
func AggregateOf(ctx context.Context, db Querier, message uuid.UUID) (uuid.UUID, bool, error) {
	rows, err := db.Query(ctx, `SELECT aggregate_id FROM outbox_message WHERE message_id = $1 LIMIT 1`, message)
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("looking for message %s: %w", message, err)
	}
	id, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[uuid.UUID])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return uuid.Nil, false, nil
	case err != nil:
		return uuid.Nil, false, fmt.Errorf("looking for message %s: %w", message, err)
	}
	return id, true, nil
}

// Republish is a note of who has published a message again, and why.
type Republish struct {
	No        int64
	MessageID uuid.UUID
	Actor     string
	Reason    string
	CreatedAt time.Time
}

const selectRepublishes = `
SELECT republish_id, message_id, actor, reason, created_at
  FROM outbox_republish
 WHERE message_id = ANY ($1::uuid[])
 ORDER BY republish_id
 LIMIT 500`

// Republishes gives who has published some messages again, the first 500 times.
func Republishes(ctx context.Context, db Querier, messages []uuid.UUID) ([]Republish, error) {
	rows, err := db.Query(ctx, selectRepublishes, messages)
	if err != nil {
		return nil, fmt.Errorf("reading who has published messages again: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Republish])
	if err != nil {
		return nil, fmt.Errorf("reading who has published messages again: %w", err)
	}
	return found, nil
}
