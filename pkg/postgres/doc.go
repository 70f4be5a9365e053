// Package postgres is how this module talks to Postgres: opening a pool, transactions whose outcome is never guessed,
// batches in one round trip, migrations, errors by class, and a lease that one process holds at a time.
//
// What it promises:
//
//   - [InTx] and [SendAtomic] never repeat anything. Where the connection fails during a commit they return
//     [ErrCommitUnknown], and the caller finds out by reading.
//   - [SendAtomic] commits all statements of a batch together or none, in one round trip.
//   - [Migrate] may run in any number of processes at once, and goes forward only.
//   - Of all processes that share a database, at most one believes that it holds a [Lease], as long as clocks run at the
//     same speed. A process that was frozen may act once more before it notices, so what it writes is fenced by the
//     lease's token.
//
// What it does not: it has no query builder, no retry loop, and hides no pgx type.
//
// The package imports no other package of this module. Subpackages: pgcluster runs a private server, pgtest gives each
// test a database of its own.
package postgres
