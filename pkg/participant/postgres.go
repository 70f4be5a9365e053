package participant

import (
	"context"
	"embed"
	"errors"
	"fmt"
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

// Migrations creates the table of this package.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "participant", FS: migrations, Dir: "migrations"}
}

const recordColumns = `order_id, step_name, kind, state, undone_at, command_id, command_type, payload, idempotency_key, last_seen,
       traceparent, tracestate, due_at, lease_owner, token, attempts, first_attempt_at, last_error, reason, reference, result_type,
       result, reply_id, updated_at`

func scanRecord(row pgx.CollectableRow) (Record, error) { return scanRecordAnd(row) }

// scanRecordAnd scans a record and what was selected after it.
func scanRecordAnd(row pgx.CollectableRow, more ...any) (Record, error) {
	var (
		r                          Record
		command, lastSeen, replyID *uuid.UUID
	)
	err := row.Scan(append([]any{
		&r.OrderID, &r.StepName, &r.Kind, &r.State, &r.UndoneAt, &command, &r.CommandType, &r.Payload, &r.IdempotencyKey,
		&lastSeen, &r.Trace.TraceParent, &r.Trace.TraceState, &r.DueAt, &r.LeaseOwner, &r.Token, &r.Attempts, &r.FirstAttemptAt,
		&r.LastError, &r.Reason, &r.Reference, &r.ResultType, &r.Result, &replyID, &r.UpdatedAt,
	}, more...)...)
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

func queueLoad(b *pgx.Batch, orders []uuid.UUID, into map[Key]*Record) {
	b.Queue(selectSteps, orders).Query(func(rows pgx.Rows) error {
		records, err := pgx.CollectRows(rows, scanRecord)
		for i := range records {
			into[records[i].Key()] = &records[i]
		}
		return err
	})
}

// database is the [Store] on Postgres.
type database struct {
	pool      *pgxpool.Pool
	projector Projector
	// consumer is the inbox consumer under which commands are marked.
	consumer string
}

// OnPostgres gives the [Store] on Postgres, for those who put something before it. consumer is the inbox consumer under which
// commands are marked.
func OnPostgres(pool *pgxpool.Pool, projector Projector, consumer string) Store {
	return database{pool, projector, consumer}
}

func (d database) Load(ctx context.Context, orders, messages []uuid.UUID) (Loaded, error) {
	l := Loaded{Steps: make(map[Key]*Record), Rows: make(map[uuid.UUID]*Row), Seen: make(map[uuid.UUID]bool)}
	var b pgx.Batch
	inbox.QueueRepeats(&b, d.consumer, messages, l.Seen)
	queueLoad(&b, orders, l.Steps)
	d.projector.QueueLoad(&b, orders, l.Rows)
	b.Queue(`SELECT now()`).QueryRow(func(row pgx.Row) error { return row.Scan(&l.Now) })
	if err := d.pool.SendBatch(ctx, &b).Close(); err != nil {
		return Loaded{}, fmt.Errorf("reading steps: %w", err)
	}
	return l, nil
}

func (d database) TakeIn(ctx context.Context, in *Intake) error {
	var b pgx.Batch
	if err := d.queueStore(&b, in.Changes); err != nil {
		return err
	}
	queueIntents(&b, in)
	inbox.QueueMarks(&b, d.consumer, in.Marks)
	if err := outbox.Queue(&b, in.Chains); err != nil {
		return err
	}
	return postgres.SendAtomic(ctx, d.pool, &b)
}

func (d database) queueStore(b *pgx.Batch, changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	if err := d.projector.QueueStore(b, changes); err != nil {
		return fmt.Errorf("storing business rows: %w", err)
	}
	return nil
}

func (d database) Claim(ctx context.Context, owner string, lease time.Duration, steps []string, limit int, fresh bool) (Claimed, error) {
	var c Claimed
	found, err := d.pool.Query(ctx, claimSteps, limit, owner, lease, steps, fresh)
	if err != nil {
		return c, fmt.Errorf("claiming steps: %w", err)
	}
	if c.Steps, err = pgx.CollectRows(found, scanRecord); err != nil {
		return Claimed{}, fmt.Errorf("claiming steps: %w", err)
	}
	if len(c.Steps) == 0 {
		return c, nil
	}
	orders := make([]uuid.UUID, len(c.Steps))
	for i := range c.Steps {
		orders[i] = c.Steps[i].OrderID
		c.Now = c.Steps[i].UpdatedAt // the time of the claim
	}
	c.Rows = make(map[uuid.UUID]*Row)
	var b pgx.Batch
	d.projector.QueueLoad(&b, orders, c.Rows)
	if err := d.pool.SendBatch(ctx, &b).Close(); err != nil {
		// The steps stay claimed, and come back when their lease ends.
		return Claimed{}, fmt.Errorf("reading business rows of claimed steps: %w", err)
	}
	return c, nil
}

func (d database) InFlight(ctx context.Context, order uuid.UUID, actions []string, settle time.Duration) (bool, error) {
	var n int
	if err := d.pool.QueryRow(ctx, fenceActions, order, actions, settle).Scan(&n); err != nil {
		return false, fmt.Errorf("looking for actions in flight: %w", err)
	}
	return n > 0, nil
}

func (d database) Record(ctx context.Context, f *Findings) error {
	var b pgx.Batch
	if err := d.queueStore(&b, f.Changes); err != nil {
		return err
	}
	queueEnds(&b, f.Ends)
	if len(f.Undone) > 0 {
		orders, actions := make([]uuid.UUID, len(f.Undone)), make([]string, len(f.Undone))
		for i, k := range f.Undone {
			orders[i], actions[i] = k.OrderID, k.StepName
		}
		b.Queue(settleActions, orders, actions)
	}
	queueFollow(&b, f.Follow)
	if err := outbox.Queue(&b, f.Chains); err != nil {
		return err
	}
	return postgres.SendAtomic(ctx, d.pool, &b)
}

func (d database) Reload(ctx context.Context, orders []uuid.UUID) (map[uuid.UUID]*Row, map[Key]int64, error) {
	rows, tokens := make(map[uuid.UUID]*Row), make(map[Key]int64)
	var b pgx.Batch
	d.projector.QueueLoad(&b, orders, rows)
	b.Queue(selectTokens, orders).Query(func(found pgx.Rows) error {
		for found.Next() {
			var (
				k     Key
				token int64
			)
			if err := found.Scan(&k.OrderID, &k.StepName, &token); err != nil {
				return fmt.Errorf("scanning a token: %w", err)
			}
			tokens[k] = token
		}
		return found.Err()
	})
	if err := d.pool.SendBatch(ctx, &b).Close(); err != nil {
		return nil, nil, fmt.Errorf("reading business rows: %w", err)
	}
	return rows, tokens, nil
}

func (d database) Find(ctx context.Context, order uuid.UUID, step string) (Record, bool, error) {
	return Find(ctx, d.pool, order, step)
}
