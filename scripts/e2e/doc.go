// Package e2e tests the whole system from outside: real processes, real Postgres, real JetStream, through the public doors
// only. Each test starts a system of its own, with its own data folder and ports.
package e2e
