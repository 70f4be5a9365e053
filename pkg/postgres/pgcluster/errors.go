//go:build unix

package pgcluster

import "errors"

var (
	// ErrNotFound says that no Postgres programs of a usable version were found. The error that wraps it says what to
	// install, and how.
	ErrNotFound = errors.New("no usable Postgres found")

	// ErrRunning says that another process holds the folder and runs, or is about to run, a cluster in it.
	ErrRunning = errors.New("cluster is already running")

	// ErrPortTaken says that the port asked for is in use.
	ErrPortTaken = errors.New("port is taken")
)
