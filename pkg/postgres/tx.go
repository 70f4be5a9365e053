package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// rollbackTimeout bounds a rollback, which is one round trip. Where it fails the connection is closed, and the server
// rolls back by itself.
const rollbackTimeout = 2 * time.Second

// errNoConnection marks errors of the time before a connection was there. A deadline that ends then says something
// about the database; one that ends later may only be short.
var errNoConnection = errors.New("no connection")

// InTx runs fn in a transaction and commits when it returns nil; otherwise, and when fn panics, it rolls back. fn must
// neither commit nor roll back itself, and must not use tx after it has returned.
//
// Nothing is ever repeated. When the connection fails during the commit the error wraps [ErrCommitUnknown]; every other
// error means that nothing has been committed.
func InTx(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, fn func(pgx.Tx) error) error {
	conn, err := acquire(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return fmt.Errorf("beginning transaction: %w", err)
	}
	defer func() {
		// After a commit this does nothing. The caller's context may be what ended, and locks are not to wait for that.
		rollbackCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(rollbackCtx) // on failure the connection is closed, which rolls back too
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := commit(ctx, conn, tx); err != nil {
		return fmt.Errorf("committing transaction: %w", err)
	}
	return nil
}

func commit(ctx context.Context, conn *pgxpool.Conn, tx pgx.Tx) error {
	// What keeps the commit from being sent is checked here, where it is certain: when the connection breaks while pgx
	// waits for the answer, it may report the same as for a connection that was closed before.
	if err := usable(ctx, conn); err != nil {
		return err
	}
	return outcome(tx.Commit(ctx))
}

// usable returns why nothing can be sent on conn now, or nil.
func usable(ctx context.Context, conn *pgxpool.Conn) error {
	switch pg := conn.Conn().PgConn(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case pg.IsClosed():
		return pgconn.ErrConnClosed
	case pg.IsBusy():
		return errors.New("the result of an earlier query has not been closed")
	}
	return nil
}

func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquiring connection: %w: %w", errNoConnection, err)
	}
	return conn, nil
}

// outcome adds [ErrCommitUnknown] to an error of a commit unless it proves that nothing was committed.
func outcome(err error) error {
	if err == nil || rolledBack(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}

// rolledBack reports whether an error of a commit proves that nothing was committed.
func rolledBack(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		// An ERROR is the answer to the commit. FATAL and PANIC end the session, and can come after the commit was
		// made: a server that is told to stop while it waits for a standby says so.
		return pgErr.SeverityUnlocalized == "ERROR"
	}
	// SafeToRetry means that nothing was sent, but for this error pgx says so wrongly; see commit.
	if pgconn.SafeToRetry(err) && !errors.Is(err, pgconn.ErrConnClosed) {
		return true
	}
	return errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed)
}
