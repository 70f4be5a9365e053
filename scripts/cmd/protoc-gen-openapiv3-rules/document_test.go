package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/throughline/throughline/proto/openapi"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.YAML)
	if err != nil {
		t.Fatalf("loading the committed document: %v", err)
	}
	return doc
}

func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	// Validation covers the examples: each must match the schema that it stands beside.
	if err := load(t).Validate(t.Context()); err != nil {
		t.Errorf("validating the committed document: %v", err)
	}
}

func TestDocumentOperations(t *testing.T) {
	t.Parallel()
	doc := load(t)
	tests := []struct {
		method, path string
		key          bool
		statuses     []string
	}{
		{"POST", "/v1/orders", true, []string{"200", "201", "400", "401", "403", "409", "413", "415", "422", "429", "431", "500", "503", "504"}},
		{"GET", "/v1/orders", false, []string{"200", "400", "401", "403", "429", "431", "500", "503", "504"}},
		{"GET", "/v1/orders/{order_id}", false, []string{"200", "400", "401", "403", "404", "429", "431", "500", "503", "504"}},
		{"GET", "/v1/orders/{order_id}/timeline", false, []string{"200", "400", "401", "403", "404", "429", "431", "500", "503", "504"}},
		{"GET", "/v1/orders/{order_id}/events", false, []string{"200", "204", "400", "401", "403", "404", "429", "431", "500", "503", "504"}},
		{"GET", "/v1/idempotency-keys/{key}", false, []string{"200", "400", "401", "403", "429", "431", "500", "503", "504"}},
		{"POST", "/v1/orders/{order_id}/cancel", true, []string{"200", "400", "401", "403", "404", "409", "413", "415", "422", "429", "431", "500", "503", "504"}},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			t.Parallel()
			item := doc.Paths.Value(tt.path)
			if item == nil || item.GetOperation(tt.method) == nil {
				t.Fatalf("the document has no %s %s", tt.method, tt.path)
			}
			op := item.GetOperation(tt.method)
			key := op.Parameters.GetByInAndName("header", "Idempotency-Key")
			if got := key != nil && key.Required; got != tt.key {
				t.Errorf("requires Idempotency-Key: got %t, want %t", got, tt.key)
			}
			responses := op.Responses.Map()
			if got := slices.Sorted(maps.Keys(responses)); !slices.Equal(got, tt.statuses) {
				t.Errorf("statuses: got %v, want %v", got, tt.statuses)
			}
			for status, r := range responses {
				want := "application/json"
				switch {
				case status[0] != '2':
					want = "application/problem+json"
				case status == "204":
					continue // it has no body
				case tt.path == followPath:
					want = "text/event-stream"
				}
				if r.Value.Content[want] == nil {
					t.Errorf("status %s: no content of type %s", status, want)
				}
			}
		})
	}
}

// Whoever follows an order goes on behind the last event, and reads what the timeline is made of.
func TestDocumentOfEvents(t *testing.T) {
	t.Parallel()
	doc := load(t)
	op := doc.Paths.Value(followPath).Get
	last := op.Parameters.GetByInAndName("header", "Last-Event-ID")
	if last == nil || last.Required || !last.Schema.Value.Type.Is("integer") {
		t.Errorf("Last-Event-ID: got %+v, want an optional integer", last)
	}
	example, _ := op.Responses.Value("200").Value.Content["text/event-stream"].Example.(string)
	entry := doc.Components.Schemas["TimelineEntry"].Value
	events := 0
	for line := range strings.Lines(example) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var v any
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Fatalf("the example's data: %v", err)
		}
		if err := entry.VisitJSON(v); err != nil {
			t.Errorf("the example's data %s: %v", data, err)
		}
		events++
	}
	if events == 0 {
		t.Errorf("the example %q has no events", example)
	}
	if got := doc.Paths.Value("/v1/orders/{order_id}/timeline").Get.Responses.Value("200").Value.Description; got == nil || !strings.Contains(*got, followPath) {
		t.Errorf("the timeline: got %v, want it to lead to the events", got)
	}
}

func TestDocumentUsesOurJSONForm(t *testing.T) {
	t.Parallel()
	schemas := load(t).Components.Schemas
	total := schemas["Order"].Value.Properties["total"].Value
	if !total.Type.Is("integer") || total.Max == nil || *total.Max != maxInteger {
		t.Errorf("Order.total: got type %v, maximum %v, want an integer up to %d", total.Type, total.Max, int64(maxInteger))
	}
	got := schemas["OrderStatus"].Value.Enum
	want := []any{"PENDING", "CONFIRMED", "COMPENSATING", "FAILED", "CANCELLED", "NEEDS_ATTENTION"}
	if !slices.Equal(got, want) {
		t.Errorf("OrderStatus: got %v, want %v", got, want)
	}
}

func TestCompleteIsDeterministic(t *testing.T) {
	t.Parallel()
	first, page, err := complete(sample(t, slices.Sorted(maps.Keys(operations))))
	if err != nil {
		t.Fatalf("completing: %v", err)
	}
	for range 20 {
		again, pageAgain, err := complete(sample(t, slices.Sorted(maps.Keys(operations))))
		if err != nil {
			t.Fatalf("completing again: %v", err)
		}
		if again != first || pageAgain != page {
			t.Fatalf("the same input gave another document:\n%s\nand before:\n%s", again, first)
		}
	}
}

func TestCompleteRefusesWhatTheTablesDoNotKnow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		methods []string
		want    string
	}{
		{"a new method", []string{"CancelOrder", "CreateOrder", "GetIdempotencyKey", "GetOrder", "GetTimeline", "ListOrders", "ShredOrder"}, "ShredOrder"},
		{"a method that is gone", []string{"CancelOrder", "CreateOrder", "GetIdempotencyKey", "GetTimeline", "ListOrders"}, "GetOrder"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := complete(sample(t, tt.methods))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one that names %s", err, tt.want)
			}
		})
	}
}

// sample is a document as protoc-gen-openapiv3 writes it, with the given methods.
func sample(t *testing.T, methods []string) []byte {
	t.Helper()
	fields := func(names ...string) object {
		p := object{}
		for _, n := range names {
			p[n] = object{"type": "string"}
		}
		return object{"type": "object", "properties": p}
	}
	body := fields("currency", "lines", "ship_to", "payment_method", "note", "metadata", "reason")
	paths := object{}
	for _, m := range methods {
		op := object{"operationId": "OrderService_" + m, "summary": m, "responses": object{"200": object{}}}
		if operations[m].key {
			op["requestBody"] = object{"content": object{"application/json": object{"schema": body}}}
		}
		paths["/"+m] = object{"post": op}
	}
	b, err := json.Marshal(object{"paths": paths, "components": object{"schemas": object{
		"throughline.order.v1.Line":           fields("sku", "quantity", "unit_price"),
		"throughline.order.v1.Address":        fields("name", "line1", "line2", "city", "region", "postal_code", "country"),
		"throughline.order.v1.IdempotencyKey": fields("key", "state", "order_id", "replays"),
		"throughline.order.v1.Order": fields("order_id", "status", "currency", "total", "lines", "ship_to", "payment_method", "note", "metadata",
			"failure_reason", "idempotency_key", "created_at", "updated_at"),
		"throughline.order.v1.ListOrdersResponse": fields("orders", "next_page_token"),
	}}})
	if err != nil {
		t.Fatalf("encoding the sample: %v", err)
	}
	return b
}
