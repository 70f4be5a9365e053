package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
)

// TestEdge sends what clients send by mistake or on purpose, to one system with two instances of everything. The names of its cases are
// those of the reports that they come from.
func TestEdge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{Instances: 2})
	t.Run("cases", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *world){
			"OPEN01KeySyntax": open01, "OPEN02SameRequestOtherRendering": open02, "OPEN03AmbiguousJSON": open03, "OPEN04MinorUnits": open04,
			"OPEN05NUL": open05, "OPEN06OneKeyTwoClients": open06, "OPEN09FiftyAtOnce": open09, "OPEN25HostileTraceHeaders": open25,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, w)
			})
		}
	})
	ctx := system.Context(t, patience)
	w.settled(ctx, t)
	if n := w.count("order", `SELECT count(*) FROM customer_order WHERE idempotency_key LIKE 'bad%'`); n != 0 {
		t.Errorf("got %d orders of requests that were refused, want none", n)
	}
}

func open01(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	place := func(key string) answer { return w.place(ctx, t, r0(), "Idempotency-Key", key) }
	wantCreated(t, "a, quoted", place(`"k-a"`), false)
	wantCreated(t, "a, bare", place(`k-a`), true)
	wantCreated(t, "b, quoted", place(`"k-b"`), false)
	wantCreated(t, "b, with a parameter", place(`"k-b";v=2`), true)
	wantCreated(t, "c, escaped quote", place(`"k\"c"`), false)
	for key, reason := range map[string]string{
		`"bad-d`: "KEY_MALFORMED", `"bad\d"`: "KEY_MALFORMED", "\"badcl\xc3\xa9\"": "KEY_NOT_PRINTABLE", "\"badcl\xe9\"": "KEY_NOT_PRINTABLE",
		absent: "KEY_MISSING", "": "KEY_EMPTY", `""`: "KEY_EMPTY", "bad,a": "KEY_MALFORMED", "bad" + strings.Repeat("x", 253): "KEY_TOO_LONG",
	} {
		wantStatus(t, fmt.Sprintf("key %.20q", key), place(key), http.StatusBadRequest, reason)
	}
	wantStatus(t, "two lines", w.place(ctx, t, r0(), "Idempotency-Key", "bad-1", "Idempotency-Key", "bad-1"), http.StatusBadRequest, "KEY_REPEATED")
}

func open02(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	const second = `{"sku":"BOOK-1","quantity":2,"unit_price":1250},{"sku":"PEN-2","quantity":1,"unit_price":100}`
	const line = `{"sku":"BOOK-1","quantity":2,"unit_price":1250}`
	body := r0(line, second)
	place := func(body string, header ...string) answer {
		return w.place(ctx, t, body, append([]string{"Idempotency-Key", "open02"}, header...)...)
	}
	first := place(body)
	wantCreated(t, "first", first, false)
	for name, same := range map[string]string{
		"members in another order": strings.Replace(strings.Replace(body, `"currency":"EUR",`, "", 1), `"note":""`, `"note":"","currency":"EUR"`, 1),
		"white space":              strings.ReplaceAll(body, ",", " ,\n\t"),
		"an escape":                strings.Replace(body, "Berlin", `B\u0065rlin`, 1),
		"defaults left out":        strings.Replace(body, `,"note":"","metadata":{}`, "", 1),
	} {
		a := place(same)
		wantCreated(t, name, a, true)
		if !bytes.Equal(a.Body, first.Body) {
			t.Errorf("%s: got %s, want the first bytes %s", name, a.Body, first.Body)
		}
	}
	wantCreated(t, "a charset", place(body, "Content-Type", "application/json; charset=utf-8"), true)
	for name, other := range map[string]string{
		"lines swapped":  r0(line, `{"sku":"PEN-2","quantity":1,"unit_price":100},`+line),
		"quantity":       strings.Replace(body, `"quantity":2`, `"quantity":3`, 1),
		"currency":       strings.Replace(body, "EUR", "USD", 1),
		"postcode":       strings.Replace(body, "10115", "10117", 1),
		"payment method": strings.Replace(body, "pm_card_visa", "pm_card_mastercard", 1),
	} {
		wantStatus(t, name, place(other), http.StatusUnprocessableEntity, "KEY_MISMATCH")
	}
	if intents, _, captured, _ := w.rest(ctx, t, first.Order.ID); intents != 1 || captured != 2600 {
		t.Errorf("got %d charges of %d, want 1 of 2600", intents, captured)
	}
}

