package main

import (
	"strings"
)

// expiredHeader says that the answer of a key is no longer kept.
const expiredHeader = "Idempotency-Key-Expired"

const (
	exampleKey   = "4f6f1a0e-4a55-4b0f-9a3b-0a8b4f1d2c11"
	exampleID    = "bc765b28-bc4d-58fd-a83e-d135647f37a8"
	exampleOrder = `{"order_id": "` + exampleID + `", "status": "PENDING", "currency": "EUR", "total": 2500,
		"lines": [{"sku": "BOOK-1", "quantity": 2, "unit_price": 1250}],
		"ship_to": {"name": "A. Buyer", "line1": "1 High St", "line2": "", "city": "Berlin", "region": "", "postal_code": "10115", "country": "DE"},
		"payment_method": "pm_card_visa", "note": "", "metadata": {}, "failure_reason": "", "idempotency_key": "` + exampleKey + `",
		"created_at": "2026-11-29T12:00:00.000001Z", "updated_at": "2026-11-29T12:00:00.000001Z"}`
)

// problems are all reasons for which the service refuses or fails over HTTP, and how each shows. A test holds them against what the services
// have.
var problems = []struct {
	reason string
	status int
	title  string
	detail string // an example
}{
	{"KEY_MISSING", 400, "Idempotency key missing", "the Idempotency-Key header is missing"},
	{"KEY_REPEATED", 400, "Idempotency key repeated", "the Idempotency-Key header must occur once"},
	{"KEY_EMPTY", 400, "Idempotency key empty", "the idempotency key is empty"},
	{"KEY_MALFORMED", 400, "Idempotency key malformed", "the idempotency key is neither a bare key nor a valid quoted string"},
	{"KEY_TOO_LONG", 400, "Idempotency key too long", "the idempotency key is longer than 255 bytes"},
	{"KEY_NOT_PRINTABLE", 400, "Idempotency key not printable ASCII", "the idempotency key may hold printable ASCII characters only"},
	{"REQUEST_MALFORMED", 400, "Request malformed", "the body cannot be read"},
	{"REQUEST_INVALID", 400, "Request invalid", "the request is invalid"},
	{"UNAUTHENTICATED", 401, "Not authenticated", "the API key is not known"},
	{"FORBIDDEN", 403, "Not allowed", "the API key lacks the scope orders:write"},
	{"ORDER_NOT_FOUND", 404, "No such order", "there is no such order"},
	{"ROUTE_NOT_FOUND", 404, "No such route", "nothing is served at this path"},
	{"METHOD_NOT_ALLOWED", 405, "Method not allowed", "this path has GET, HEAD, POST"},
	{"KEY_IN_PROGRESS", 409, "Request with this idempotency key in progress", "a request with this idempotency key is being executed"},
	{"CANCEL_TOO_LATE", 409, "Too late to cancel", "the order can no longer be cancelled"},
	{"PAYLOAD_TOO_LARGE", 413, "Payload too large", "a body may have 262144 bytes"},
	{"UNSUPPORTED_MEDIA_TYPE", 415, "Unsupported media type", "the Content-Type must be application/json"},
	{"KEY_MISMATCH", 422, "Idempotency key used for another request", "the idempotency key was used for another request"},
	{"RATE_LIMITED", 429, "Too many requests", "the client calls too often"},
	{"HEADERS_TOO_LARGE", 431, "Headers too large", "the headers may have 32768 bytes"},
	{"INTERNAL", 500, "Internal error", "internal error"},
	{"NOT_IMPLEMENTED", 501, "Not implemented", "the transfer encoding is not known"},
	{"UNAVAILABLE", 503, "Service unavailable", "the order service cannot be reached; try again with the same key"},
	{"DEADLINE", 504, "Deadline exceeded", "the order service did not answer in time; try again with the same key"},
}

const problemBase = "https://throughline.dev/problems/"

func problemType(reason string) string {
	return problemBase + strings.ReplaceAll(strings.ToLower(reason), "_", "-")
}

func reasons() []any {
	all := make([]any, len(problems))
	for i, p := range problems {
		all[i] = p.reason
	}
	return all
}

func problemTypes() []any {
	all := make([]any, 0, len(problems)+1)
	for _, p := range problems {
		all = append(all, problemType(p.reason))
	}
	return append(all, "about:blank")
}

// exampleProblem is the body that the service answers for a reason.
func exampleProblem(reason string) object {
	for _, p := range problems {
		if p.reason != reason {
			continue
		}
		o := object{"type": problemType(reason), "title": p.title, "status": p.status, "detail": p.detail, "reason": reason}
		switch reason {
		case "KEY_MISMATCH":
			o["errors"] = []any{object{"path": "lines[0].quantity", "detail": "differs from the request that this key was used for"}}
		case "REQUEST_INVALID":
			o["errors"] = []any{object{"path": "lines[0].quantity", "detail": "must be from 1 to 1000000"}}
		}
		return o
	}
	return nil
}
