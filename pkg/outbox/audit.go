package outbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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

// What was acknowledged in a span of time is found by the summaries of times. A page is all messages between two ids; of others, $5 says which are
// meant, in a way that keeps the filters for ids out of it: each id would be looked for in all of them.
const selectSentWithin = `
SELECT message_id, stream, stream_sequence
  FROM outbox_sent
 WHERE sent_at >= $1 AND sent_at < $2 AND message_id BETWEEN $3 AND $4
   AND (cardinality($5::uuid[]) = 0 OR (message_id = ANY ($5::uuid[])) IS TRUE)`

const selectSentAt = `SELECT sent_at FROM outbox_sent WHERE message_id = $1 AND sent_at >= $2 ORDER BY sent_at DESC LIMIT 1`

// Audit tells where the messages are with an id above after and below before, at most limit, in the order of their ids; those of
// transactions that have not committed are left out. A message that is told to be lost is lost: it leaves the outbox in the
// transaction that notes its place. The exception is one whose place was just dropped after the retention.
func Audit(ctx context.Context, db Querier, after, before uuid.UUID, limit int) ([]Whereabouts, error) {
	rows, err := db.Query(ctx, selectWritten, after, before, limit)
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanWritten)
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	return list, locate(ctx, db, list, true)
}

const selectWrittenAbout = `
SELECT m.message_id, m.aggregate_id, m.subject, m.created_at
  FROM unnest($1::uuid[]) AS a (id)
 CROSS JOIN LATERAL (SELECT message_id, aggregate_id, subject, created_at
                       FROM outbox_message WHERE aggregate_id = a.id ORDER BY created_at, message_id LIMIT $2) AS m`

// AuditOf is [Audit] of the messages about some aggregates, of each at most limit, in no sequence.
func AuditOf(ctx context.Context, db Querier, aggregates []uuid.UUID, limit int) ([]Whereabouts, error) {
	rows, err := db.Query(ctx, selectWrittenAbout, aggregates, limit)
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanWritten)
	if err != nil {
		return nil, fmt.Errorf("reading what was written: %w", err)
	}
	return list, locate(ctx, db, list, false)
}

func scanWritten(row pgx.CollectableRow) (w Whereabouts, err error) {
	return w, row.Scan(&w.ID, &w.AggregateID, &w.Subject, &w.WrittenAt)
}

// places are those messages whose place is not known yet.
type places struct {
	db   Querier
	open map[uuid.UUID]*Whereabouts
	// page says that the messages are all that there are between the first and the last.
	page bool
}

// locate fills in where messages are. What is pending is read first: what is not must then have its place.
func locate(ctx context.Context, db Querier, list []Whereabouts, page bool) error {
	p := places{db: db, open: make(map[uuid.UUID]*Whereabouts, len(list)), page: page}
	byTime := make([]*Whereabouts, len(list))
	ids := make([]uuid.UUID, len(list))
	for i := range list {
		byTime[i], ids[i], p.open[list[i].ID] = &list[i], list[i].ID, &list[i]
	}
	if len(list) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, selectPendingOf, ids)
	if err != nil {
		return fmt.Errorf("reading what is pending: %w", err)
	}
	pending, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return fmt.Errorf("reading what is pending: %w", err)
	}
	for _, id := range pending {
		p.open[id].Pending = true
		delete(p.open, id)
	}
	slices.SortFunc(byTime, func(a, b *Whereabouts) int { return a.WrittenAt.Compare(b.WrittenAt) })
	for from := 0; from < len(byTime); {
		to := from + 1
		for to < len(byTime) && byTime[to].WrittenAt.Sub(byTime[to-1].WrittenAt) < prompt {
			to++
		}
		if err := p.within(ctx, byTime[from:to], byTime[from].WrittenAt, byTime[to-1].WrittenAt.Add(prompt)); err != nil {
			return err
		}
		from = to
	}
	// What was left behind in an outage has gone together, later: where one is, others are.
	for _, w := range byTime {
		if p.open[w.ID] == nil {
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
			delete(p.open, w.ID)
			continue
		}
		if err := p.within(ctx, byTime, at[0].Add(-prompt), at[0].Add(prompt)); err != nil {
			return err
		}
	}
	return nil
}

// within fills in the places of those of some messages that were acknowledged in a span of time, and closes them.
func (p *places) within(ctx context.Context, some []*Whereabouts, from, to time.Time) error {
	wanted := make([]uuid.UUID, 0, len(some))
	for _, w := range some {
		if p.open[w.ID] != nil {
			wanted = append(wanted, w.ID)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	compare := func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
	first, last := slices.MinFunc(wanted, compare), slices.MaxFunc(wanted, compare)
	if p.page {
		wanted = []uuid.UUID{}
	}
	rows, err := p.db.Query(ctx, selectSentWithin, from, to, first, last, wanted)
	if err != nil {
		return fmt.Errorf("reading what was sent: %w", err)
	}
	var (
		id       uuid.UUID
		stream   string
		sequence int64
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &stream, &sequence}, func() error {
		if w := p.open[id]; w != nil {
			w.Stream, w.Sequence = stream, uint64(sequence)
			delete(p.open, id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading what was sent: %w", err)
	}
	return nil
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
