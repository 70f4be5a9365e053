package app_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/throughline/throughline/services/internal/grpcx"
)

// The key's syntax: quoted and bare are the same key, and what is not a key uses none up.
func TestKeySyntax(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.created(e.create(`"k-a"`, r0), false)
	e.created(e.create(`k-a`, r0), true)
	e.created(e.create("\t k-a ", r0), true)
	e.created(e.create(`"k-b"`, r0), false)
	e.created(e.create(`"k-b";v=2`, r0), true)
	e.created(e.create(`"k\"c"`, r0), false)
	e.created(e.create(`k"c`, r0), true)
	e.created(e.create("K-A", r0), false) // case is kept
	e.created(e.create(strings.Repeat("x", 255), r0), false)
	e.created(e.create(`"`+strings.Repeat("x", 255)+`"`, r0), true)
	before := len(e.seen())

	e.refused(e.do("POST", "/v1/orders", r0), grpcx.KeyMissing)
	for key, want := range map[string]grpcx.Reason{
		``: grpcx.KeyEmpty, ` `: grpcx.KeyEmpty, `""`: grpcx.KeyEmpty, `"k-d`: grpcx.KeyMalformed, `"k\d"`: grpcx.KeyMalformed,
		`"a" "b"`: grpcx.KeyMalformed, `"a", "b"`: grpcx.KeyMalformed, `a, b`: grpcx.KeyMalformed,
		"\"cl\xc3\xa9\"": grpcx.KeyNotPrintable, "\"cl\xe9\"": grpcx.KeyNotPrintable, "cl\xc3\xa9": grpcx.KeyNotPrintable,
		"a\tb": grpcx.KeyNotPrintable, strings.Repeat("x", 256): grpcx.KeyTooLong, `"` + strings.Repeat("x", 256) + `"`: grpcx.KeyTooLong,
	} {
		e.refused(e.create(key, r0), want)
	}
	for _, second := range []string{"k-e", "k-f", ""} {
		e.refused(e.do("POST", "/v1/orders", r0, "Idempotency-Key", "k-e", "Idempotency-Key", second), grpcx.KeyRepeated)
	}
	if n := len(e.seen()); n != before {
		t.Errorf("keys that are none: got %d calls to the order service, want none", n-before)
	}
}

// Ambiguous JSON is refused, and its key is still unused.
func TestStrictJSON(t *testing.T) {
	t.Parallel()
	e := start(t)
	tests := []struct {
		name, body, path string
	}{
		{"duplicate member", strings.Replace(r0, `"currency":"EUR"`, `"currency":"EUR","currency":"JPY"`, 1), "currency"},
		{"case variant", strings.Replace(r0, `"quantity":2`, `"quantity":1,"Quantity":100`, 1), "lines[0].Quantity"},
		{"second object", r0 + `{}`, ""},
		{"garbage behind", r0 + ` garbage`, ""},
		{"byte-order mark", "\xef\xbb\xbf" + r0, ""},
		{"unknown member", strings.Replace(r0, `{`, `{"discount_pct":100,`, 1), "discount_pct"},
		{"truncated", r0[:len(r0)-2], ""},
		{"empty", "", ""},
		{"null member", strings.Replace(r0, `"note":""`, `"note":null`, 1), "note"},
		{"NUL in a name", strings.Replace(r0, `A. Buyer`, `A\u0000`, 1), "ship_to.name"},
		{"NUL in a member name", strings.Replace(r0, `"note"`, `"no\u0000te"`, 1), `["no\x00te"]`},
		{"invalid UTF-8", strings.Replace(r0, `A. Buyer`, "A\xff", 1), ""},
		{"unpaired surrogate", strings.Replace(r0, `A. Buyer`, `A\ud800`, 1), "ship_to.name"},
		{"fraction", strings.Replace(r0, `1250`, `1250.0`, 1), "lines[0].unit_price"},
		{"exponent", strings.Replace(r0, `1250`, `125e1`, 1), "lines[0].unit_price"},
		{"beyond 2^53-1", strings.Replace(r0, `1250`, `9007199254740993`, 1), "lines[0].unit_price"},
		{"a list", `[` + r0 + `]`, ""},
		{"nested without end", strings.Repeat("[", 200_000), ""},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := *e
			e.t = t
			key := fmt.Sprintf("json-%d", i)
			before := len(e.seen())
			a := e.create(key, tt.body)
			if tt.path == "" {
				e.refused(a, grpcx.RequestMalformed)
			} else {
				e.refused(a, grpcx.RequestMalformed, tt.path)
			}
			if n := len(e.seen()); n != before {
				t.Errorf("got %d calls to the order service, want none", n-before)
			}
			e.created(e.create(key, r0), false)
		})
	}
	e.created(e.create("spaced", r0+" \r\n\t"), false)
}

