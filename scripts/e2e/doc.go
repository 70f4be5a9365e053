// Package e2e tests the whole system from outside: real processes, real Postgres, real JetStream, through the public doors
// only. Each test starts a system of its own, with its own data folder and ports.
//
// With THROUGHLINE_SOAK=1 those that are about time take minutes of it: transactions held open, a broker that is away, frozen or
// idle, instances that die again and again. make soak-system runs them.
package e2e
