package outbox

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations creates the tables of this package.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "outbox", FS: migrations, Dir: "migrations"}
}

// MaxPayload bounds the payload of a message, in bytes. With its headers, which are below 4 KiB, it stays well under
// the broker's default of 1 MiB; so a row that the broker will never take is an exception.
const MaxPayload = 960 << 10

// insertRows writes messages: once and for all into outbox_message, and what the relay needs of them into outbox. Rows are sorted by their id, so that two writers never wait for each other in a circle. It
// gives the aggregates that have an event the broker refuses: what comes after such an event is left to the sweep, which
// knows what has to wait. The refusal is committed before anything that follows the event is published, and so before
// anybody can prove that he has seen it: a chain with a proof that is written here is written after that, and finds it.
const insertRows = `
WITH blocked AS MATERIALIZED (
    SELECT DISTINCT aggregate_id
      FROM outbox
     WHERE refusals > 0 AND aggregate_seq > 0 AND aggregate_id = ANY ($2::uuid[])
), r AS MATERIALIZED (
    SELECT *
      FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::uuid[],
                  $10::text[], $11::text[], $12::uuid[], $13::text[], $14::text[], $15::bytea[], $16::boolean[])
        AS u (message_id, aggregate_id, aggregate_seq, subject, type, source, idempotency_key, step_name, step_key,
              outcome, reason, last_seen, traceparent, tracestate, payload, left_to_sweep)
), kept AS (
    INSERT INTO outbox_message (message_id, aggregate_id, aggregate_seq, subject, type, source, idempotency_key, step_name, step_key,
                                outcome, reason, last_seen, traceparent, tracestate, payload, created_at)
    SELECT message_id, aggregate_id, aggregate_seq, subject, type, source, idempotency_key, step_name, step_key,
           outcome, reason, last_seen, traceparent, tracestate, payload, now()
      FROM r
), pending AS (
    INSERT INTO outbox (message_id, aggregate_id, aggregate_seq, created_at, left_to_sweep)
    SELECT message_id, aggregate_id, aggregate_seq, now(), left_to_sweep OR aggregate_id IN (SELECT aggregate_id FROM blocked)
      FROM r
)
SELECT aggregate_id FROM blocked`

// Queue adds the rows of the chains to a batch that runs as one transaction. The caller hands the same slice to
// [Relay.HandOff] after the commit: running the batch takes the proof from chains whose aggregate has an event that the
// broker refuses. The error wraps [ErrPayloadTooLarge], and then nothing was added.
func Queue(b *pgx.Batch, chains []Chain) error {
	rows := rowsOf(chains)
	if len(rows) == 0 {
		return nil
	}
	args, err := columns(rows)
	if err != nil {
		return err
	}
	b.Queue(insertRows, args...).Query(func(rows pgx.Rows) error { return disprove(rows, chains) })
	return nil
}

// Write is [Queue] within a transaction of the caller.
func Write(ctx context.Context, tx pgx.Tx, chains []Chain) error {
	rows := rowsOf(chains)
	if len(rows) == 0 {
		return nil
	}
	args, err := columns(rows)
	if err != nil {
		return err
	}
	blocked, err := tx.Query(ctx, insertRows, args...)
	if err == nil {
		err = disprove(blocked, chains)
	}
	if err != nil {
		return fmt.Errorf("writing outbox rows: %w", err)
	}
	return nil
}

// disprove takes the proof from the chains of the aggregates in rows.
func disprove(rows pgx.Rows, chains []Chain) error {
	blocked, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return err
	}
	for i := range chains {
		if len(chains[i].Messages) > 0 && slices.Contains(blocked, chains[i].Messages[0].AggregateID) {
			chains[i].Proven = false
		}
	}
	return nil
}

type row struct {
	*messaging.Message
	leftToSweep bool
}

