package main

// tag groups the operations of the document.
const tag = "orders"

const description = `Every call that changes something carries a key that the client mints, in the header Idempotency-Key. ` +
	`A call may be repeated without limit: the same key with the same request answers what the first call answered.

Errors are application/problem+json (RFC 9457) with a stable type. Amounts are integers in the currency's minor units. ` +
	`Requests are read strictly: members that are unknown, repeated or written in another case are refused.`

// operation is what the protos do not say about one method's HTTP form.
type operation struct {
	summary string
	// key: the call needs the header Idempotency-Key.
	key bool
	// status and answer describe the success; headers are the response headers that it carries.
	status, answer string
	headers        []string
	// problems are the error statuses beyond those of every call; special names the ones described on their own.
	problems []string
	special  map[string]string
	// example is a request body.
	example string
}

// everyOperation and everyBody are the error statuses of all calls, and of all calls with a body.
var (
	everyOperation = []string{"400", "401", "431", "500", "503", "504"}
	everyBody      = []string{"413", "415"}
)

var operations = map[string]operation{
	"CreateOrder": {
		summary:  "Place an order",
		key:      true,
		status:   "201",
		answer:   "The order was placed, by this call or by an earlier one with the same key.",
		headers:  []string{"Location", "Idempotency-Replayed"},
		problems: []string{"409", "422"},
		special:  map[string]string{"409": "KeyInProgress"},
		example: `{"currency": "EUR", "lines": [{"sku": "BOOK-1", "quantity": 2, "unit_price": 1250}],
			"ship_to": {"name": "A. Buyer", "line1": "1 High St", "city": "Berlin", "postal_code": "10115", "country": "DE"},
			"payment_method": "pm_card_visa", "note": "", "metadata": {}}`,
	},
	"GetOrder": {
		summary:  "Get an order",
		status:   "200",
		answer:   "The order as it is now.",
		problems: []string{"404"},
	},
	"GetIdempotencyKey": {
		summary: "Ask about a key",
		status:  "200",
		answer:  "What is known of the key. Another client's keys are unknown.",
	},
	"ListOrders": {
		summary: "List orders",
		status:  "200",
		answer:  "One page of the client's orders.",
	},
	"CancelOrder": {
		summary:  "Cancel an order",
		key:      true,
		status:   "200",
		answer:   "The order will be undone, or already is.",
		headers:  []string{"Idempotency-Replayed"},
		problems: []string{"404", "409", "422"},
		special:  map[string]string{"409": "CancelConflict"},
		example:  `{"reason": "ordered twice"}`,
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
	{"CreateOrderRequest.lines", object{"minItems": 1}},
	{"CancelOrderRequest", object{"additionalProperties": false}},
	{"CancelOrderRequest.reason", object{"maxLength": 500}},
	{"Line", object{"required": []any{"sku", "quantity"}}},
	{"Line.sku", object{"minLength": 1, "maxLength": 64}},
	{"Line.quantity", object{"minimum": 1, "maximum": 1_000_000}},
	{"Line.unit_price", object{"minimum": 0}},
	{"Address", object{"required": []any{"name", "line1", "city", "country"}}},
	{"Address.country", object{"pattern": "^[A-Z]{2}$"}},
	// In answers every member is there, with its zero value when it is unset, so that a client sees one shape.
	{"Order", object{"required": []any{
		"order_id", "status", "currency", "total", "lines", "ship_to", "payment_method", "note", "metadata",
		"failure_reason", "idempotency_key", "created_at", "updated_at",
	}}},
	{"Order.order_id", object{"format": "uuid"}},
	{"Order.total", object{"minimum": 0}},
	{"ListOrdersResponse", object{"required": []any{"orders", "next_page_token"}}},
}

// addComponents adds what the operations refer to.
func addComponents(components object) {
	child(components, "schemas")["Problem"] = object{
		"type":        "object",
		"description": "What went wrong (RFC 9457).",
		"required":    []any{"type", "title", "status"},
		"properties": object{
			"type": object{
				"type": "string", "format": "uri",
				"description": "Names the kind of problem, and stays the same: decide by it.",
				"examples":    []any{"https://throughline.dev/problems/key-mismatch"},
			},
			"title":    object{"type": "string", "description": "The kind of problem, for people."},
			"status":   object{"type": "integer", "description": "The HTTP status.", "minimum": 400, "maximum": 599},
			"detail":   object{"type": "string", "description": "This problem, for people."},
			"instance": object{"type": "string", "format": "uri-reference", "description": "This occurrence."},
		},
	}
	components["securitySchemes"] = object{
		"apiKey": object{"type": "http", "scheme": "bearer", "description": "The client's API key."},
	}
	components["parameters"] = object{
		"IdempotencyKey": object{
			"name": "Idempotency-Key", "in": "header", "required": true,
			"description": "The key that the client minted for this call: 1 to 255 printable ASCII characters. " +
				"It may be sent bare or as a quoted string; both are the same key. It is never reusable for another call.",
			// Two more than the key itself may have, for the quotes.
			"schema":  object{"type": "string", "minLength": 1, "maxLength": 257, "pattern": "^[ -~]+$"},
			"example": "4f6f1a0e-4a55-4b0f-9a3b-0a8b4f1d2c11",
		},
	}
	components["headers"] = object{
		"Location":             headerOf("Where the order is.", object{"type": "string", "format": "uri-reference"}),
		"Idempotency-Replayed": headerOf("Present, and true, when an earlier call with the same key gave this answer.", object{"type": "string", "enum": []any{"true"}}),
		"Retry-After":          headerOf("Seconds to wait before the call is repeated with the same key.", object{"type": "integer", "minimum": 0}),
	}
	components["responses"] = object{
		"Problem400":     problemOf("The request or the key is malformed. The key is not used up."),
		"Problem401":     problemOf("There is no valid API key."),
		"Problem404":     problemOf("The client has no such order."),
		"Problem413":     problemOf("The body is too large."),
		"Problem415":     problemOf("The body is not application/json."),
		"Problem422":     problemOf("The key was used before with another request."),
		"Problem431":     problemOf("The header fields are too large."),
		"Problem500":     problemOf("A fault of ours. It is safe to repeat the call with the same key."),
		"Problem503":     problemOf("Not available now. It is safe to repeat the call with the same key.", "Retry-After"),
		"Problem504":     problemOf("No answer in time; what was asked may have happened. It is safe to repeat the call with the same key."),
		"KeyInProgress":  problemOf("Another call with the same key is still running.", "Retry-After"),
		"CancelConflict": problemOf("It is too late to cancel, or another call with the same key is still running.", "Retry-After"),
	}
}

func headerOf(description string, schema object) object {
	return object{"description": description, "schema": schema}
}

func problemOf(description string, headers ...string) object {
	r := object{
		"description": description,
		"content":     object{"application/problem+json": object{"schema": ref("schemas", "Problem")}},
	}
	for _, h := range headers {
		child(r, "headers")[h] = ref("headers", h)
	}
	return r
}
