package postgres

import "errors"

var (
	// ErrCommitUnknown says that the connection failed after a commit was sent and before its answer came: the
	// transaction is committed or rolled back, and only reading the database tells which. Never repeat the transaction
	// on this error unless it is harmless when repeated.
	ErrCommitUnknown = errors.New("outcome of commit unknown")

	// ErrCommitted says that a batch is committed although [SendAtomic] returns an error: a result function of the
	// batch failed, and by then the statements cannot be undone.
	ErrCommitted = errors.New("batch is committed")

	// ErrLeaseLost is the cause of the end of a context given by [Lease.Run], when the lease could not be renewed in time.
	ErrLeaseLost = errors.New("lease lost")

	// ErrServerTooOld says that the server's version is below [MinServerVersion].
	ErrServerTooOld = errors.New("Postgres server is too old") //nolint:staticcheck // a proper name

	// errReadOnly is why a session was not kept.
	errReadOnly = errors.New("the server takes no writes")
)
