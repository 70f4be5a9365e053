package participant

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// insertSteps writes intents and tombstones in one lock order, so that no two transactions wait for each other in a circle. An
// intent that is on record already undoes the whole transaction. A tombstone marks what is there, and takes it out of the
// queue unless it is being called: then its due_at is the end of the lease, which the undo waits for. The time of the first attempt is
// the one that the attempt itself knows, since it may tell of it.
const insertSteps = `
WITH written AS (
    INSERT INTO step (order_id, step_name, kind, command_id, command_type, payload, idempotency_key, last_seen, traceparent,
                      tracestate, state, undone_at, reason, due_at, lease_owner, token, attempts, first_attempt_at)
    SELECT order_id, step_name, kind, command_id, command_type, payload, idempotency_key, last_seen, traceparent, tracestate,
           CASE WHEN buried THEN 'refused' ELSE 'pending' END,
           CASE WHEN buried THEN now() END,
           CASE WHEN buried THEN '` + ReasonUndone + `' ELSE '' END,
           CASE WHEN leased THEN now() + $13::interval WHEN NOT buried THEN now() END,
           CASE WHEN leased THEN $14 ELSE '' END,
           leased::int, leased::int,
           CASE WHEN leased THEN coalesce($16, now()) END
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::bytea[], $7::text[], $8::uuid[], $9::text[],
                  $10::text[], $11::boolean[], $12::boolean[])
        AS s (order_id, step_name, kind, command_id, command_type, payload, idempotency_key, last_seen, traceparent, tracestate,
              leased, buried)
     ORDER BY order_id, step_name
        ON CONFLICT ON CONSTRAINT step_pkey DO UPDATE
       SET undone_at = coalesce(step.undone_at, now()),
           due_at = CASE WHEN step.lease_owner <> '' THEN step.due_at END
     WHERE excluded.undone_at IS NOT NULL
    RETURNING 1
)
SELECT throughline_require((SELECT count(*) FROM written), $15, 'intents and tombstones')`

// claimSteps takes steps that are due, for as long as a call may take. Steps that this binary does not know are left to one
// that does. A step that still has an owner is taken over: he has recorded no end of his attempt, which the history then says.
const claimSteps = `
WITH due AS (
    SELECT order_id, step_name
      FROM step
     WHERE due_at <= now() AND (kind = 'undo' OR undone_at IS NULL) AND step_name = ANY ($4::text[]) AND (attempts = 0 OR NOT $5)
     ORDER BY due_at
     LIMIT $1
       FOR UPDATE SKIP LOCKED
)
UPDATE step s
   SET lease_owner = $2, token = s.token + 1, due_at = now() + $3::interval, attempts = s.attempts + 1,
       first_attempt_at = coalesce(s.first_attempt_at, now()), updated_at = now(),
       history = CASE WHEN s.lease_owner = '' THEN s.history
                      ELSE step_history(s.history, step_lost(s.attempts, s.token, s.lease_owner, s.updated_at)) END
  FROM due
 WHERE s.order_id = due.order_id AND s.step_name = due.step_name
RETURNING s.order_id, s.step_name, s.kind, s.state, s.undone_at, s.command_id, s.command_type, s.payload, s.idempotency_key,
          s.last_seen, s.traceparent, s.tracestate, s.due_at, s.lease_owner, s.token, s.attempts, s.first_attempt_at, s.last_error,
          s.reason, s.reference, s.result_type, s.result, s.reply_id, s.updated_at`

// recordSteps is the fence: each row is changed only while it has the token that it was claimed with. The token moves on, so
// that a result is recorded once even if the answer to this was lost. An action that was undone meanwhile does not come back
// into the queue. One that was nudged while it was called looks again at once. What was put off, because it could not even start, was no attempt.
const recordSteps = `
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[], $9::uuid[],
                         $10::text[], $11::interval[], $12::boolean[], $13::text[])
        AS w (order_id, step_name, token, state, reason, reference, result_type, result, reply_id, last_error, again, deferred, history)
), locked AS MATERIALIZED (
    SELECT s.order_id, s.step_name
      FROM step s JOIN wanted w ON w.order_id = s.order_id AND w.step_name = s.step_name AND w.token = s.token
     ORDER BY s.order_id, s.step_name
       FOR UPDATE OF s
), moved AS (
    UPDATE step s
       SET state = w.state, reason = w.reason, reference = coalesce(nullif(w.reference, ''), s.reference), result_type = w.result_type,
           result = w.result, reply_id = coalesce(w.reply_id, s.reply_id), last_error = w.last_error,
           token = s.token + 1, lease_owner = '',
           due_at = CASE WHEN s.undone_at IS NOT NULL THEN NULL
                         WHEN s.nudged_token = s.token AND (w.again IS NOT NULL OR s.kind = 'check') THEN now()
                         ELSE now() + w.again END,
           attempts = s.attempts - w.deferred::int, history = step_history(s.history, w.history),
           first_attempt_at = CASE WHEN w.deferred AND s.attempts = 1 THEN NULL ELSE s.first_attempt_at END, updated_at = now()
      FROM wanted w JOIN locked l ON l.order_id = w.order_id AND l.step_name = w.step_name
     WHERE s.order_id = w.order_id AND s.step_name = w.step_name AND s.token = w.token
    RETURNING s.order_id
)
SELECT throughline_require((SELECT count(*) FROM moved), $14, 'step')`

