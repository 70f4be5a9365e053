// Package storefront is the Go client of a shop that places orders. It speaks the public HTTP API with the standard
// library alone.
//
// Mint a key for each order, keep it with the shopping cart, and place the order with it as often as it takes:
//
//	c, err := storefront.New("https://orders.example.com", apiKey)
//	...
//	key := storefront.NewKey() // stored before the first call
//	placed, err := c.PlaceOrder(ctx, key, order)
//	...
//	order, err := c.WaitFinal(ctx, placed.Order.ID)
//
// # What a key promises
//
// One key is one order, for ever. PlaceOrder repeats the call with the same key whenever it does not know what came of it (no
// connection, no answer, half an answer, 409 while another call with the key runs, 429, 5xx), until an answer is definite or
// the context ends. Then the error is ErrUnresolved: the order may exist. Call again with the same key and
// the same order, in this process or in another, today or tomorrow, and learn which. Never mint a new key for an order
// that is unresolved: that is how one cart becomes two orders.
//
// A definite refusal is an *Error. It says by its Reason what to do: a request that is invalid used up no key, and may be
// corrected and sent again with it; KEY_MISMATCH means that the key belongs to an order with other content.
//
// A service keeps the first answer to a key for a time, 24 hours unless its OpenAPI document says otherwise. After that a repeat answers with the
// order as it is then: Answered.KeyExpired. It is still the one order. LookUpKey tells what a key was used for.
//
// # Limits
//
// A key has 1 to 255 bytes of printable ASCII. A request has at most 256 KiB of JSON, sent as it is: the service takes no content encoding, and
// compressed answers are not asked for. The limits of lines, texts and amounts are in the service's OpenAPI document; beyond
// them the answer is an *Error that names the field.
//
// # How calls are made
//
// Each attempt has a time limit of its own and is made once: net/http would by itself send a POST with an
// Idempotency-Key again on a connection that broke, out of sight of this package's pauses; it is kept from it.
// Redirects are not followed, since they would take the API key elsewhere. Pauses between attempts grow, are random, and are at
// least what the server asked for by Retry-After.
//
// A Client is safe for concurrent use.
package storefront
