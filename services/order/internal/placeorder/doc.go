// Package placeorder is the saga of an order: its steps (saga.go), what its changes mean for the order's row and for those who
// listen (projector.go), and how it begins (placer.go).
package placeorder