// fenceActions counts the actions of an undo that may still have an effect on the way: those with an owner, until their lease
// and the settling time have passed, and those whose last attempt ended without an answer less than the settling time ago; a
// request that was sent can arrive after its sender has given up or is gone. An owner whose time is over is shut out, so
// that what he finds out when he wakes is not recorded beside the undo.
const fenceActions = `
WITH called AS (
    SELECT order_id, step_name, CASE WHEN lease_owner <> '' THEN due_at ELSE updated_at END + $3::interval > now() AS flying
      FROM step
     WHERE order_id = $1 AND step_name = ANY ($2::text[]) AND undone_at IS NOT NULL
       AND (lease_owner <> '' OR state = 'pending' AND attempts > 0)
     ORDER BY step_name
       FOR UPDATE
), fenced AS (
    UPDATE step s
       SET token = s.token + 1, lease_owner = '', due_at = NULL,
           history = step_history(s.history, step_lost(s.attempts, s.token, s.lease_owner, s.updated_at))
      FROM called c
     WHERE s.order_id = c.order_id AND s.step_name = c.step_name AND s.lease_owner <> '' AND NOT c.flying
)
SELECT count(*) FROM called WHERE flying`

// settleActions closes the actions that an undo has dealt with.
const settleActions = `
WITH settled AS (
    SELECT s.order_id, s.step_name
      FROM step s JOIN unnest($1::uuid[], $2::text[]) AS u (order_id, step_name)
           ON s.order_id = u.order_id AND s.step_name = u.step_name
     WHERE s.undone_at IS NOT NULL AND s.state IN ('pending', 'waiting')
     ORDER BY s.order_id, s.step_name
       FOR UPDATE OF s
)
UPDATE step s
   SET state = 'refused', reason = '` + ReasonUndone + `', due_at = NULL, lease_owner = '', token = s.token + 1, updated_at = now()
  FROM settled
 WHERE s.order_id = settled.order_id AND s.step_name = settled.step_name`

// selectTokens gives the tokens that the steps of some orders have now.
const selectTokens = `SELECT order_id, step_name, token FROM step WHERE order_id = ANY ($1::uuid[])`

// selectStrange counts what waits for a binary that knows it.
const selectStrange = `
SELECT step_name, count(*)
  FROM step
 WHERE due_at IS NOT NULL AND step_name <> ALL ($1::text[])
 GROUP BY step_name
 ORDER BY step_name`

// queueIntents adds the intents and tombstones of an intake to a batch.
func queueIntents(b *pgx.Batch, in *Intake) {
	type row struct {
		*Record
		leased, buried bool
	}
	rows := make([]row, 0, len(in.Intents)+len(in.Tombstones))
	owner, first := "", (*time.Time)(nil)
	for _, r := range in.Intents {
		rows = append(rows, row{r, r.LeaseOwner != "", false})
		if r.LeaseOwner != "" {
			owner, first = r.LeaseOwner, r.FirstAttemptAt // all of one intake have the same
		}
	}
	for _, k := range in.Tombstones {
		rows = append(rows, row{&Record{OrderID: k.OrderID, StepName: k.StepName, Kind: KindAction}, false, true})
	}
	n := len(rows)
	if n == 0 {
		return
	}
	slices.SortFunc(rows, func(a, b row) int { return compareKeys(a.Key(), b.Key()) })
	orders, names, kinds, commands := make([]uuid.UUID, n), make([]string, n), make([]string, n), make([]*uuid.UUID, n)
	types, payloads, keys, lastSeen := make([]string, n), make([][]byte, n), make([]string, n), make([]*uuid.UUID, n)
	parents, states, leased, buried := make([]string, n), make([]string, n), make([]bool, n), make([]bool, n)
	for i, r := range rows {
		orders[i], names[i], kinds[i], commands[i] = r.OrderID, r.StepName, r.Kind, orNil(r.CommandID)
		types[i], payloads[i], keys[i], lastSeen[i] = r.CommandType, nonNil(r.Payload), r.IdempotencyKey, orNil(r.LastSeen)
		parents[i], states[i], leased[i], buried[i] = r.Trace.TraceParent, r.Trace.TraceState, r.leased, r.buried
	}
	b.Queue(insertSteps, orders, names, kinds, commands, types, payloads, keys, lastSeen, parents, states, leased, buried,
		in.Lease, owner, n, first)
}

// queueEnds adds the ends of attempts, sorted by their keys, to a batch.
func queueEnds(b *pgx.Batch, ends []End) {
	n := len(ends)
	orders, names, tokens, states := make([]uuid.UUID, n), make([]string, n), make([]int64, n), make([]string, n)
	reasons, references, types, results := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	replies, failures := make([]*uuid.UUID, n), make([]string, n)
	again, deferred, histories := make([]*time.Duration, n), make([]bool, n), make([]string, n)
	for i, e := range ends {
		orders[i], names[i], tokens[i], states[i] = e.OrderID, e.StepName, e.Token, string(e.State)
		reasons[i], references[i], types[i], results[i] = e.Reason, e.Reference, e.ResultType, nonNil(e.Result)
		replies[i], failures[i] = orNil(e.ReplyID), e.LastError
		again[i], deferred[i], histories[i] = e.Again, e.Deferred, e.History
	}
	b.Queue(recordSteps, orders, names, tokens, states, reasons, references, types, results, replies, failures, again, deferred, histories, n)
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

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