func rowsOf(chains []Chain) []row {
	var n int
	for _, c := range chains {
		n += len(c.Messages)
	}
	rows := make([]row, 0, n)
	for _, c := range chains {
		for i := range c.Messages {
			rows = append(rows, row{&c.Messages[i], !c.Proven})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return rows
}

// columns turns rows into one array per column.
func columns(rows []row) ([]any, error) {
	n := len(rows)
	var (
		ids, aggregates                              = make([]uuid.UUID, n), make([]uuid.UUID, n)
		seqs                                         = make([]int64, n)
		subjects, types, sources, idempotency, steps = make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		stepKeys, lastSeen                           = make([]*uuid.UUID, n), make([]*uuid.UUID, n)
		outcomes, reasons, parents, states           = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		payloads                                     = make([][]byte, n)
		left                                         = make([]bool, n)
	)
	for i, r := range rows {
		if len(r.Payload) > MaxPayload {
			return nil, fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrPayloadTooLarge, r.Type, len(r.Payload), MaxPayload)
		}
		ids[i], aggregates[i], seqs[i] = r.ID, r.AggregateID, r.AggregateSeq
		subjects[i], types[i], sources[i], idempotency[i], steps[i] = r.Subject, r.Type, r.Source, r.IdempotencyKey, r.StepName
		stepKeys[i], lastSeen[i] = orNil(r.StepKey), orNil(r.LastSeen)
		outcomes[i], reasons[i], parents[i], states[i] = r.Outcome, r.Reason, r.TraceParent, r.TraceState
		payloads[i], left[i] = r.Payload, r.leftToSweep
		if payloads[i] == nil {
			payloads[i] = []byte{}
		}
	}
	return []any{ids, aggregates, seqs, subjects, types, sources, idempotency, steps, stepKeys,
		outcomes, reasons, lastSeen, parents, states, payloads, left}, nil
}

// orNil stores the zero id as NULL.
func orNil(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// messageColumns are what a message is made of, in the order that scanMessages reads.
const messageColumns = `m.message_id, m.aggregate_id, m.aggregate_seq, m.subject, m.type, m.source, m.idempotency_key, m.step_name,
       m.step_key, m.outcome, m.reason, m.last_seen, m.traceparent, m.tracestate, m.payload`

// scanMessages reads rows of messageColumns.
func scanMessages(rows pgx.Rows) ([]messaging.Message, error) {
	messages, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (messaging.Message, error) { return scanMessage(row) })
	if err != nil {
		return nil, fmt.Errorf("reading outbox rows: %w", err)
	}
	return messages, nil
}

// scanMessage reads messageColumns and what follows them.
func scanMessage(row pgx.CollectableRow, more ...any) (messaging.Message, error) {
	var (
		m                 messaging.Message
		stepKey, lastSeen *uuid.UUID
	)
	err := row.Scan(append([]any{
		&m.ID, &m.AggregateID, &m.AggregateSeq, &m.Subject, &m.Type, &m.Source, &m.IdempotencyKey, &m.StepName,
		&stepKey, &m.Outcome, &m.Reason, &lastSeen, &m.TraceParent, &m.TraceState, &m.Payload,
	}, more...)...)
	if err != nil {
		return m, fmt.Errorf("scanning an outbox row: %w", err)
	}
	if stepKey != nil {
		m.StepKey = *stepKey
	}
	if lastSeen != nil {
		m.LastSeen = *lastSeen
	}
	m.CreatedAt = keys.MessageTime(m.ID)
	m.Kind = messaging.KindOf(m.Subject)
	return m, nil
}

// chainsOf groups messages by aggregate: events by sequence, then the others by their id.
func chainsOf(messages []messaging.Message) []Chain {
	slices.SortStableFunc(messages, func(a, b messaging.Message) int {
		return cmp.Or(
			slices.Compare(a.AggregateID[:], b.AggregateID[:]),
			cmp.Compare(rank(a.Kind), rank(b.Kind)),
			cmp.Compare(a.AggregateSeq, b.AggregateSeq),
			slices.Compare(a.ID[:], b.ID[:]))
	})
	var chains []Chain
	for from := 0; from < len(messages); {
		to := from + 1
		for to < len(messages) && messages[to].AggregateID == messages[from].AggregateID {
			to++
		}
		chains = append(chains, Chain{Messages: messages[from:to], Proven: true})
		from = to
	}
	return chains
}

func rank(k messaging.Kind) int {
	if k == messaging.Event {
		return 0
	}
	return 1
}
