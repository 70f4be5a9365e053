// Package pgcluster runs a private Postgres cluster as a child process: for development ("make up"), demonstrations
// and tests. It is not how Postgres is run in production.
//
// [Start] finds the programs of Postgres 15 or newer (or installs them, when asked to and able to), creates the
// cluster in a folder of its own when that is new, starts the server and waits until it answers. What it promises:
//
//   - The server listens on 127.0.0.1 and on a unix socket, nowhere else.
//   - It never runs as root: a root process runs it as the owner of the existing data, else as user postgres, else as
//     another unprivileged user. Where that user cannot enter the folder, the data lives under the system's temporary
//     folder instead, and the file "location" in the folder says where; the next start finds it there.
//   - Connections need a password (SCRAM) unless [Config.Trust] is set. The superuser's password is generated and kept
//     in a file that only the owner of the folder may read.
//   - One process holds a folder at a time; a second [Start] gets [ErrRunning]. What a killed process left behind is
//     stopped or cleared away by the next one, and the server then recovers from its write-ahead log.
//   - On Linux the server is told to shut down when the process that started it dies, however it dies. Elsewhere the
//     next [Start] in the folder stops what was left.
//
// The package must not import anything of this module: pkg/postgres and its tests build on it.
package pgcluster
