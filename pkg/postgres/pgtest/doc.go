// Package pgtest gives each test a Postgres database of its own, on a real server.
//
//	pool := pgtest.New(t, outbox.Migrations())
//
// The first call in a test binary starts a throw-away cluster (package pgcluster) under the system's temporary folder,
// without fsync; it and its files go when the test binary ends, however it ends. No TestMain is needed. When the
// environment has THROUGHLINE_TEST_CLUSTER_URL, a superuser's connection URL, that server is used instead. The program
// cmd/pgtest-run sets it for a command, so that all packages of one "go test ./..." share one cluster:
//
//	go run ./postgres/pgtest/cmd/pgtest-run -- go test ./...
//
// Each distinct list of migrations is run once per cluster, into a template; a test's database is a copy of that, made in
// some ten milliseconds, and is dropped at the end of the test. A machine without Postgres gets it installed where
// that is possible; else the test fails and says what to type. It is never skipped.
package pgtest
