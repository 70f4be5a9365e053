// Package grpcapi serves OrderService to the gateway.
//
// # Create
//
// A request that is refused (REQUEST_INVALID) has no effect and leaves its key unused. An order is placed together with its answer;
// the answer's JSON goes out in the header entry http-body-bin. A repeat of the same request answers the same bytes and is
// marked idempotency-replayed; a repeat with another request is KEY_MISMATCH and names the members that differ, not their
// values. When the answer's record has expired, a repeat answers with the order as it is now, marked idempotency-key-expired: the order
// itself remembers its key and its request for ever.
//
// # Cancel
//
// A cancel that is accepted is stored under its key together with its effect, and replayed. So is one of an order that is being
// undone already. A refusal (CANCEL_TOO_LATE, ORDER_NOT_FOUND) stores nothing: asked again, it is decided again, which can
// double nothing. The same key with another order or another reason is KEY_MISMATCH, for ever; after the answer's record has expired a
// repeat answers with the order as it is now, as for Create.
//
// # Wait
//
// GetOrder may wait for the order's end, at most MaxWait. It never fails because the time is over: it answers with the order as it is.
package grpcapi
