package inbox

import (
	"context"
	"embed"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/postgres"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations creates the tables of this package.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "inbox", FS: migrations, Dir: "migrations"}
}

// Constraint is the name of the constraint that a repeat violates.
const Constraint = "inbox_pkey"

// A plain insert, without ON CONFLICT: a row that is there already must undo the whole transaction, not only itself.
const insertMarks = `
INSERT INTO inbox (consumer, message_id)
SELECT $1, id FROM unnest($2::uuid[]) AS u (id)`

const selectSeen = `SELECT message_id FROM inbox WHERE consumer = $1 AND message_id = ANY ($2::uuid[])`

// Rows are locked in the order of their ids. Nobody waits for the disk for the sake of a count.
const countRepeats = `
WITH seen AS (
    SELECT message_id FROM inbox WHERE consumer = $1 AND message_id = ANY ($2::uuid[]) ORDER BY message_id FOR NO KEY UPDATE
)
UPDATE inbox i
   SET repeats = coalesce(i.repeats, 0) + 1, repeated_at = now()
  FROM seen
 WHERE i.consumer = $1 AND i.message_id = seen.message_id AND set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING i.message_id`

// QueueMarks adds to a batch, which runs as one transaction, the rows that say that the consumer has dealt with the
// messages. The transaction fails with a violation of [Constraint] if one of them was dealt with already.
func QueueMarks(b *pgx.Batch, consumer string, ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	b.Queue(insertMarks, consumer, sorted)
}

// Mark adds the row within a transaction of the caller. It reports false, and has done nothing, if the message was dealt
// with already.
func Mark(ctx context.Context, tx pgx.Tx, consumer string, id uuid.UUID) (bool, error) {
	tag, err := tx.Exec(ctx, `INSERT INTO inbox (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, consumer, id)
	if err != nil {
		return false, fmt.Errorf("marking message %s as dealt with: %w", id, err)
	}
	return tag.RowsAffected() == 1, nil
}

// QueueSeen adds to a batch of reads the question which of the messages were dealt with already. The answer is in seen once
// the batch has run. It is a fast path: only the insert of the mark is the truth.
func QueueSeen(b *pgx.Batch, consumer string, ids []uuid.UUID, seen map[uuid.UUID]bool) {
	queueSeen(b, selectSeen, consumer, ids, seen)
}

// QueueRepeats is [QueueSeen] for those who have the messages in hand: it counts each of those that were dealt with before as one that
// came again. As long as there are none it only reads. It belongs into a transaction of reads: one that counts does not wait for the disk.
func QueueRepeats(b *pgx.Batch, consumer string, ids []uuid.UUID, seen map[uuid.UUID]bool) {
	queueSeen(b, countRepeats, consumer, ids, seen)
}

func queueSeen(b *pgx.Batch, sql, consumer string, ids []uuid.UUID, seen map[uuid.UUID]bool) {
	b.Queue(sql, consumer, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id uuid.UUID
			if err := rows.Scan(&id); err != nil {
				return fmt.Errorf("reading inbox rows: %w", err)
			}
			seen[id] = true
		}
		return rows.Err()
	})
}
