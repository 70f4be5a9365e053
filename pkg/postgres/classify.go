package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
)

// CodeRequire is the SQLSTATE that the SQL function throughline_require raises when a compare-and-set found another
// version than it expected.
const CodeRequire = "TL001"

// codeReadOnly is what a statement that writes gets in a read-only transaction.
const codeReadOnly = "25006"

// Class says what an error of the database asks of the caller.
type Class int

const (
	// Other is every error that none of the rest describes: a mistake in a statement, an error that is not of the
	// database, or none.
	Other Class = iota

	// Conflict means that another transaction was first: a failed compare-and-set (throughline_require), a
	// serialization failure, a deadlock. Read again and decide again.
	Conflict

	// LockTimeout means that a lock was not granted in time: another transaction works on the same rows right now.
	LockTimeout

	// Unavailable means that the database cannot be used now, whatever the statement: it is down, starting, stopping,
	// out of resources, or a read-only standby. The fault is not the message's; wait and try again.
	Unavailable

	// Invalid means that the data is at fault: the same statement with the same data fails again. Unique violations
	// are among these; where one is expected, ask [IsUniqueViolation] first.
	Invalid
)

// String returns the class's name in lower case.
func (c Class) String() string {
	switch c {
	case Conflict:
		return "conflict"
	case LockTimeout:
		return "lock timeout"
	case Unavailable:
		return "unavailable"
	case Invalid:
		return "invalid"
	default:
		return "other"
	}
}

// Classify decides by SQLSTATE, and for errors of the connection by their type, never by text. An error that wraps
// [ErrCommitUnknown] has the class of what broke the connection; look for it first. Give it errors of database calls
// only: a refused connection of another kind would look like the database's.
func Classify(err error) Class {
	if err == nil {
		return Other
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok && !errors.Is(err, context.Canceled) {
		return Unavailable // whatever the server's reason is, there is no session
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return classifyCode(pgErr.Code)
	}
	if isConnectionError(err) {
		return Unavailable
	}
	return Other
}

func classifyCode(code string) Class {
	switch code {
	case CodeRequire, "40001", "40P01": // serialization failure, deadlock
		return Conflict
	case "55P03": // lock not available
		return LockTimeout
	case codeReadOnly: // read-only transaction: the session is on a standby, or on a primary that was demoted
		return Unavailable
	case "57014": // canceled: by statement_timeout, or because the caller's context ended
		return Unavailable
	case "25P03", "57P01", "57P02", "57P03", "57P04", "57P05": // the session was ended, or not begun, by the server
		return Unavailable
	}
	if len(code) < 2 {
		return Other
	}
	switch code[:2] {
	case "08", "53", "58": // connection, resources, system errors such as a failing disk
		return Unavailable
	case "22", "23": // data exception, integrity constraint
		return Invalid
	}
	return Other
}

// isConnectionError recognizes failures to reach the server or to hear from it.
func isConnectionError(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false // the caller stopped
	}
	if errors.Is(err, errNoConnection) || pgconn.Timeout(err) {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok && !isContextError(err) {
		return true
	}
	return slices.ContainsFunc(
		[]error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, puddle.ErrClosedPool, pgconn.ErrConnClosed},
		func(target error) bool { return errors.Is(err, target) })
}

// isContextError reports whether the caller's own context ended. Its deadline also satisfies [net.Error].
func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// IsUniqueViolation reports whether err is a violation of one of the unique constraints or indexes named, or of any
// when none is named.
func IsUniqueViolation(err error, constraint ...string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "23505" {
		return false
	}
	return len(constraint) == 0 || slices.Contains(constraint, pgErr.ConstraintName)
}

// IsNoRows reports whether err says that a query for one row found none.
func IsNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
