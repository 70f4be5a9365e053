package main

import "github.com/throughline/throughline/proto/openapi"

// tag groups the operations of the document.
const tag = "orders"

// description is the text at the top of the document.
func description(terms map[string]string) string {
	return `Every call that changes something carries a key that the client mints, in the header Idempotency-Key. ` +
		`A call may be repeated without limit: the same key with the same request answers what the first call answered.

**To never place an order twice**: mint a key for each order (a random UUID will do) and store it before the first call. Repeat the call ` +
		`with the same key and the same body whenever its outcome is not known: no answer, half an answer, 409 with the type ` +
		`key-in-progress, 429, or any 5xx. Wait as long as Retry-After says, or a growing random time. Every other answer is definite. ` +
		`Never mint a new key for an order whose outcome is not known.

**Keys.** A key belongs to the client and to what it was used for: other clients' keys, and keys of cancellations, are different ` +
		`keys. It is never reusable for another request, not even after its stored answer has expired. A request that is refused with 400, ` +
		`401, 403, 413, 415, 429 or 431 does not use up its key, and a 5xx is never stored. ` + terms["key_lifetime_seconds"] + ` ` +
		`GET /v1/idempotency-keys/{key} says until when. Until then a repeat has the same status and the same bytes, and ` +
		`Idempotency-Replayed: true. After that a repeat of the same request answers 200 with the order as it is now, and Idempotency-Key-Expired: true; ` +
		`nothing is placed or cancelled anew. Of identical calls at the same time one is executed; ` + terms["in_progress_wait_millis"] + ` and replay its answer, ` +
		`or get 409 with Retry-After: 1.

**What is compared.** A repeat is compared with the first request member by member; a member that is absent equals its default. White space, the order of ` +
		`members, escapes, and headers do not matter. The 422 names the members that differ.

**Errors** are application/problem+json (RFC 9457) with a stable type. Decide by the type, or by reason, which is its last part.

**JSON.** Amounts are integers in the currency's minor units (ISO 4217): 1250 is 12.50 EUR, 1250 JPY and 1.250 KWD. Requests are read strictly: members that are ` +
		`unknown, repeated or written in another case, fractions and exponents in integers, invalid UTF-8, NUL, a byte-order mark, and anything after the object are refused. ` +
		`Text lengths count Unicode characters.

**Limits.** A body has at most 262144 bytes, uncompressed: a Content-Encoding is refused with 415. Header lines have at most 32768 bytes together. ` +
		`A request must arrive within 15 seconds. ` + terms["client_calls_per_second"] + ` ` + terms["call_timeout_millis"] + `

**Recovery.** After a crash or an outage of ours is over, every key has a definite answer within 30 seconds.

**Settings.** The numbers above that an operator can set are those of the service that serves this document. For programs they are in info.` + openapi.Member + `; -1 is no limit.`
}

// operation is what the protos do not say about one method's HTTP form.
type operation struct {
	summary string
	// key: the call needs the header Idempotency-Key.
	key bool
	// prefer: the call takes the header Prefer.
	prefer bool
	// status and answer describe the success; headers are the response headers that it carries.
	status, answer string
	headers        []string
	// expired: a repeat after the lifetime of the answer has 200.
	expired bool
	// pathExample is a value of the variable in the path.
	pathExample string
	// replyExample is a body of the success.
	replyExample string
	// problems are the error statuses beyond those of every call; special names the ones described on their own.
	problems []string
	special  map[string]string
	// example is a request body.
	example string
}

// everyOperation and everyBody are the error statuses of all calls, and of all calls with a body.
var (
	everyOperation = []string{"400", "401", "403", "429", "431", "500", "503", "504"}
	everyBody      = []string{"413", "415"}
)

