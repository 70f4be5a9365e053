package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// What a service has is read from its source: Go lets nobody import it, and a document that says something else is the mistake.
func source(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile("../../../services/" + path)
	if err != nil {
		t.Fatalf("reading the source: %v", err)
	}
	return string(b)
}

// Every limit that the order service checks is in the document, with the same number.
func TestLimitsAreThoseOfTheService(t *testing.T) {
	t.Parallel()
	rules := source(t, "order/internal/order/validate.go")
	limit := func(name string) uint64 {
		m := regexp.MustCompile(`(?m)^\s+` + name + `\s+= ([0-9_]+)`).FindStringSubmatch(rules)
		if m == nil {
			t.Fatalf("the order service has no limit %s", name)
		}
		n, err := strconv.ParseUint(strings.ReplaceAll(m[1], "_", ""), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	schemas := load(t).Components.Schemas
	at := func(path string) *openapi3.Schema {
		name, member, _ := strings.Cut(path, ".")
		s := schemas[name]
		if s == nil || s.Value.Properties[member] == nil {
			t.Fatalf("the document has no %s", path)
		}
		return s.Value.Properties[member].Value
	}
	lengths := map[string]string{
		"Line.sku": "MaxSKU", "CreateOrderRequest.payment_method": "MaxPaymentMethod", "CreateOrderRequest.note": "MaxNote",
		"Address.name": "MaxAddressText", "Address.line1": "MaxAddressText", "Address.line2": "MaxAddressText", "Address.city": "MaxAddressText",
		"Address.region": "MaxAddressText", "Address.postal_code": "MaxPostalCode", "CancelOrderRequest.reason": "MaxCancelReason",
	}
	for path, name := range lengths {
		if got := at(path).MaxLength; got == nil || *got != limit(name) {
			t.Errorf("%s: got maxLength %v, want %s = %d", path, got, name, limit(name))
		}
	}
	if got := at("CreateOrderRequest.lines").MaxItems; got == nil || *got != limit("MaxLines") {
		t.Errorf("lines: got maxItems %v, want %d", got, limit("MaxLines"))
	}
	if got := at("Line.quantity").Max; got == nil || uint64(*got) != limit("MaxQuantity") {
		t.Errorf("quantity: got maximum %v, want %d", got, limit("MaxQuantity"))
	}
	metadata := at("CreateOrderRequest.metadata")
	if got := metadata.MaxProps; got == nil || *got != limit("MaxMetadata") {
		t.Errorf("metadata: got maxProperties %v, want %d", got, limit("MaxMetadata"))
	}
	if got := metadata.AdditionalProperties.Schema.Value.MaxLength; got == nil || *got != limit("MaxMetadataValue") {
		t.Errorf("metadata: got maxLength %v, want %d", got, limit("MaxMetadataValue"))
	}
	if n := strings.Count(rules, "\tMax"); n != len(slices.Compact(slices.Sorted(values(lengths))))+5 {
		t.Errorf("the order service has %d limits; a new one belongs into the document and into this test", n)
	}
	for path, want := range map[string]string{
		"gateway/internal/grpcapi/admit.go":    "MaxPayload = 256 << 10",
		"gateway/internal/httpapi/listener.go": "MaxHeaderBytes = 32 << 10",
		"gateway/internal/grpcapi/wait.go":     "MaxWait = 20 * time.Second",
		"order/internal/grpcapi/read.go":       "MaxWait = 20 * time.Second",
	} {
		if !strings.Contains(source(t, path), want) {
			t.Errorf("%s has no %q: the document says otherwise", path, want)
		}
	}
}

func values(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// The document knows every reason that the services have, with the status and the title that it shows with.
func TestProblemsAreThoseOfTheServices(t *testing.T) {
	t.Parallel()
	text := source(t, "internal/grpcx/reasons.go")
	words := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\s+(\w+)\s+Reason = "(\w+)"`).FindAllStringSubmatch(text, -1) {
		words[m[1]] = m[2]
	}
	// What only operators are told is no part of the public API.
	for _, m := range regexp.MustCompile(`For operators only\.\n\s+(\w+)\s+Reason = `).FindAllStringSubmatch(text, -1) {
		delete(words, m[1])
	}
	statuses := map[string]int{
		"StatusBadRequest": 400, "StatusUnauthorized": 401, "StatusForbidden": 403, "StatusNotFound": 404, "StatusMethodNotAllowed": 405, "StatusConflict": 409,
		"StatusRequestEntityTooLarge": 413, "StatusUnsupportedMediaType": 415, "StatusUnprocessableEntity": 422, "StatusTooManyRequests": 429,
		"StatusRequestHeaderFieldsTooLarge": 431, "StatusInternalServerError": 500, "StatusNotImplemented": 501, "StatusServiceUnavailable": 503, "StatusGatewayTimeout": 504,
	}
	var want []string
	meanings := regexp.MustCompile(`(?s)(?:case (\w+)|default):(?:\s+//[^\n]*)*\s+return Meaning\{codes\.\w+, http\.(\w+), "([^"]+)"\}`)
	for _, m := range meanings.FindAllStringSubmatch(text, -1) {
		word := words[m[1]]
		if m[1] == "" {
			word = "INTERNAL"
		}
		if word != "" {
			want = append(want, fmt.Sprintf("%s %d %s", word, statuses[m[2]], m[3]))
		}
	}
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%s %d %s", p.reason, p.status, p.title))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) != len(words) {
		t.Errorf("problems\n got %q\nwant %q\n(%d reasons)", got, want, len(words))
	}
}
