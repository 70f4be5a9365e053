package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// prompt is how long after it was written a message is usually acknowledged, generously. Places are looked for that far behind the messages of a
// page at once, since one by one costs a thousand times as much.
const prompt = time.Second

// Whereabouts is what is on record of where a message is.
type Whereabouts struct {
	ID          uuid.UUID
	AggregateID uuid.UUID
	Subject     string
	// WrittenAt is when its transaction began, by the database.
	WrittenAt time.Time
	// Pending says that the relay has still to publish it, or to see that it is safe.
	Pending bool
	// Stream and Sequence are where it was acknowledged; they are empty while it is pending.
	Stream   string
	Sequence uint64
}

// Lost tells whether the message is neither pending nor acknowledged, which must not be.
func (w *Whereabouts) Lost() bool { return !w.Pending && w.Stream == "" }

const selectWritten = `
SELECT message_id, aggregate_id, subject, created_at
  FROM outbox_message
 WHERE message_id > $1 AND message_id < $2
 ORDER BY message_id
 LIMIT $3`

const selectPendingOf = `SELECT message_id FROM outbox WHERE message_id = ANY ($1::uuid[])`

// What was acknowledged in a span of time is found by the summaries of times. The page is all messages between two ids.
const selectSentWithin = `
SELECT message_id, stream, stream_sequence
  FROM outbox_sent
 WHERE sent_at >= $1 AND sent_at < $2 AND message_id BETWEEN $3 AND $4`

const selectSentAt = `SELECT sent_at FROM outbox_sent WHERE message_id = $1 AND sent_at >= $2 ORDER BY sent_at DESC LIMIT 1`

// Audit tells where the messages are with an id above after and below before, at most limit, in the order of their ids; those of
// transactions that have not committed are left out. A message that is told to be lost is lost: it leaves the outbox in the
// transaction that notes its place. The exception is one whose place was just dropped after the retention.
func Audit(ctx context.Context, db Querier, after, before uuid.UUID, limit int) ([]Whereabouts, error) {
	rows, err := db.Query(ctx, selectWritten, after, before, limit)
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Whereabouts, err error) {
		return w, row.Scan(&w.ID, &w.AggregateID, &w.Subject, &w.WrittenAt)
	})
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	return list, locate(ctx, db, list)
}

// locate fills in where messages are. What is pending is read first: what is not must then have its place.
func locate(ctx context.Context, db Querier, list []Whereabouts) error {
	if len(list) == 0 {
		return nil
	}
	open := make(map[uuid.UUID]*Whereabouts, len(list))
	first, last := list[0].WrittenAt, list[0].WrittenAt
	for i := range list {
		w := &list[i]
		open[w.ID] = w
		if w.WrittenAt.Before(first) {
			first = w.WrittenAt
		}
		if w.WrittenAt.After(last) {
			last = w.WrittenAt
		}
	}
	rows, err := db.Query(ctx, selectPendingOf, idsOf(list, open))
	if err != nil {
		return fmt.Errorf("reading what is pending: %w", err)
	}
	pending, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return fmt.Errorf("reading what is pending: %w", err)
	}
	for _, id := range pending {
		open[id].Pending = true
		delete(open, id)
	}
	if err := within(ctx, db, list, open, first, last.Add(prompt)); err != nil {
		return err
	}
	// What was left behind in an outage has gone together, later: where one is, others are.
	for i := range list {
		w := &list[i]
		if open[w.ID] == nil {
			continue
		}
		rows, err := db.Query(ctx, selectSentAt, w.ID, w.WrittenAt)
		if err != nil {
			return fmt.Errorf("looking for message %s: %w", w.ID, err)
		}
		at, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
		if err != nil {
			return fmt.Errorf("looking for message %s: %w", w.ID, err)
		}
		if len(at) == 0 {
			delete(open, w.ID)
			continue
		}
		if err := within(ctx, db, list, open, at[0].Add(-prompt), at[0].Add(prompt)); err != nil {
			return err
		}
	}
	return nil
}

// within fills in the places of open messages that were acknowledged in a span of time, and closes them.
func within(ctx context.Context, db Querier, list []Whereabouts, open map[uuid.UUID]*Whereabouts, from, to time.Time) error {
	if len(open) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, selectSentWithin, from, to, list[0].ID, list[len(list)-1].ID)
	if err != nil {
		return fmt.Errorf("reading what was sent: %w", err)
	}
	var (
		id       uuid.UUID
		stream   string
		sequence int64
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &stream, &sequence}, func() error {
		if w := open[id]; w != nil {
			w.Stream, w.Sequence = stream, uint64(sequence)
			delete(open, id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading what was sent: %w", err)
	}
	return nil
}

func idsOf(list []Whereabouts, open map[uuid.UUID]*Whereabouts) []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(open))
	for i := range list {
		if open[list[i].ID] != nil {
			ids = append(ids, list[i].ID)
		}
	}
	return ids
}

const selectConcerned = `
SELECT message_id, aggregate_id
  FROM outbox_message
 WHERE message_id > $1 AND message_id < $2
 ORDER BY message_id
 LIMIT $3`

// Concerned gives the aggregates that the messages with an id above after and below before are about, each once, from at most limit messages,
// and the id of the last of these; it is the zero id if there are none.
func Concerned(ctx context.Context, db Querier, after, before uuid.UUID, limit int) (aggregates []uuid.UUID, last uuid.UUID, err error) {
	rows, err := db.Query(ctx, selectConcerned, after, before, limit)
	if err != nil {
		return nil, last, fmt.Errorf("reading what messages are about: %w", err)
	}
	var aggregate uuid.UUID
	seen := make(map[uuid.UUID]bool)
	_, err = pgx.ForEachRow(rows, []any{&last, &aggregate}, func() error {
		if !seen[aggregate] {
			seen[aggregate] = true
			aggregates = append(aggregates, aggregate)
		}
		return nil
	})
	if err != nil {
		return nil, last, fmt.Errorf("reading what messages are about: %w", err)
	}
	return aggregates, last, nil
}
