// Package control is what the two simulators share: the fault rules, the list
// of calls, the path of one call through both (Engine), and the HTTP control
// interface (Handler). What the interface means is written in
// services/simulator/control, which is its client.
//
// It knows nothing of intents or shipments; a simulator hands in what to do
// with a call and keeps the ledger.
package control