var operations = map[string]operation{
	"CreateOrder": {
		summary:      "Place an order",
		key:          true,
		expired:      true,
		status:       "201",
		answer:       "The order was placed, by this call or by an earlier one with the same key.",
		headers:      []string{"Location", "Idempotency-Replayed"},
		replyExample: exampleOrder,
		problems:     []string{"409", "422"},
		special:      map[string]string{"409": "KeyInProgress"},
		example: `{"currency": "EUR", "lines": [{"sku": "BOOK-1", "quantity": 2, "unit_price": 1250}],
			"ship_to": {"name": "A. Buyer", "line1": "1 High St", "city": "Berlin", "postal_code": "10115", "country": "DE"},
			"payment_method": "pm_card_visa", "note": "", "metadata": {}}`,
	},
	"GetOrder": {
		summary:      "Get an order",
		prefer:       true,
		status:       "200",
		answer:       "The order as it is now, or as it is after the wait.",
		headers:      []string{"Preference-Applied"},
		problems:     []string{"404"},
		pathExample:  exampleID,
		replyExample: exampleOrder,
	},
	"GetIdempotencyKey": {
		summary:     "Ask about a key",
		status:      "200",
		answer:      "What is known of the key. Another client's keys are unknown.",
		pathExample: exampleKey,
		replyExample: `{"key": "` + exampleKey + `", "state": "SETTLED", "order_id": "` + exampleID + `",
			"first_seen_at": "2026-11-29T12:00:00.000001Z", "expires_at": "2026-11-30T12:00:00.000001Z", "replays": 3}`,
	},
	"GetTimeline": {
		summary:     "Ask what has happened to an order",
		status:      "200",
		answer:      "What has happened so far, in its sequence. It can be followed at /v1/orders/{order_id}/events as it happens.",
		pathExample: exampleID,
		problems:    []string{"404"},
		replyExample: `{"order_id": "` + exampleID + `", "status": "PENDING", "entries": [
			{"position": 1001, "at": "2026-11-29T12:00:00.000001Z", "event": "order_placed", "reason": ""},
			{"position": 2001, "at": "2026-11-29T12:00:00.200001Z", "event": "payment_authorized", "reason": ""}], "replays": 1, "mismatches": 0}`,
	},
	"ListOrders": {
		summary:      "List orders",
		status:       "200",
		answer:       "One page of the client's orders.",
		replyExample: `{"orders": [` + exampleOrder + `], "next_page_token": ""}`,
	},
	"CancelOrder": {
		summary:     "Cancel an order",
		key:         true,
		expired:     true,
		pathExample: exampleID,
		status:      "200",
		answer:      "The order will be undone, or already is.",
		headers:     []string{"Idempotency-Replayed"},
		problems:    []string{"404", "409", "422"},
		special:     map[string]string{"409": "CancelConflict"},
		example:     `{"reason": "ordered twice"}`,
	},
}

// limits are added to schemas, and to members of schemas, after generation.
var limits = []struct {
	at  string
	add object
}{
	{"CreateOrderRequest", object{
		"description": "The whole order. A repeat of the key is compared with it, member by member.",
		"required":    []any{"currency", "lines", "ship_to", "payment_method"}, "additionalProperties": false,
	}},
	{"CreateOrderRequest.currency", object{"pattern": "^[A-Z]{3}$"}},
	{"CreateOrderRequest.lines", object{"minItems": 1, "maxItems": 200}},
	{"CreateOrderRequest.payment_method", object{"minLength": 1, "maxLength": 255}},
	{"CreateOrderRequest.note", object{"maxLength": 2000}},
	{"CreateOrderRequest.metadata", object{
		"maxProperties": 20, "propertyNames": object{"minLength": 1, "maxLength": 40},
		"additionalProperties": object{"type": "string", "maxLength": 500},
	}},
	{"CancelOrderRequest", object{"additionalProperties": false}},
	{"CancelOrderRequest.reason", object{"maxLength": 500}},
	{"Line", object{"required": []any{"sku", "quantity"}}},
	{"Line.sku", object{"minLength": 1, "maxLength": 64}},
	{"Line.quantity", object{"minimum": 1, "maximum": 1_000_000}},
	{"Line.unit_price", object{"minimum": 0}},
	{"Address", object{"required": []any{"name", "line1", "city", "country"}}},
	{"Address.name", object{"minLength": 1, "maxLength": 200}},
	{"Address.line1", object{"minLength": 1, "maxLength": 200}},
	{"Address.line2", object{"maxLength": 200}},
	{"Address.city", object{"minLength": 1, "maxLength": 200}},
	{"Address.region", object{"maxLength": 200}},
	{"Address.postal_code", object{"maxLength": 20}},
	{"Address.country", object{"pattern": "^[A-Z]{2}$"}},
	// In answers every member is there, with its zero value when it is unset, so that a client sees one shape.
	{"Order", object{"required": []any{
		"order_id", "status", "currency", "total", "lines", "ship_to", "payment_method", "note", "metadata",
		"failure_reason", "idempotency_key", "created_at", "updated_at",
	}}},
	{"Order.order_id", object{"format": "uuid"}},
	{"Order.total", object{"minimum": 0}},
	{"IdempotencyKey", object{"required": []any{"key", "state", "order_id", "replays"}}},
	{"IdempotencyKey.replays", object{"minimum": 0}},
	{"ListOrdersResponse", object{"required": []any{"orders", "next_page_token"}}},
}

