package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SendAtomic runs the statements of a batch in one implicit transaction: all are committed, or none is. They go to the
// server in one message sequence with one synchronization point, so the whole takes one round trip (two when a
// connection sees one of the statements for the first time and prepares it). BEGIN and COMMIT are not needed and must
// not be in the batch, nor may DDL that a later statement of the batch depends on: all are prepared before the first
// runs.
//
// A decision in the middle is made in SQL: let a statement call throughline_require, which raises [CodeRequire], where
// it must have changed or found something. A setting for this transaction is made by set_config(…, true).
//
// Result functions queued with Query, QueryRow or Exec are called in order as results arrive. They run before the
// commit is confirmed: act on what they collect only once SendAtomic has returned nil. They cannot stop the batch: when
// one returns an error (pgx.ErrNoRows, say), the rest are not called, and if the batch was committed the error wraps
// [ErrCommitted].
//
// Errors, by what is known:
//
//   - nil: committed.
//   - wraps [ErrCommitted]: committed, but a result function failed.
//   - wraps [ErrCommitUnknown]: the connection failed before the answer came; find out by reading.
//   - any other: nothing was committed. It names the statement that failed, with [Classify] for the class; an error
//     that only the commit can find, as of a deferred constraint, names none.
//
// Nothing is ever repeated.
func SendAtomic(ctx context.Context, pool *pgxpool.Pool, b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Release() // closes a connection that is not idle
	if err := usable(ctx, conn); err != nil {
		return fmt.Errorf("sending batch: %w", err)
	}
	r := &results{BatchResults: conn.SendBatch(ctx, b), types: conn.Conn().TypeMap()}
	var resultErr error
	for i, q := range b.QueuedQueries {
		err := r.next(q, resultErr == nil)
		switch {
		case r.err != nil:
			_ = r.Close() // says the same again
			return failed(b, i, r.err)
		case err != nil:
			resultErr = fmt.Errorf("reading the result of statement %d (%s): %w", i+1, abridged(q.SQL), err)
		}
	}
	if err := r.Close(); err != nil {
		return fmt.Errorf("committing batch: %w", outcome(err))
	}
	if conn.Conn().PgConn().TxStatus() != 'I' {
		return fmt.Errorf("sending batch: %w: it contains transaction control", ErrCommitUnknown)
	}
	if resultErr != nil {
		return fmt.Errorf("%w: %w", ErrCommitted, resultErr)
	}
	return nil
}

// failed describes an error that came in place of the result of statement i. The server handles messages in order, so
// one that it sent there precedes any commit, also if it ends the session.
func failed(b *pgx.Batch, i int, err error) error {
	if pre, ok := errors.AsType[pgx.ErrPreprocessingBatch](err); ok {
		return fmt.Errorf("sending batch: statement (%s): %w", abridged(pre.SQL()), err)
	}
	if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
		err = outcome(err)
	}
	return fmt.Errorf("sending batch: statement %d of %d (%s): %w", i+1, b.Len(), abridged(b.QueuedQueries[i].SQL), err)
}

// abridged returns the beginning of a statement on one line, for errors.
func abridged(sql string) string {
	const longest = 80
	s := strings.Join(strings.Fields(sql), " ")
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}

// results stands between result functions and pgx to keep two kinds of error apart: of the server or the connection,
// which mean that the batch failed, and of reading a result, which do not. In pgx a failed Scan takes the place of
// whatever the server says later.
type results struct {
	pgx.BatchResults
	types *pgtype.Map
	rows  pgx.Rows // of the statement at hand
	err   error    // of the server or the connection
}

// next reads the next result, through the statement's result function if that is wanted.
func (r *results) next(q *pgx.QueuedQuery, callFn bool) error {
	r.rows = nil
	if q.Fn == nil || !callFn {
		_, err := r.Exec()
		return err
	}
	err := q.Fn(r)
	if r.rows != nil {
		r.rows.Close() // a function may leave rows unread
		r.err = r.rows.Err()
	}
	return err
}

func (r *results) Exec() (pgconn.CommandTag, error) {
	tag, err := r.BatchResults.Exec()
	r.err = err
	return tag, err
}

func (r *results) Query() (pgx.Rows, error) {
	rows, err := r.BatchResults.Query()
	r.rows = rows
	return &resultRows{Rows: rows, types: r.types}, err
}

func (r *results) QueryRow() pgx.Row {
	rows, _ := r.Query()
	return resultRow{rows}
}

// resultRows are rows whose failing Scan leaves the batch readable.
type resultRows struct {
	pgx.Rows
	types *pgtype.Map
}

func (r *resultRows) Scan(dest ...any) error {
	if len(dest) == 1 {
		if scanner, ok := dest[0].(pgx.RowScanner); ok {
			return scanner.ScanRow(r)
		}
	}
	return pgx.ScanRow(r.types, r.FieldDescriptions(), r.RawValues(), dest...)
}

// resultRow is the first of rows, as pgx's own Row.
type resultRow struct{ rows pgx.Rows }

func (r resultRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
