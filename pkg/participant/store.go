package participant

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations creates the table of this package.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "participant", FS: migrations, Dir: "migrations"}
}

// State says how far a step is.
type State string

// The states of a step.
const (
	StatePending State = "pending"
	StateWaiting State = "waiting"
	StateDone    State = "done"
	StateRefused State = "refused"
)

// Finished tells whether the step has its outcome.
func (s State) Finished() bool { return s == StateDone || s == StateRefused }

const (
	kindAction = "action"
	kindUndo   = "undo"
)

// Record is a step as it is stored.
type Record struct {
	OrderID        uuid.UUID
	StepName       string
	Kind           string
	State          State
	UndoneAt       *time.Time
	CommandID      uuid.UUID
	CommandType    string
	Payload        []byte
	IdempotencyKey string
	LastSeen       uuid.UUID
	Trace          telemetry.Carrier
	DueAt          *time.Time
	LeaseOwner     string
	Token          int64
	Attempts       int
	FirstAttemptAt *time.Time
	LastError      string
	Reason         string
	Reference      string
	ResultType     string
	Result         []byte
	ReplyID        uuid.UUID
	UpdatedAt      time.Time
}

// Undone tells whether the step carries a tombstone.
func (r *Record) Undone() bool { return r.UndoneAt != nil }

const recordColumns = `order_id, step_name, kind, state, undone_at, command_id, command_type, payload, idempotency_key, last_seen,
       traceparent, tracestate, due_at, lease_owner, token, attempts, first_attempt_at, last_error, reason, reference, result_type,
       result, reply_id, updated_at`

// key names a step of an order.
type key struct {
	order uuid.UUID
	step  string
}

func (r *Record) key() key { return key{r.OrderID, r.StepName} }

func scanRecord(row pgx.CollectableRow) (Record, error) {
	var (
		r                          Record
		command, lastSeen, replyID *uuid.UUID
	)
	err := row.Scan(&r.OrderID, &r.StepName, &r.Kind, &r.State, &r.UndoneAt, &command, &r.CommandType, &r.Payload, &r.IdempotencyKey,
		&lastSeen, &r.Trace.TraceParent, &r.Trace.TraceState, &r.DueAt, &r.LeaseOwner, &r.Token, &r.Attempts, &r.FirstAttemptAt,
		&r.LastError, &r.Reason, &r.Reference, &r.ResultType, &r.Result, &replyID, &r.UpdatedAt)
	if err != nil {
		return r, fmt.Errorf("scanning a step: %w", err)
	}
	r.CommandID, r.LastSeen, r.ReplyID = orZero(command), orZero(lastSeen), orZero(replyID)
	return r, nil
}

const selectStep = `SELECT ` + recordColumns + ` FROM step WHERE order_id = $1 AND step_name = $2`

const selectSteps = `SELECT ` + recordColumns + ` FROM step WHERE order_id = ANY ($1::uuid[])`

// Querier is a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Find reads the record of a step; false if there is none.
func Find(ctx context.Context, db Querier, orderID uuid.UUID, step string) (Record, bool, error) {
	rows, err := db.Query(ctx, selectStep, orderID, step)
	if err != nil {
		return Record{}, false, fmt.Errorf("reading step %s of %s: %w", step, orderID, err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanRecord)
	if errors.Is(err, pgx.ErrNoRows) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("reading step %s of %s: %w", step, orderID, err)
	}
	return r, true, nil
}

func queueLoad(b *pgx.Batch, orders []uuid.UUID, into map[key]*Record) {
	b.Queue(selectSteps, orders).Query(func(rows pgx.Rows) error {
		records, err := pgx.CollectRows(rows, scanRecord)
		for i := range records {
			into[records[i].key()] = &records[i]
		}
		return err
	})
}

