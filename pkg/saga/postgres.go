package saga

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations creates the tables of this package.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "saga", FS: migrations, Dir: "migrations"}
}

// database is the [Store] on Postgres.
type database struct {
	pool *pgxpool.Pool
	// consumer is the inbox consumer under which replies are marked.
	consumer string
}

// OnPostgres gives the [Store] on Postgres, for those who put something before it. consumer is the inbox consumer under which
// replies are marked.
func OnPostgres(pool *pgxpool.Pool, consumer string) Store { return database{pool, consumer} }

func (d database) Load(ctx context.Context, sagas, messages []uuid.UUID) (Loaded, error) {
	l := Loaded{Sagas: make(map[uuid.UUID]*Record, len(sagas)), Seen: make(map[uuid.UUID]bool)}
	var b pgx.Batch
	if len(messages) > 0 {
		inbox.QueueRepeats(&b, d.consumer, messages, l.Seen)
	}
	queueLoad(&b, sagas, &l)
	if err := d.pool.SendBatch(ctx, &b).Close(); err != nil {
		return Loaded{}, fmt.Errorf("reading sagas: %w", err)
	}
	return l, nil
}

func (d database) Commit(ctx context.Context, u *Unit) error {
	var b pgx.Batch
	if err := d.queue(&b, u); err != nil {
		return err
	}
	return postgres.SendAtomic(ctx, d.pool, &b)
}

// queue adds a unit of work to a batch, in the order in which rows are locked everywhere.
func (d database) queue(b *pgx.Batch, u *Unit) error {
	if u.Before != nil {
		if err := u.Before(b); err != nil {
			return err
		}
	}
	if err := queueInsert(b, u.Births); err != nil {
		return err
	}
	if err := queueUpdate(b, u.Updates); err != nil {
		return err
	}
	queueTransitions(b, u.Histories)
	queueTimers(b, deleteTimers, u.Fired)
	queueTimers(b, insertTimers, u.Set)
	if err := outbox.Queue(b, u.Chains); err != nil {
		return err
	}
	inbox.QueueMarks(b, d.consumer, u.Marks)
	if u.After != nil {
		return u.After(b)
	}
	return nil
}

func (d database) Due(ctx context.Context, plans []Plan, limit int) ([]Timer, error) {
	names, versions, hashes := columns(plans)
	rows, err := d.pool.Query(ctx, selectTimers, limit, names, versions, hashes)
	if err != nil {
		return nil, fmt.Errorf("reading timers: %w", err)
	}
	timers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Timer])
	if err != nil {
		return nil, fmt.Errorf("reading timers: %w", err)
	}
	return timers, nil
}

// stored is the JSON form of what has no column of its own.
type stored struct {
	Steps []StepState          `json:"steps"`
	Seen  map[string]uuid.UUID `json:"seen,omitempty"`
	Armed time.Time            `json:"armed,omitzero"`
}

func (r *Record) state() (string, error) {
	b, err := json.Marshal(stored{Steps: r.Steps, Seen: r.Seen, Armed: r.Armed})
	if err != nil {
		return "", fmt.Errorf("encoding the state of saga %s: %w", r.ID, err)
	}
	return string(b), nil
}

const insertInstances = `
INSERT INTO saga_instance (saga_id, name, definition_version, definition_hash, idempotency_key, status, state, data,
                           event_seq, last_message_id, traceparent, tracestate)
SELECT saga_id, name, definition_version, definition_hash, idempotency_key, status, state::jsonb, data,
       event_seq, last_message_id, traceparent, tracestate
  FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::bigint[],
              $10::uuid[], $11::text[], $12::text[])
    AS r (saga_id, name, definition_version, definition_hash, idempotency_key, status, state, data,
          event_seq, last_message_id, traceparent, tracestate)
 ORDER BY saga_id`

