// Package chaos runs the whole system, as processes and several of each service, through an hour of bad luck: outside systems that
// answer late, wrongly or not at all, services that are killed and frozen at random, clients that give up and repeat, and clients that
// cancel. When that is over, everything must come to rest, and money and parcels must agree with the orders to the cent.
//
// It is a test of this package: a short form beside all others, and the long form by
//
//	make chaos ORDERS=10000 SEED=7
//
// The report counts each fault that was injected, by kind. A kind that was not met is a failure: then the run has proved less than it
// says. The seed decides what is tried and in which sequence; what meets what is up to the machine.
package chaos