// insertSteps writes intents, sorted by their key. A step that is there already undoes the whole transaction.
const insertSteps = `
INSERT INTO step (order_id, step_name, kind, state, command_id, command_type, payload, idempotency_key, last_seen, traceparent,
                  tracestate, due_at, lease_owner, token, attempts, first_attempt_at)
SELECT order_id, step_name, kind, 'pending', command_id, command_type, payload, idempotency_key, last_seen, traceparent, tracestate,
       CASE WHEN leased THEN now() + $11::interval ELSE now() END,
       CASE WHEN leased THEN $12 ELSE '' END,
       leased::int, leased::int, CASE WHEN leased THEN now() END
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::bytea[], $7::text[], $8::uuid[], $9::text[], $10::text[],
              $13::boolean[])
    AS s (order_id, step_name, kind, command_id, command_type, payload, idempotency_key, last_seen, traceparent, tracestate, leased)
 ORDER BY order_id, step_name`

// insertTombstones marks actions as undone, whether they are there or not. What is not being called can no longer start.
const insertTombstones = `
INSERT INTO step (order_id, step_name, kind, state, undone_at, reason)
SELECT order_id, step_name, 'action', 'refused', now(), '` + ReasonUndone + `'
  FROM unnest($1::uuid[], $2::text[]) AS t (order_id, step_name)
 ORDER BY order_id, step_name
ON CONFLICT ON CONSTRAINT step_pkey DO UPDATE
   SET undone_at = coalesce(step.undone_at, now()), updated_at = now()`

// claimSteps takes steps that are due, for as long as a call may take.
const claimSteps = `
WITH due AS (
    SELECT order_id, step_name
      FROM step
     WHERE due_at <= now() AND (kind = 'undo' OR undone_at IS NULL)
     ORDER BY due_at
     LIMIT $1
       FOR UPDATE SKIP LOCKED
)
UPDATE step s
   SET lease_owner = $2, token = s.token + 1, due_at = now() + $3::interval, attempts = s.attempts + 1,
       first_attempt_at = coalesce(s.first_attempt_at, now()), updated_at = now()
  FROM due
 WHERE s.order_id = due.order_id AND s.step_name = due.step_name
RETURNING s.order_id, s.step_name, s.kind, s.state, s.undone_at, s.command_id, s.command_type, s.payload, s.idempotency_key,
          s.last_seen, s.traceparent, s.tracestate, s.due_at, s.lease_owner, s.token, s.attempts, s.first_attempt_at, s.last_error,
          s.reason, s.reference, s.result_type, s.result, s.reply_id, s.updated_at`

// recordSteps is the fence: each row is changed only while it has the token that it was claimed with.
const recordSteps = `
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::uuid[],
                         $10::text[], $11::interval[], $12::boolean[])
        AS w (order_id, step_name, token, state, reason, reference, result_type, result, reply_id, last_error, again, deferred)
), locked AS MATERIALIZED (
    SELECT s.order_id, s.step_name
      FROM step s JOIN wanted w ON w.order_id = s.order_id AND w.step_name = s.step_name AND w.token = s.token
     ORDER BY s.order_id, s.step_name
       FOR UPDATE OF s
), moved AS (
    UPDATE step s
       SET state = w.state, reason = w.reason, reference = coalesce(nullif(w.reference, ''), s.reference), result_type = w.result_type,
           result = w.result, reply_id = coalesce(w.reply_id, s.reply_id), last_error = w.last_error, lease_owner = '',
           due_at = now() + w.again, attempts = s.attempts - w.deferred::int, updated_at = now()
      FROM wanted w JOIN locked l ON l.order_id = w.order_id AND l.step_name = w.step_name
     WHERE s.order_id = w.order_id AND s.step_name = w.step_name AND s.token = w.token
    RETURNING s.order_id
)
SELECT throughline_require((SELECT count(*) FROM moved), $13, 'step')`

// selectInFlight counts actions that may still be under way: those with an owner, until their lease has ended and the
// settling time has passed, since a request that was sent can arrive after its sender is gone.
const selectInFlight = `
SELECT count(*)
  FROM step
 WHERE order_id = $1 AND step_name = ANY ($2::text[]) AND state = 'pending' AND lease_owner <> '' AND due_at + $3::interval > now()`

func orZero(id *uuid.UUID) uuid.UUID {
	if id == nil {
		return uuid.Nil
	}
	return *id
}

func orNil(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}
