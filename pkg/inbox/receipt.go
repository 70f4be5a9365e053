package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Receipt is an inbox row: the record that a consumer has dealt with a message.
type Receipt struct {
	Consumer   string
	MessageID  uuid.UUID
	ReceivedAt time.Time
	// Instance is which instance has dealt with it; empty where that is not on record.
	Instance string
	// Repeats is how often it came again afterwards, and RepeatedAt when last.
	Repeats    int64
	RepeatedAt *time.Time
}

const selectReceipts = `
SELECT consumer, message_id, received_at, coalesce(instance, ''), coalesce(repeats, 0), repeated_at
  FROM inbox
 WHERE consumer = ANY ($1::text[]) AND message_id = ANY ($2::uuid[])
 ORDER BY received_at, consumer, message_id`

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Receipts reads the inbox rows of messages that are still kept, for the given consumers.
func Receipts(ctx context.Context, db Querier, consumers []string, messages []uuid.UUID) ([]Receipt, error) {
	rows, err := db.Query(ctx, selectReceipts, consumers, messages)
	if err != nil {
		return nil, fmt.Errorf("reading inbox rows: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Receipt])
	if err != nil {
		return nil, fmt.Errorf("reading inbox rows: %w", err)
	}
	return found, nil
}
