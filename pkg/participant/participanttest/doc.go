// Package participanttest has the suite that every participant.Store passes, and a store in memory for simulations.
package participanttest