// updateInstances is the compare-and-set: rows are locked in the order of their ids, and if one has another revision than
// was read, everything is undone.
const updateInstances = `
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::uuid[])
        AS w (saga_id, revision, status, attention, reason, state, event_seq, last_message_id)
), locked AS MATERIALIZED (
    SELECT s.saga_id
      FROM saga_instance s JOIN wanted w ON w.saga_id = s.saga_id AND w.revision = s.revision
     ORDER BY s.saga_id
       FOR UPDATE OF s
), moved AS (
    UPDATE saga_instance s
       SET status = w.status, attention = w.attention, reason = w.reason, state = w.state::jsonb, event_seq = w.event_seq,
           last_message_id = w.last_message_id, revision = w.revision + 1, updated_at = now()
      FROM wanted w JOIN locked l ON l.saga_id = w.saga_id
     WHERE s.saga_id = w.saga_id AND s.revision = w.revision
    RETURNING s.saga_id
)
SELECT throughline_require((SELECT count(*) FROM moved), $9, 'saga_instance')`

const selectInstances = `
SELECT saga_id, name, definition_version, definition_hash, idempotency_key, status, attention, reason, state, data, event_seq,
       last_message_id, revision, traceparent, tracestate, created_at, updated_at, now()
  FROM saga_instance
 WHERE saga_id = ANY ($1::uuid[])`

const insertTransitions = `
INSERT INTO saga_transition (saga_no, revision, position, step, from_state, to_state, cause, cause_id, attempt)
SELECT s.saga_no, t.revision, t.position, t.step, t.from_state, t.to_state, t.cause, t.cause_id, t.attempt
  FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::integer[])
    AS t (saga_id, revision, position, step, from_state, to_state, cause, cause_id, attempt)
  JOIN saga_instance s ON s.saga_id = t.saga_id`

const insertTimers = `
INSERT INTO saga_timer (due_at, saga_id, failures)
SELECT due_at, saga_id, failures FROM unnest($1::timestamptz[], $2::uuid[], $3::integer[]) AS t (due_at, saga_id, failures)
ON CONFLICT DO NOTHING`

const deleteTimers = `
DELETE FROM saga_timer t
 USING unnest($1::timestamptz[], $2::uuid[], $3::integer[]) AS d (due_at, saga_id, failures)
 WHERE t.due_at = d.due_at AND t.saga_id = d.saga_id`

// selectTimers looks at the sagas of due timers one by one: there are few of those, and many sagas.
const selectTimers = `
SELECT t.due_at, t.saga_id, t.failures
  FROM saga_timer t
  LEFT JOIN LATERAL (
       SELECT s.status IN ('running', 'compensating') AND (s.name, s.definition_version, s.definition_hash) NOT IN
              (SELECT name, version, hash FROM unnest($2::text[], $3::integer[], $4::bytea[]) AS p (name, version, hash)) AS strange
         FROM saga_instance s
        WHERE s.saga_id = t.saga_id
        LIMIT 1) AS s ON true
 WHERE t.due_at <= now() AND s.strange IS NOT TRUE
 ORDER BY t.due_at
 LIMIT $1`

// queueLoad adds the reading of sagas to a batch.
func queueLoad(b *pgx.Batch, ids []uuid.UUID, into *Loaded) {
	b.Queue(selectInstances, ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			r, err := scanRecord(rows, &into.Now)
			if err != nil {
				return err
			}
			into.Sagas[r.ID] = r
		}
		return rows.Err()
	})
}

func scanRecord(rows pgx.Rows, now *time.Time) (*Record, error) {
	var (
		r     Record
		state []byte
		last  *uuid.UUID
	)
	err := rows.Scan(&r.ID, &r.Definition, &r.Version, &r.Hash, &r.IdempotencyKey, &r.Status, &r.Attention, &r.Reason, &state, &r.Data,
		&r.Aggregate.EventSeq, &last, &r.Revision, &r.Trace.TraceParent, &r.Trace.TraceState, &r.CreatedAt, &r.UpdatedAt, now)
	if err != nil {
		return nil, fmt.Errorf("scanning a saga: %w", err)
	}
	var s stored
	if err := json.Unmarshal(state, &s); err != nil {
		return nil, fmt.Errorf("decoding the state of saga %s: %w", r.ID, err)
	}
	r.Steps, r.Seen, r.Armed = s.Steps, s.Seen, s.Armed
	r.Aggregate.ID = r.ID
	if last != nil {
		r.Aggregate.LastMessageID = *last
	}
	return &r, nil
}

