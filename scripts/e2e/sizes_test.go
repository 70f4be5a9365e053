package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// maxBody is the published limit of a request's body.
const maxBody = 256 << 10

// What is too large is refused at the edge, and leaves nothing behind. The largest order that is taken goes all the way, also when its text
// grows on each hop.
func TestOPEN21LargeRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, patience)
	line := `{"sku":"BOOK-1","quantity":2,"unit_price":1250}`
	large := largest(t)
	for name, body := range map[string]string{
		"20000 lines":              r0(line, strings.TrimSuffix(strings.Repeat(line+",", 20_000), ",")),
		"5 MiB":                    r0(`"note":""`, `"note":"`+strings.Repeat("n", 5<<20)+`"`),
		"one byte above the limit": large + " ",
	} {
		key := "open21 " + name
		wantStatus(t, name, w.place(ctx, t, body, "Idempotency-Key", key), http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
		if n := w.count("order", `SELECT count(*) FROM customer_order`); n != 0 {
			t.Fatalf("%s: got %d orders, want none", name, n)
		}
	}
	a := w.place(ctx, t, large, "Idempotency-Key", "open21 one byte above the limit") // its key is not used up
	wantCreated(t, "the largest request", a, false)
	for i := range 20 {
		wantCreated(t, "an order behind it", w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("open21 %d", i)), false)
	}
	if last := awaitRest(ctx, t, w.shop, a.Order.ID); last.Order.Status != verify.Confirmed {
		t.Errorf("the largest request: got %s, want CONFIRMED", last.Order.Status)
	}
	again := w.place(ctx, t, large, "Idempotency-Key", "open21 one byte above the limit")
	wantCreated(t, "the largest request, again", again, true)
	if n := w.settled(ctx, t); n != 21 {
		t.Errorf("got %d orders, want 21", n)
	}
	if got := len(w.byStatus(ctx, t)[verify.Confirmed]); got != 21 {
		t.Errorf("got %d confirmed orders, want 21", got)
	}
	for _, service := range services {
		if n := w.count(service, `SELECT count(*) FROM outbox WHERE refusals > 0`); n != 0 {
			t.Errorf("got %d rows of %s that the broker refuses, want none", n, service)
		}
	}
}

// largest is R0 with all texts at their limits, in letters that take two to six bytes where they are escaped, and blanks up to the limit of
// a body.
func largest(t *testing.T) string {
	t.Helper()
	text := func(characters int) string { return repeat([]rune("\u2028é\"😀"), characters) }
	lines := make([]map[string]any, 200)
	for i := range lines {
		lines[i] = map[string]any{"sku": text(64), "quantity": 1, "unit_price": 1}
	}
	metadata := make(map[string]string)
	for i := range 20 {
		metadata[fmt.Sprintf("%02d", i)+text(38)] = text(500)
	}
	var body strings.Builder
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	err := e.Encode(map[string]any{
		"currency": "EUR", "lines": lines, "payment_method": "pm_card_visa", "note": text(2000), "metadata": metadata,
		"ship_to": map[string]string{
			"name": text(200), "line1": text(200), "line2": text(200), "city": text(200), "region": text(200), "postal_code": "10115", "country": "DE",
		},
	})
	if err != nil || body.Len() > maxBody {
		t.Fatalf("got %d bytes, %v, want at most %d", body.Len(), err, maxBody)
	}
	return body.String() + strings.Repeat(" ", maxBody-body.Len())
}

// repeat makes a text of so many characters.
func repeat(letters []rune, characters int) string {
	text := make([]rune, characters)
	for i := range text {
		text[i] = letters[i%len(letters)]
	}
	return string(text)
}
