// Package carrier is the client of the carrier.
//
// The carrier does not deduplicate, so one call must be one request. The client sends no Idempotency-Key header: with one,
// net/http would send a POST again by itself when a kept-alive connection dies before the answer. Without one it does not.
//
// Every shipment that comes back is checked to belong to the order and the reference that were asked about; one that does not is
// [ErrNotOurs], never a success.
//
// An error is a no only where [Refusal] or [Conflict] say so. Everything else leaves open what happened.
package carrier
