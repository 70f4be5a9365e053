// Package stack runs the whole system on one machine: a private Postgres cluster, a JetStream server in this process, the
// simulators of the payment provider and the carrier, and the services, in this process or each in one of its own.
//
// Everything listens on the loopback interface. State lives in one folder, which one stack holds at a time; a later start
// continues with it. The parts start in the order of their needs and stop in reverse, so that no service loses what it
// depends on while it finishes its work.
package stack
