package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
)

// maxAcked bounds the acknowledgements that one process remembers. What is forgotten is published once more by the sweep.
const maxAcked = 200_000

// acked remembers which rows were acknowledged, in which session, and wait for the flush horizon.
type acked struct {
	ids   map[uuid.UUID]uint64 // to the number of the session
	queue []ackedRow           // by time
}

type ackedRow struct {
	sent
	at      time.Time // monotonic, and after the acknowledgement
	session uint64
}

// sent says where a message is.
type sent struct {
	id       uuid.UUID
	stream   string
	sequence uint64
	since    time.Time // monotonic, and before it was sent
}

func newAcked() acked { return acked{ids: make(map[uuid.UUID]uint64)} }

func (a *acked) add(session uint64, rows []sent) {
	now := time.Now()
	for _, row := range rows {
		if a.ids[row.id] == session || len(a.queue) >= maxAcked {
			continue
		}
		a.ids[row.id] = session
		a.queue = append(a.queue, ackedRow{row, now, session})
	}
}

// in tells whether a row was acknowledged in a session.
func (a *acked) in(session uint64, id uuid.UUID) bool { return a.ids[id] == session && session > 0 }

// due takes out the rows of the session whose acknowledgement is older than the horizon, at most n, and drops those of
// earlier sessions.
func (a *acked) due(session uint64, horizon time.Duration, n int) []ackedRow {
	now := time.Now()
	var rows []ackedRow
	taken := 0
	for _, row := range a.queue {
		if len(rows) == n || now.Sub(row.at) < horizon {
			break
		}
		taken++
		if row.session == session {
			rows = append(rows, row)
		} else {
			a.drop(row)
		}
	}
	a.queue = a.queue[taken:]
	return rows
}

// drop forgets a row, unless it was acknowledged again in a later session.
func (a *acked) drop(row ackedRow) {
	if a.ids[row.id] == row.session {
		delete(a.ids, row.id)
	}
}

// removed forgets rows that were due in a session.
func (a *acked) removed(rows []ackedRow) {
	for _, row := range rows {
		a.drop(row)
	}
}

// forget drops what was acknowledged in a session and in those before it.
func (a *acked) forget(session uint64) {
	kept := a.queue[:0]
	for _, row := range a.queue {
		if row.session > session {
			kept = append(kept, row)
		} else {
			a.drop(row)
		}
	}
	a.queue = slices.Clip(kept)
}

// noteAcked remembers acknowledgements. Those of a session that has ended are dropped when they are looked at.
func (r *Relay) noteAcked(session uint64, rows []sent) {
	if len(rows) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked.add(session, rows)
}

// removeRows removes rows by their ids, and notes where their messages are. Losing this in a crash only leads to another
// publish of the same messages, so this one transaction does not wait for the disk.
const removeRows = `
WITH gone AS (
    DELETE FROM outbox WHERE message_id = ANY ($1::uuid[]) RETURNING message_id
)
INSERT INTO outbox_sent (message_id, stream, stream_sequence, sent_at)
SELECT message_id, s.stream, s.stream_sequence, now() - s.age
  FROM gone
  JOIN unnest($1::uuid[], $2::text[], $3::bigint[], $4::interval[]) AS s (message_id, stream, stream_sequence, age) USING (message_id)`

const asyncCommit = `SELECT set_config('synchronous_commit', 'off', true)`

// removeLoop deletes the rows that are safe at the broker.
func (r *Relay) removeLoop(ctx context.Context) error {
	tick := time.NewTicker(removeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for {
			n, err := r.removeOnce(ctx)
			if err != nil && ctx.Err() == nil {
				r.log.Warn("removing outbox rows failed, trying again", "error", err)
			}
			if n < removeBatch {
				break
			}
		}
	}
}

// removeOnce deletes one batch. Rows are safe when the broker has been heard from, over the connection that brought their
// acknowledgement, after their horizon had passed: then it lived long enough to flush them. In a cluster the leaders of their
// streams must be the same as when they were sent.
func (r *Relay) removeOnce(ctx context.Context) (int, error) {
	session := r.conn.Session()
	r.mu.Lock()
	rows := r.acked.due(session.Number, r.cfg.FlushHorizon, removeBatch)
	r.mu.Unlock()
	if len(rows) == 0 {
		return 0, nil
	}
	err := session.Verify(ctx, heldOf(rows))
	if errors.Is(err, messaging.ErrForgotten) {
		r.conn.Renew() // before anything new is published, all that is pending is
	}
	if err == nil {
		var b pgx.Batch
		b.Queue(asyncCommit)
		b.Queue(removeRows, sentColumns(rows)...)
		fault.Point(fault.OutboxRemoving)
		err = postgres.SendAtomic(ctx, r.pool, &b)
	}
	if err == nil {
		fault.Point(fault.OutboxRemoved)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked.removed(rows) // also on an error: then the rows are still there, and the sweep publishes them again
	if err != nil {
		return 0, fmt.Errorf("removing %d acknowledged outbox rows: %w", len(rows), err)
	}
	return len(rows), nil
}

// heldOf gives for each stream what it has acknowledged of rows.
func heldOf(rows []ackedRow) []messaging.Held {
	var held []messaging.Held
	for _, row := range rows {
		i := slices.IndexFunc(held, func(h messaging.Held) bool { return h.Stream == row.stream })
		if i < 0 {
			i = len(held)
			held = append(held, messaging.Held{Stream: row.stream, Since: row.since})
		}
		held[i].Sequence = max(held[i].Sequence, row.sequence)
		if row.since.Before(held[i].Since) {
			held[i].Since = row.since
		}
	}
	return held
}

// sentColumns turns rows into one array per column.
func sentColumns(rows []ackedRow) []any {
	n := len(rows)
	ids, streams, sequences, ages := make([]uuid.UUID, n), make([]string, n), make([]int64, n), make([]time.Duration, n)
	now := time.Now()
	for i, row := range rows {
		ids[i], streams[i], sequences[i], ages[i] = row.id, row.stream, int64(row.sequence), now.Sub(row.at)
	}
	return []any{ids, streams, sequences, ages}
}
