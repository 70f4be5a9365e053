// Package grpcapi is the public OrderService. There is one implementation, behind gRPC and behind HTTP alike, so that
// the same rules hold for both: who calls (Admit), the idempotency key (Admit), what is passed on and what is answered
// (Server).
//
// It holds no state and decides nothing about orders. What it adds to a call is the client's name and the parsed key, in
// metadata that is made from scratch; nothing that a caller sends becomes internal metadata.
//
// # Delivery
//
// A call is sent to the order service once, and again, with the same key, only while the order service is unavailable,
// for a fraction of a second. Unavailable does not mean that nothing was done: repeating is right because
// every method either reads or carries the key. A caller that goes away does not cancel a create or a cancel that is under
// way: its effect may already be decided, and the answer is then there for the caller's retry.
package grpcapi
