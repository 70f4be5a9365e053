// Package journal keeps a simulator's ledger on disk: an append-only file of
// JSON lines, read back from the first line at start.
//
// What it promises: a line whose Wait has returned nil has been handed to the
// operating system with write(2), so it survives the death of the process
// (kill -9 included). Lines are written in the order of Append. One line is
// all or nothing: a line torn by a crash is cut off at the next Open, so what
// must happen together belongs in one line.
//
// What it does not promise: survival of a power cut. The file is flushed to
// the disk every SyncInterval and at Close, never per line; the simulators
// stand for somebody else's durable system, and a flush per request would make
// them the slowest part of every benchmark.
//
// Concurrent writers share one write(2): the first to Wait writes everything
// that has been appended so far, the others find their lines written.
package journal