// addComponents adds what the operations refer to.
func addComponents(components object) {
	child(components, "schemas")["Problem"] = object{
		"type":        "object",
		"description": "What went wrong (RFC 9457).",
		"required":    []any{"type", "title", "status", "detail"},
		"properties": object{
			"type": object{
				"type": "string", "format": "uri", "enum": problemTypes(),
				"description": "Names the kind of problem, and stays the same: decide by it. about:blank is a problem that has no other name than its status.",
			},
			"title":  object{"type": "string", "description": "The kind of problem, for people."},
			"status": object{"type": "integer", "description": "The HTTP status.", "minimum": 400, "maximum": 599},
			"detail": object{"type": "string", "description": "This problem, for people. It repeats no value of the request."},
			"reason": object{"type": "string", "enum": reasons(), "description": "The last part of the type, as gRPC callers see it."},
			"errors": object{
				"type": "array", "description": "The members that are wrong, or that differ from the first request with the key.",
				"items": object{
					"type": "object", "required": []any{"path", "detail"},
					"properties": object{
						"path":   object{"type": "string", "examples": []any{"lines[0].quantity"}},
						"detail": object{"type": "string"},
					},
				},
			},
		},
	}
	components["securitySchemes"] = object{
		"apiKey": object{"type": "http", "scheme": "bearer", "description": "The client's API key. A client may have several, so that one can be " +
			"exchanged for another without a gap. Placing and cancelling need the scope orders:write, everything else orders:read."},
	}
	components["parameters"] = object{
		"IdempotencyKey": object{
			"name": "Idempotency-Key", "in": "header", "required": true,
			"description": "The key that the client minted for this call, on one header line: 1 to 255 printable ASCII characters. Letter case counts; blanks " +
				"around it do not. It may be sent bare, and then without commas, or as a structured-field string (RFC 9651) in double quotes, with \\\" and \\\\ for " +
				"quotes and backslashes; both are the same key. Parameters behind a quoted key are ignored. It is never reusable for another request.",
			// A quoted key may have twice its length and the quotes.
			"schema":  object{"type": "string", "minLength": 1, "pattern": "^[ -~]+$"},
			"example": exampleKey,
		},
		"Prefer": object{
			"name": "Prefer", "in": "header",
			"description": "wait=N (RFC 7240): wait for the order's end, at most N seconds and at most 20. The answer comes as soon as the status is final, or with the order " +
				"as it is when the time is over. Other preferences are passed over.",
			"schema":  object{"type": "string"},
			"example": "wait=10",
		},
	}
	components["headers"] = object{
		"Location":                headerOf("Where the order is.", object{"type": "string", "format": "uri-reference"}),
		"Idempotency-Replayed":    headerOf("Present, and true, when an earlier call with the same key gave this answer.", object{"type": "string", "enum": []any{"true"}}),
		"Idempotency-Key-Expired": headerOf("True: the key was used before, its first answer is no longer kept, and this is the order as it is now. Nothing was done.", object{"type": "string", "enum": []any{"true"}}),
		"Preference-Applied":      headerOf("Present when the call waited, or would have: wait=N with the seconds that were granted.", object{"type": "string", "pattern": "^wait=[0-9]+$"}),
		"WWW-Authenticate":        headerOf("How to authenticate.", object{"type": "string"}),
		"Retry-After":             headerOf("Seconds to wait before the call is repeated with the same key.", object{"type": "integer", "minimum": 0}),
	}
	components["responses"] = object{
		"Problem400":     problemOf("The request or the key is malformed or invalid. The key is not used up.", "REQUEST_INVALID"),
		"Problem401":     problemOf("There is no valid API key.", "UNAUTHENTICATED", "WWW-Authenticate"),
		"Problem403":     problemOf("The API key lacks the scope for this call.", "FORBIDDEN"),
		"Problem404":     problemOf("The client has no such order.", "ORDER_NOT_FOUND"),
		"Problem413":     problemOf("The body has more than 262144 bytes.", "PAYLOAD_TOO_LARGE"),
		"Problem415":     problemOf("The body is not application/json in UTF-8, or has a content encoding.", "UNSUPPORTED_MEDIA_TYPE"),
		"Problem422":     problemOf("The key was used before with another request. The members that differ are named.", "KEY_MISMATCH"),
		"Problem429":     problemOf("The client calls too often. Nothing was done.", "RATE_LIMITED", "Retry-After"),
		"Problem431":     problemOf("The header lines have more than 32768 bytes.", "HEADERS_TOO_LARGE"),
		"Problem500":     problemOf("A fault of ours. It is safe to repeat the call with the same key.", "INTERNAL"),
		"Problem503":     problemOf("Not available now. It is safe to repeat the call with the same key.", "UNAVAILABLE", "Retry-After"),
		"Problem504":     problemOf("No answer in time; what was asked may have happened. It is safe to repeat the call with the same key.", "DEADLINE"),
		"KeyInProgress":  problemOf("Another call with the same key is still running. Repeat the call after the time that Retry-After gives.", "KEY_IN_PROGRESS", "Retry-After"),
		"CancelConflict": problemOf("It is too late to cancel (cancel-too-late), or another call with the same key is still running (key-in-progress, with Retry-After).", "CANCEL_TOO_LATE", "Retry-After"),
	}
}

func headerOf(description string, schema object) object {
	return object{"description": description, "schema": schema}
}

// problemOf is a response with a problem. The example is what the service answers for that reason.
func problemOf(description, reason string, headers ...string) object {
	r := object{
		"description": description,
		"content": object{"application/problem+json": object{
			"schema": ref("schemas", "Problem"), "example": exampleProblem(reason),
		}},
	}
	for _, h := range headers {
		child(r, "headers")[h] = ref("headers", h)
	}
	return r
}
