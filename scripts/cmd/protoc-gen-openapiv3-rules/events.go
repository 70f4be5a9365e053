package main

// followPath is the one call that no RPC has the form of: the entries of GetTimeline, as they come, as server-sent events. So neither
// http.yaml nor the generated document has it.
const followPath = "/v1/orders/{order_id}/events"

// addEvents adds that call to the document.
func addEvents(paths, schemas object) error {
	about := operation{
		summary: "Follow an order",
		status:  "200",
		answer: "What has happened, and then each thing as it happens, until the order has ended or the answer is ten minutes old. Each event has " +
			"the entry's position as its id, the entry's event as its event, and a TimelineEntry in JSON as its data; where nothing happens there is a comment every 15 seconds. " +
			"A stream that breaks ends without a word: come again with the last id.",
		pathExample: exampleID,
		problems:    []string{"404"},
	}
	op := object{
		"operationId": "OrderService_FollowOrder",
		"summary": "FollowOrder tells what happens to an order as server-sent events (the HTML standard, section 9.2), which curl -N shows. " +
			"The entries are those of GetTimeline, in its sequence, each at least once.",
		"parameters": []any{
			object{"name": "order_id", "in": "path", "required": true, "schema": object{}},
			object{
				"name": "Last-Event-ID", "in": "header", "example": 1001, "schema": object{"type": "integer", "minimum": 0},
				"description": "The id of the last event that was seen; only later ones are sent. Clients of server-sent events send it by themselves when they come again.",
			},
		},
		"responses": object{"200": object{"content": object{"text/event-stream": object{
			"schema": object{"type": "string"},
			"example": "id: 1001\nevent: order_placed\n" +
				`data: {"position":1001,"at":"2026-11-29T12:00:00.000001Z","event":"order_placed","reason":""}` + "\n\n" +
				"id: 2001\nevent: payment_authorized\n" +
				`data: {"position":2001,"at":"2026-11-29T12:00:00.200001Z","event":"payment_authorized","reason":""}` + "\n\n",
		}}}},
	}
	if err := about.complete("FollowOrder", op, schemas); err != nil {
		return err
	}
	child(op, "responses")["204"] = object{
		"description": "The order has ended, and nothing has happened since the event that was seen last. Clients of server-sent events then stop asking.",
	}
	child(paths, followPath)["get"] = op
	return nil
}