func TestMediaAndSize(t *testing.T) {
	t.Parallel()
	e := start(t)
	for _, ct := range []string{"application/json", "Application/JSON", `application/json; charset="UTF-8"`, "application/json;profile=x"} {
		if a := e.create("media", r0, "Content-Type", ct); a.status != http.StatusCreated {
			t.Errorf("Content-Type %q: got %d %s, want 201", ct, a.status, a.body)
		}
	}
	e.created(e.create("media", r0, "Content-Encoding", "identity"), true)
	for _, ct := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/json;;;=", "application/problem+json"} {
		e.refused(e.create("media", r0, "Content-Type", ct), grpcx.UnsupportedMediaType)
	}
	none := e.request("POST", "/v1/orders", strings.NewReader(r0), "Idempotency-Key", "media")
	none.Header.Del("Content-Type")
	e.refused(e.send(none), grpcx.UnsupportedMediaType)
	e.refused(e.create("media", r0, "Content-Type", "application/json", "Content-Type", "application/json"), grpcx.UnsupportedMediaType)
	for _, ce := range []string{"gzip", "br", "identity, gzip"} {
		e.refused(e.create("media", r0, "Content-Encoding", ce), grpcx.UnsupportedMediaType)
	}

	// With text of several bytes a letter, just within the limit: it must get through to the order service and back.
	const limit = 256 << 10
	fill := limit - len(r0)
	largest := strings.Replace(r0, `"note":""`, `"note":"`+strings.Repeat("é", fill/2)+`"`, 1)
	if len(largest) > limit || len(largest) < limit-1 {
		t.Fatalf("the largest body has %d bytes, want %d or one less", len(largest), limit)
	}
	first := e.create("largest", largest)
	e.created(first, false)
	if again := e.create("largest", largest); again.body != first.body {
		t.Errorf("replay of the largest body: got %d bytes, want the same %d", len(again.body), len(first.body))
	}
	over := r0 + strings.Repeat(" ", limit-len(r0)+1)
	e.refused(e.create("over", over), grpcx.PayloadTooLarge)
	e.refused(e.create("over", strings.Repeat("x", 5<<20)), grpcx.PayloadTooLarge)
	chunked := e.request("POST", "/v1/orders", struct{ *bytes.Reader }{bytes.NewReader([]byte(over))}, "Idempotency-Key", "over")
	chunked.ContentLength = -1
	e.refused(e.send(chunked), grpcx.PayloadTooLarge)
	e.created(e.create("over", r0), false)
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	e := start(t)
	good := "Bearer " + storefrontKey
	for _, header := range [][]string{
		{"Authorization", ""}, {"Authorization", "Bearer "}, {"Authorization", storefrontKey}, {"Authorization", "Basic " + storefrontKey},
		{"Authorization", "Bearer key-of-the-storefron"}, {"Authorization", "Bearer key-of-the-storefront2"},
		{"Authorization", good, "Authorization", good}, {"Authorization", good + ", " + good}, {"Authorization", "Bearer cl\xc3\xa9"},
		{"Authorization", "Bearer " + strings.Repeat("x", 20000)},
	} {
		a := e.create("k-auth", r0, header...)
		e.refused(a, grpcx.Unauthenticated)
		if got := a.header.Get("WWW-Authenticate"); got != `Bearer realm="throughline"` {
			t.Errorf("WWW-Authenticate: got %q", got)
		}
	}
	missing := e.request("GET", "/v1/orders", http.NoBody)
	missing.Header.Del("Authorization")
	e.refused(e.send(missing), grpcx.Unauthenticated)
	// Who calls is asked before anything else of a request is looked at.
	e.refused(e.do("POST", "/v1/orders", "garbage", "Authorization", "Bearer nobody-has-this-key", "Content-Type", "text/plain"), grpcx.Unauthenticated)
	if n := len(e.seen()); n != 0 {
		t.Errorf("got %d calls to the order service, want none", n)
	}
	e.created(e.create("k-auth", r0, "Authorization", "bearer  "+storefrontKey), false)
}

func TestRouting(t *testing.T) {
	t.Parallel()
	e := start(t)
	for _, path := range []string{"/", "/v1", "/v1/", "/v1/orders/", "/v1/orders//cancel", "/v1/orders/x/y", "/V1/orders", "/v1/orders%2Fx", "//v1/orders",
		"/v1/orders/../orders", "/healthz/", "/openapi.json", "/debug/pprof/"} {
		e.refused(e.do("GET", path, ""), grpcx.RouteNotFound)
	}
	tests := []struct{ method, path, allow string }{
		{"DELETE", "/v1/orders", "GET, HEAD, POST"}, {"OPTIONS", "/v1/orders", "GET, HEAD, POST"}, {"PUT", "/v1/orders/x", "GET, HEAD"},
		{"FOO", "/v1/orders/x/cancel", "POST"}, {"GET", "/v1/orders/x/cancel", "POST"}, {"POST", "/healthz", "GET, HEAD"},
		{"HEAD", "/v1/orders/x/cancel", "POST"},
	}
	for _, tt := range tests {
		a := e.do(tt.method, tt.path, "")
		if tt.method != "HEAD" {
			e.refused(a, grpcx.MethodNotAllowed)
		}
		if got := a.header.Get("Allow"); a.status != 405 || got != tt.allow {
			t.Errorf("%s %s: got %d, Allow %q, want 405, %q", tt.method, tt.path, a.status, got, tt.allow)
		}
	}
}
