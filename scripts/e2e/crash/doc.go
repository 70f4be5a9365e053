// Package crash kills the real programs at every edge, and checks what becomes of the orders: see README.md, which its test writes.
package crash