// rest waits until an order has come to rest, and gives what it was charged.
func (w *world) rest(ctx context.Context, t *testing.T, id string) (intents int, currency string, captured, refunded int64) {
	t.Helper()
	awaitRest(ctx, t, w.shop, id)
	return w.charged(ctx, t, id)
}

func open03(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	for name, body := range map[string]string{
		"currency twice":   r0(`"currency":"EUR"`, `"currency":"EUR","currency":"JPY"`),
		"case variant":     r0(`"quantity":2`, `"quantity":1,"Quantity":100`),
		"second object":    r0() + `{}`,
		"garbage":          r0() + `garbage`,
		"byte-order mark":  "\xef\xbb\xbf" + r0(),
		"unknown member":   r0(`{"currency"`, `{"discount_pct":100,"currency"`),
		"truncated":        r0()[:100],
		"fraction":         r0(`"quantity":2`, `"quantity":2.0`),
		"exponent":         r0(`"unit_price":1250`, `"unit_price":125e1`),
		"beyond 2^53":      r0(`"unit_price":1250`, `"unit_price":9007199254740993`),
		"lone surrogate":   r0("Berlin", `\ud800`),
		"invalid UTF-8":    r0("Berlin", "\xff"),
		"text as a number": r0(`"quantity":2`, `"quantity":"2"`),
	} {
		key := "open03 " + name
		wantStatus(t, name, w.place(ctx, t, body, "Idempotency-Key", key), http.StatusBadRequest, "REQUEST_MALFORMED")
		clean := w.place(ctx, t, r0(), "Idempotency-Key", key)
		wantCreated(t, name+", then clean", clean, false)
		if _, _, captured, _ := w.rest(ctx, t, clean.Order.ID); captured != 2500 {
			t.Errorf("%s: got charged %d, want 2500", name, captured)
		}
	}
	wantCreated(t, "newline and blanks behind", w.place(ctx, t, r0()+"\n  ", "Idempotency-Key", "open03"), false)
	wantStatus(t, "gzip", w.place(ctx, t, r0(), "Idempotency-Key", "bad-gzip", "Content-Encoding", "gzip"), http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE")
	wantStatus(t, "5 MiB", w.place(ctx, t, strings.Repeat("x", 5<<20), "Idempotency-Key", "bad-size"), http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
	lines := strings.TrimSuffix(strings.Repeat(`{"sku":"A","quantity":1,"unit_price":1},`, 201), ",")
	wantStatus(t, "201 lines", w.place(ctx, t, r0(`{"sku":"BOOK-1","quantity":2,"unit_price":1250}`, lines), "Idempotency-Key", "bad-lines"),
		http.StatusBadRequest, "REQUEST_INVALID")
}

func open04(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	for _, tc := range []struct {
		currency string
		minor    int64
		provider int64
	}{{"JPY", 500, 500}, {"KWD", 1500, 1500}, {"EUR", 2500, 2500}} {
		body := r0("EUR", tc.currency, `"quantity":2,"unit_price":1250`, fmt.Sprintf(`"quantity":1,"unit_price":%d`, tc.minor))
		sold := w.place(ctx, t, body, "Idempotency-Key", "open04 sold "+tc.currency)
		wantCreated(t, tc.currency, sold, false)
		intents, currency, captured, refunded := w.rest(ctx, t, sold.Order.ID)
		if intents != 1 || !strings.EqualFold(currency, tc.currency) || captured != tc.provider || refunded != 0 {
			t.Errorf("%s: got %d charges of %d %s, refunded %d, want one of %d", tc.currency, intents, captured, currency, refunded, tc.provider)
		}
		if sold.Order.Total != tc.minor {
			t.Errorf("%s: got total %d, want %d", tc.currency, sold.Order.Total, tc.minor)
		}
		failed := w.place(ctx, t, strings.Replace(body, "10115", "00000", 1), "Idempotency-Key", "open04 undone "+tc.currency)
		wantCreated(t, tc.currency+", undone", failed, false)
		if _, _, captured, refunded := w.rest(ctx, t, failed.Order.ID); captured != refunded {
			t.Errorf("%s: got %d captured and %d refunded, want as much of both", tc.currency, captured, refunded)
		}
	}
	for name, body := range map[string]string{
		"unknown currency": r0("EUR", "XXX"), "lower case": r0("EUR", "eur"), "quantity 0": r0(`"quantity":2`, `"quantity":0`),
		"negative": r0(`"unit_price":1250`, `"unit_price":-1`), "total 0": r0(`"unit_price":1250`, `"unit_price":0`),
		"overflow": r0(`"quantity":2,"unit_price":1250`, `"quantity":1000000,"unit_price":9007199254740991`),
	} {
		a := w.place(ctx, t, body, "Idempotency-Key", "bad04 "+name)
		if a.err != nil || a.Status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s, want 400", name, a.Status, a.Body)
		}
	}
}

func open05(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	for name, body := range map[string]string{
		"recipient": r0("A. Buyer", `A\u0000`), "sku": r0("BOOK-1", `B\u0000`), "note": r0(`"note":""`, `"note":"\u0000"`), "member": r0(`"note"`, `"no\u0000te"`),
		"metadata key": r0(`"metadata":{}`, `"metadata":{"a\u0000":"b"}`), "metadata value": r0(`"metadata":{}`, `"metadata":{"a":"\u0000"}`),
	} {
		a := w.place(ctx, t, body, "Idempotency-Key", "open05 "+name)
		wantStatus(t, name, a, http.StatusBadRequest, "")
		wantCreated(t, name+", then clean", w.place(ctx, t, r0(), "Idempotency-Key", "open05 "+name), false)
	}
}

func open06(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	place := func(c *system.Client, body string, header ...string) answer {
		return ask(ctx, t, c, 0, http.MethodPost, "/v1/orders", body, append([]string{"Idempotency-Key", "open06"}, header...)...)
	}
	mine := place(w.shop, r0("A. Buyer", "First Client"))
	theirs := place(w.mall, r0(`"quantity":2`, `"quantity":3`))
	wantCreated(t, "the first client", mine, false)
	wantCreated(t, "the second client, with the same key", theirs, false)
	again := place(w.mall, r0(`"quantity":2`, `"quantity":3`))
	wantCreated(t, "the second client again", again, true)
	if !bytes.Equal(again.Body, theirs.Body) || theirs.Order.ID == mine.Order.ID || bytes.Contains(again.Body, []byte("First Client")) {
		t.Errorf("the second client got %s, want its own order", again.Body)
	}
	for _, path := range []string{"/v1/orders/" + mine.Order.ID, "/v1/orders/" + keys.OrderID("nobody", "x").String()} {
		wantStatus(t, "the second client reads "+path, ask(ctx, t, w.mall, 1, http.MethodGet, path, ""), http.StatusNotFound, "ORDER_NOT_FOUND")
	}
	same := ask(ctx, t, w.mall, 1, http.MethodPost, "/v1/orders", r0("A. Buyer", "First Client"), "Idempotency-Key", "open06 c")
	wantCreated(t, "the body of the first client", same, false)

	cancel := ask(ctx, t, w.shop, 1, http.MethodPost, "/v1/orders/"+mine.Order.ID+"/cancel", `{}`, "Idempotency-Key", "open06")
	if cancel.err != nil || cancel.Replayed || (cancel.Status != http.StatusOK && cancel.Problem.Reason != "CANCEL_TOO_LATE") {
		t.Errorf("cancel under the key of the create: got %d %s, want it executed, or too late", cancel.Status, cancel.Body)
	}
	for _, credential := range []string{absent, "Bearer wrong", "Bearer tl_aaaaaaaaaaaa_" + strings.Repeat("x", 43)} {
		a := place(w.shop, r0("A. Buyer", "First Client"), "Authorization", credential)
		wantStatus(t, "credential "+credential, a, http.StatusUnauthorized, "UNAUTHENTICATED")
		if a.Header.Get("WWW-Authenticate") == "" || a.Replayed || bytes.Contains(a.Body, []byte(mine.Order.ID)) {
			t.Errorf("credential %s: got %v %s, want nothing but how to authenticate", credential, a.Header, a.Body)
		}
		key := ask(ctx, t, w.shop, 0, http.MethodGet, "/v1/idempotency-keys/open06", "", "Authorization", credential)
		wantStatus(t, "asking for the key with credential "+credential, key, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
}

// assertNoBaggageOutside wants calls at the provider and the carrier, and none of them with baggage.
func (w *world) assertNoBaggageOutside(ctx context.Context, t *testing.T, what, order string) {
	t.Helper()
	provider, err := w.Provider.PaymentLedger(ctx, order)
	if err != nil {
		t.Fatalf("reading the provider's ledger: %v", err)
	}
	carrier, err := w.Carrier.CarrierLedger(ctx, order)
	if err != nil {
		t.Fatalf("reading the carrier's ledger: %v", err)
	}
	if len(provider.Calls) < 3 || len(carrier.Calls) < 2 {
		t.Errorf("%s: got %d calls at the provider and %d at the carrier, want 3 and 2 at least", what, len(provider.Calls), len(carrier.Calls))
	}
	for _, call := range append(provider.Calls, carrier.Calls...) {
		if call.Baggage {
			t.Errorf("%s: %s came with baggage, want none", what, call.Operation)
		}
	}
}

func open25(t *testing.T, w *world) {
	ctx := system.Context(t, patience)
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	many := strings.TrimSuffix(strings.Repeat("k=v,", 70), ",")
	onTheWire := w.listen(t)
	for name, header := range map[string][]string{
		"malformed":    {"Traceparent", "x"},
		"zero":         {"Traceparent", "00-00000000000000000000000000000000-0000000000000000-01"},
		"version ff":   {"Traceparent", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"two":          {"Traceparent", valid, "Traceparent", strings.Replace(valid, "0a", "0b", 1)},
		"much baggage": {"Traceparent", valid, "Baggage", many},
		"long baggage": {"Traceparent", valid, "Baggage", "a=" + strings.Repeat("x", 4500), "Baggage", "b=" + strings.Repeat("x", 4500)},
		"bad escapes":  {"Traceparent", valid, "Baggage", "a=%zz", "Tracestate", strings.Repeat("a=b,", 100)},
	} {
		first := w.place(ctx, t, r0(), append([]string{"Idempotency-Key", "open25 " + name}, header...)...)
		wantCreated(t, name, first, false)
		wantCreated(t, name+", with another trace", w.place(ctx, t, r0(), "Idempotency-Key", "open25 "+name, "Traceparent", valid), true)
		if intents, _, captured, _ := w.rest(ctx, t, first.Order.ID); intents != 1 || captured != 2500 {
			t.Errorf("%s: got %d charges of %d, want 1 of 2500", name, intents, captured)
		}
		onTheWire.check(t, name, first.Order.ID)
		w.assertNoBaggageOutside(ctx, t, name, first.Order.ID)
		w.assertTraced(t, name, first.Order.ID)
	}
	huge := w.place(ctx, t, r0(), "Idempotency-Key", "bad-25", "X-Filler", strings.Repeat("x", 900<<10))
	if huge.err == nil {
		wantStatus(t, "900 KiB of headers", huge, http.StatusRequestHeaderFieldsTooLarge, "HEADERS_TOO_LARGE")
	}
}
