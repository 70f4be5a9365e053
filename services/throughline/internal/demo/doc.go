// Package demo plays orders on a fresh system, through its public doors only: the gateway's HTTP interface, the events on
// JetStream, and the ledgers of both simulators. It prints what happened to each order, and checks that orders, money and
// parcels agree.
package demo
