// Package carrier is the carrier simulator: an HTTP server that stands for the
// carrier and keeps a ledger of its own. It does not deduplicate: every create
// that it accepts makes a shipment, whatever headers or reference it has.
// A client finds out what it has by reference.
//
//	POST /v1/shipments                  Request → 201 Shipment
//	GET  /v1/shipments/{id}             200 Shipment
//	GET  /v1/shipments?reference=       200 {"shipments":[…]}, oldest first; also ?order_id=
//	GET  /v1/shipments?limit=           200 {"shipments":[…],"next":…}, a page of all, oldest first
//	POST /v1/shipments/{id}/cancel      200 Shipment
//	POST /v1/shipments/{id}/dispatch    200 Shipment
//	     /_control/…                    see services/simulator/control
//
// Bodies are JSON; unknown members of a request are ignored. Errors are
// {"error":{"code":…,"message":…}}:
//
//	400 invalid_request     the body or a parameter cannot be read, or something required is missing
//	401 unauthorized        Config.APIKey is set and was not given as a bearer token
//	404 not_found           no such shipment
//	409 already_dispatched  cancel of a dispatched shipment
//	409 cancelled           dispatch of a cancelled shipment
//	409 lost                cancel or dispatch of a lost shipment
//	422 address_refused     the carrier does not deliver there, and never will
//
// # Addresses refused
//
// By fixed rules, so that real input ends in a refusal: postal_code 00000; a
// country of KP or AQ; a line1 that begins with PO Box (in any case). Nothing
// is created for a refused address.
//
// # Statuses
//
// created → dispatched, created → cancelled; created and dispatched → lost,
// which only happens at the carrier itself (act lose). Cancelling a cancelled
// shipment and dispatching a dispatched one answer 200 and change nothing. A
// lookup by reference is consistent: it finds whatever has been created.
//
// # All shipments
//
// Without reference and order_id shipments are listed page by page: limit of them (1 to
// 1000, default 100), those made after the shipment whose id is after, and with
// created_from (RFC 3339) those made at that moment or later. next is what to
// give as after for the page that follows; without it this was the last, until
// another shipment is made. The list is consistent, and a page costs as much as its
// shipments, however many there are.
//
// # Durability
//
// What was answered survives the death of the process, as at the payment
// simulator: effect and call are one line of an append-only journal, written before
// the answer and flushed to disk four times a second. Shipments are kept in memory until a
// reset, about half a kB each.
//
// # Webhooks
//
// With Config.WebhookURL set, every change is announced as
// {"type":"shipment.created","timestamp":…,"data":Shipment} (created, dispatched, cancelled, lost),
// signed by the Standard Webhooks scheme: headers webhook-id, webhook-timestamp (Unix seconds) and
// webhook-signature, "v1," and the base64 of HMAC-SHA256 over id.timestamp.body.
// The key is what follows whsec_ in the secret, base64-decoded; a secret
// without that prefix is used as it is. Delivery is at least once, in no order.
package carrier