// byID is the one order in which sagas are locked.
func byID(a, b *Record) int { return slices.Compare(a.ID[:], b.ID[:]) }

func queueInsert(b *pgx.Batch, records []*Record) error {
	n := len(records)
	if n == 0 {
		return nil
	}
	slices.SortFunc(records, byID)
	ids, names, versions, hashes := make([]uuid.UUID, n), make([]string, n), make([]int32, n), make([][]byte, n)
	keys, statuses, states, data := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	seqs, last, parents, traces := make([]int64, n), make([]*uuid.UUID, n), make([]string, n), make([]string, n)
	for i, r := range records {
		state, err := r.state()
		if err != nil {
			return err
		}
		ids[i], names[i], versions[i], hashes[i] = r.ID, r.Definition, int32(r.Version), r.Hash
		keys[i], statuses[i], states[i], data[i] = r.IdempotencyKey, string(r.Status), state, r.Data
		seqs[i], last[i], parents[i], traces[i] = r.Aggregate.EventSeq, orNil(r.Aggregate.LastMessageID), r.Trace.TraceParent, r.Trace.TraceState
	}
	b.Queue(insertInstances, ids, names, versions, hashes, keys, statuses, states, data, seqs, last, parents, traces)
	return nil
}

func queueUpdate(b *pgx.Batch, records []*Record) error {
	n := len(records)
	if n == 0 {
		return nil
	}
	slices.SortFunc(records, byID)
	ids, revisions, statuses, attentions := make([]uuid.UUID, n), make([]int64, n), make([]string, n), make([]string, n)
	reasons, states, seqs, last := make([]string, n), make([]string, n), make([]int64, n), make([]*uuid.UUID, n)
	for i, r := range records {
		state, err := r.state()
		if err != nil {
			return err
		}
		ids[i], revisions[i], statuses[i], attentions[i] = r.ID, r.Revision, string(r.Status), r.Attention
		reasons[i], states[i], seqs[i], last[i] = r.Reason, state, r.Aggregate.EventSeq, orNil(r.Aggregate.LastMessageID)
	}
	b.Queue(updateInstances, ids, revisions, statuses, attentions, reasons, states, seqs, last, n)
	return nil
}

func queueTransitions(b *pgx.Batch, histories []History) {
	var (
		ids, causeIDs             []uuid.UUID
		revisions                 []int64
		positions                 []int16
		steps, froms, tos, causes []string
		attempts                  []int32
		causeIDsOrNil             []*uuid.UUID
	)
	for _, h := range histories {
		for i, t := range h.Transitions {
			ids, revisions, positions = append(ids, h.SagaID), append(revisions, h.Revision), append(positions, int16(i))
			steps, froms, tos = append(steps, t.Step), append(froms, t.From), append(tos, t.To)
			causes, causeIDs, attempts = append(causes, t.Cause), append(causeIDs, t.CauseID), append(attempts, int32(t.Attempt))
		}
	}
	if len(ids) == 0 {
		return
	}
	for i := range causeIDs {
		causeIDsOrNil = append(causeIDsOrNil, orNil(causeIDs[i]))
	}
	b.Queue(insertTransitions, ids, revisions, positions, steps, froms, tos, causes, causeIDsOrNil, attempts)
}

func queueTimers(b *pgx.Batch, sql string, timers []Timer) {
	if len(timers) == 0 {
		return
	}
	dues, ids, failures := make([]time.Time, len(timers)), make([]uuid.UUID, len(timers)), make([]int32, len(timers))
	for i, t := range timers {
		dues[i], ids[i], failures[i] = t.Due, t.SagaID, int32(t.Failures) //nolint:gosec // bounded
	}
	b.Queue(sql, dues, ids, failures)
}

func orNil(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
