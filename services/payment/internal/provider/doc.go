// Package provider is the client of the payment provider, through stripe-go.
//
// It promises that one call is one request: neither the SDK nor net/http sends it again by itself. Every write carries the key
// that it is given. Every intent that comes back is checked to belong to the order that was asked about, with its amount and
// currency; one that does not is [ErrNotOurs], never a success.
//
// An error is a business no only where [Refusal] says so. Everything else, timeouts, cut connections, 409, 429, 5xx, bodies that
// are no JSON, leaves open what happened.
package provider
