// Package shipping holds what the shipping service knows of shipments: what the carrier says about them, and what each step does
// about it. It decides and does nothing: no call, no database, no clock.
package shipping
