package storefront

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

var book = NewOrder{
	Currency: "EUR", Lines: []Line{{SKU: "BOOK-1", Quantity: 2, UnitPrice: 1250}}, PaymentMethod: "pm_card_visa",
	ShipTo: Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"},
}

func TestPlaceOrder(t *testing.T) {
	t.Parallel()
	const inProgress = `{"title":"T","status":409,"detail":"D","reason":"KEY_IN_PROGRESS"}`
	tests := []struct {
		name     string
		faults   []fault
		replayed bool
	}{
		{"no fault", nil, false},
		{"dropped before the effect", []fault{dropBefore, dropBefore}, false},
		{"dropped after the effect", []fault{dropAfter}, true},
		{"dropped after both", []fault{dropAfter, dropAfter}, true},
		{"half an answer", []fault{halfAnswer}, true},
		{"in progress", []fault{say(409, inProgress)}, false},
		{"too many", []fault{say(429, "")}, false},
		{"a proxy's page", []fault{say(502, "<html>"), say(503, ""), say(504, "{}")}, false},
		{"an error after the effect", []fault{sayAfter(500, "")}, true},
		{"somebody else's 200", []fault{say(200, "<html>hello</html>"), say(200, "{}"), say(200, "null")}, false},
		{"a stored answer that expired", []fault{say(200, order(`o-"k"`, "CONFIRMED"), "Idempotency-Key-Expired", "true")}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// A request before, so that the connection is a reused one, which is when net/http repeats by itself.
			s, c := newShop(t, append([]fault{healthy}, tt.faults...)...)
			if _, err := c.GetOrder(t.Context(), "o-1"); err != nil {
				t.Fatalf("GetOrder: %v", err)
			}
			pauses := 0
			c.pause = func(context.Context, time.Duration) error { pauses++; return nil }
			p, err := c.PlaceOrder(t.Context(), "k", book)
			if err != nil {
				t.Fatalf("PlaceOrder: %v", err)
			}
			if p.Order.ID != `o-"k"` || p.Order.Total != 1<<53-1 || p.Replayed != tt.replayed {
				t.Errorf("got %+v, want order o-\"k\", replayed %v", p, tt.replayed)
			}
			if want := tt.name == "a stored answer that expired"; p.KeyExpired != want {
				t.Errorf("KeyExpired: got %v, want %v", p.KeyExpired, want)
			}
			if want := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC); !p.Order.CreatedAt.Equal(want) {
				t.Errorf("CreatedAt: got %v, want %v", p.Order.CreatedAt, want)
			}
			if s.created > 1 {
				t.Errorf("got %d orders, want one", s.created)
			}
			// One request for each attempt: none was sent behind our back.
			if got, want := len(s.requests)-1, pauses+1; got != want {
				t.Errorf("got %d requests for %d attempts", got, want)
			}
			for _, r := range s.requests[1:] {
				if got := r.Header.Values("Idempotency-Key"); len(got) != 1 || got[0] != `"k"` {
					t.Errorf("Idempotency-Key: got %q, want the one key", got)
				}
			}
		})
	}
}

// Whatever is dropped, one in three, before or after the effect: one order.
func TestPlaceOrderAmongRandomFaults(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	all := []fault{dropBefore, dropAfter, halfAnswer, say(503, ""), sayAfter(500, ""), say(200, "{}"), healthy}
	for range 50 {
		var faults []fault
		for range r.IntN(12) {
			faults = append(faults, all[r.IntN(len(all))])
		}
		s, c := newShop(t, faults...)
		key := NewKey()
		for range 3 {
			if _, err := c.PlaceOrder(t.Context(), key, book); err != nil {
				t.Fatalf("seed %d: PlaceOrder: %v", seed, err)
			}
		}
		if s.created != 1 {
			t.Fatalf("seed %d: got %d orders, want one", seed, s.created)
		}
	}
}

func TestRefusalsAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 307, 400, 401, 403, 404, 405, 413, 415, 422, 431, 501, 505} {
		s, c := newShop(t, say(status, `{"type":"t","title":"T","detail":"D","reason":"R"}`, "Location", "/v1/orders"))
		_, err := c.PlaceOrder(t.Context(), "k", book)
		var e *Error
		if !errors.As(err, &e) || e.StatusCode != status || e.Reason != "R" || len(s.requests) != 1 {
			t.Errorf("%d: got %v after %d requests, want the refusal after 1", status, err, len(s.requests))
		}
	}
	s, c := newShop(t, say(409, `{"title":"T","reason":"CANCEL_TOO_LATE"}`))
	_, err := c.CancelOrder(t.Context(), "k", "o-1", "")
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonCancelTooLate || len(s.requests) != 1 {
		t.Errorf("too late to cancel: got %v after %d requests", err, len(s.requests))
	}
	other := book
	other.Note = "gift"
	if _, err := c.PlaceOrder(t.Context(), "k", book); err != nil {
		t.Fatalf("PlaceOrder: %v", err)
	}
	_, err = c.PlaceOrder(t.Context(), "k", other)
	if !errors.As(err, &e) || e.Reason != ReasonKeyMismatch || len(e.Fields) != 1 || e.Fields[0].Path != "note" ||
		!strings.Contains(err.Error(), "422 KEY_MISMATCH D; note differs") {
		t.Errorf("another order: got %v, want KEY_MISMATCH at note", err)
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	var faults []fault
	for range 9 {
		faults = append(faults, say(503, ""))
	}
	faults = append(faults, say(429, "", "Retry-After", "7"), say(503, "", "Retry-After", "99999"), say(503, "", "Retry-After", "soon"))
	_, c := newShop(t, faults...)
	var got []time.Duration
	c.pause = func(_ context.Context, d time.Duration) error { got = append(got, d); return nil }
	if _, err := c.PlaceOrder(t.Context(), "k", book); err != nil {
		t.Fatalf("PlaceOrder: %v", err)
	}
	if len(got) != 12 {
		t.Fatalf("got %d pauses, want 12", len(got))
	}
	at := firstPause
	for i, d := range got[:9] {
		if d < at/2 || d > at {
			t.Errorf("pause %d: got %v, want %v to %v", i, d, at/2, at)
		}
		at = min(maxPause, 2*at)
	}
	if got[9] != 7*time.Second || got[10] != time.Minute || got[11] > maxPause {
		t.Errorf("pauses that were asked for: got %v, want 7s, 1m and our own", got[9:])
	}
}

func TestUnresolved(t *testing.T) {
	t.Parallel()
	s, c := newShop(t, dropAfter)
	ctx, cancel := context.WithCancel(t.Context())
	c.pause = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	_, err := c.PlaceOrder(ctx, "k", book)
	if !errors.Is(err, ErrUnresolved) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrUnresolved and the context's error", err)
	}
	p, err := c.PlaceOrder(t.Context(), "k", book)
	if err != nil || !p.Replayed || s.created != 1 {
		t.Errorf("the same key again: got %+v, %v and %d orders, want the one order", p, err, s.created)
	}

	// An attempt that is not answered ends by itself.
	release := make(chan struct{})
	_, c = newShop(t, func(*shop, http.ResponseWriter, func() (int, string)) bool { <-release; return false })
	c.attempt = 20 * time.Millisecond
	c.pause = func(context.Context, time.Duration) error { close(release); c.attempt = time.Minute; return nil }
	if _, err := c.PlaceOrder(t.Context(), "k", book); err != nil {
		t.Errorf("after a silent attempt: %v", err)
	}
}

func TestReading(t *testing.T) {
	t.Parallel()
	s, c := newShop(t, dropBefore, say(503, ""))
	var ids []string
	for o, err := range c.Orders(t.Context()) {
		if err != nil {
			t.Fatalf("Orders: %v", err)
		}
		ids = append(ids, o.ID+" "+string(o.Status))
	}
	if got, want := strings.Join(ids, ","), "o-3 PENDING,o-2 NEW_STATUS,o-1 FAILED"; got != want {
		t.Errorf("Orders: got %s, want %s", got, want)
	}
	before := len(s.requests)
	for _, err := range c.Orders(t.Context()) {
		if err != nil {
			t.Errorf("Orders: %v", err)
		}
		break
	}
	if got := len(s.requests) - before; got != 1 {
		t.Errorf("Orders, left after the first: got %d requests, want 1", got)
	}
	if _, err := c.ListOrders(t.Context(), 7, "a b"); err != nil {
		t.Errorf("ListOrders: %v", err)
	}
	if got, want := s.requests[len(s.requests)-1].URL.RawQuery, "page_size=7&page_token=a+b"; got != want {
		t.Errorf("ListOrders: got query %q, want %q", got, want)
	}
	if a, err := c.CancelOrder(t.Context(), "c", "a/../b?", "twice"); err != nil || a.Order.Status != Compensating || a.Replayed {
		t.Errorf("CancelOrder: got %+v, %v", a, err)
	}
	if got, want := s.requests[len(s.requests)-1].URL.EscapedPath(), "/v1/orders/a%2F..%2Fb%3F/cancel"; got != want {
		t.Errorf("CancelOrder: got path %q, want %q", got, want)
	}
}

func TestWaitFinal(t *testing.T) {
	t.Parallel()
	for _, final := range []Status{Confirmed, Failed, Cancelled} {
		s, c := newShop(t)
		var waits []time.Duration
		c.pause = func(_ context.Context, d time.Duration) error {
			if waits = append(waits, d); len(waits) == 12 {
				s.mu.Lock()
				s.status = string(final)
				s.mu.Unlock()
			}
			return nil
		}
		o, err := c.WaitFinal(t.Context(), "o-1")
		if err != nil || o.Status != final || len(s.requests) != 13 {
			t.Errorf("got %s, %v after %d requests, want %s after 13", o.Status, err, len(s.requests), final)
		}
		if waits[0] != firstPoll || waits[11] != maxPoll {
			t.Errorf("pauses: got %v, want %v growing to %v", waits, firstPoll, maxPoll)
		}
	}
	s, c := newShop(t)
	s.status = string(NeedsAttention)
	if o, err := c.WaitFinal(t.Context(), "o-1"); !errors.Is(err, ErrNeedsAttention) || o.ID != "o-1" {
		t.Errorf("an order that waits for a person: got %+v, %v", o, err)
	}
	s.status = string(Pending)
	ctx, cancel := context.WithCancel(t.Context())
	c.pause = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	if o, err := c.WaitFinal(ctx, "o-1"); !errors.Is(err, ErrUnresolved) || o.Status != Pending {
		t.Errorf("a context that ends: got %+v, %v, want the order as last seen and ErrUnresolved", o, err)
	}
}

func TestWaitsAtTheService(t *testing.T) {
	t.Parallel()
	granted := func(status string) fault {
		return say(200, order("o-1", status), "Preference-Applied", "wait=20")
	}
	s, c := newShop(t, say(503, ""), granted("PENDING"), granted("PENDING"), granted("CONFIRMED"))
	c.attempt = time.Second
	var waits []time.Duration
	c.pause = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	if o, err := c.WaitFinal(t.Context(), "o-1"); err != nil || o.Status != Confirmed {
		t.Errorf("WaitFinal: got %+v, %v", o, err)
	}
	for i, r := range s.requests {
		if got := r.Header.Get("Prefer"); got != "wait=20" {
			t.Errorf("request %d: got Prefer %q, want wait=20", i, got)
		}
	}
	if want := []time.Duration{firstPoll, firstPoll}; len(waits) != 3 || waits[1] != want[0] || waits[2] != want[1] {
		t.Errorf("pauses: got %v, want one for the fault and then %v", waits, want)
	}
	for wait, want := range map[time.Duration]string{time.Millisecond: "wait=1", 3 * time.Second: "wait=3", time.Hour: "wait=20", 0: "", -time.Hour: ""} {
		if _, err := c.GetOrderWithin(t.Context(), "o-1", wait); err != nil {
			t.Fatalf("GetOrderWithin: %v", err)
		}
		if got := s.requests[len(s.requests)-1].Header.Get("Prefer"); got != want {
			t.Errorf("GetOrderWithin %v: got Prefer %q, want %q", wait, got, want)
		}
	}
}

// An attempt has its time limit beside what the service may wait.
func TestWaitIsBesideTheAttempt(t *testing.T) {
	t.Parallel()
	_, c := newShop(t)
	c.attempt = time.Minute
	var left time.Duration
	inner := c.http.Transport
	c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		deadline, _ := r.Context().Deadline()
		left = time.Until(deadline)
		return inner.RoundTrip(r)
	})
	if _, err := c.GetOrderWithin(t.Context(), "o-1", 20*time.Second); err != nil {
		t.Errorf("GetOrderWithin: %v", err)
	}
	if left < 70*time.Second || left > 80*time.Second {
		t.Errorf("got %v for an attempt of a minute and a wait of 20 s, want the sum", left)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLookUpKey(t *testing.T) {
	t.Parallel()
	const known = `{"key":"a/b","state":"SETTLED","order_id":"o-1","first_seen_at":"2026-01-02T03:04:05Z","expires_at":"2026-01-03T03:04:05Z","replays":3}`
	s, c := newShop(t, dropBefore, say(200, known), say(200, `{"key":"a","state":"UNKNOWN","order_id":"","replays":0}`))
	k, err := c.LookUpKey(t.Context(), "a/b")
	if err != nil || k.State != KeySettled || k.OrderID != "o-1" || k.Replays != 3 || k.ExpiresAt.Sub(k.FirstSeenAt) != 24*time.Hour {
		t.Errorf("LookUpKey: got %+v, %v", k, err)
	}
	if got, want := s.requests[len(s.requests)-1].URL.EscapedPath(), "/v1/idempotency-keys/%22a%2Fb%22"; got != want {
		t.Errorf("LookUpKey: got path %q, want %q", got, want)
	}
	if k, err := c.LookUpKey(t.Context(), "a"); err != nil || k.State != KeyUnknown || !k.ExpiresAt.IsZero() {
		t.Errorf("LookUpKey of an unknown key: got %+v, %v", k, err)
	}
	if _, err := c.LookUpKey(t.Context(), ""); !errors.Is(err, ErrKey) {
		t.Errorf("LookUpKey of no key: got %v, want ErrKey", err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s, c := newShop(t)
	for _, bad := range []string{"", "é", "a\nb", "a\x00", strings.Repeat("k", 256)} {
		if _, err := c.PlaceOrder(t.Context(), bad, book); !errors.Is(err, ErrKey) {
			t.Errorf("PlaceOrder with key %q: got %v, want ErrKey", bad, err)
		}
	}
	if len(s.requests) != 0 {
		t.Errorf("keys that are none: got %d requests", len(s.requests))
	}
	for key, want := range map[string]string{`a "b", \c`: `"a \"b\", \\c"`, " x ": `" x "`, "k": `"k"`} {
		if _, err := c.PlaceOrder(t.Context(), key, book); err != nil {
			t.Errorf("PlaceOrder with key %q: %v", key, err)
		}
		if got := s.requests[len(s.requests)-1].Header.Get("Idempotency-Key"); got != want {
			t.Errorf("key %q: got header %s, want %s", key, got, want)
		}
	}
	seen := map[string]bool{}
	for range 1000 {
		k := NewKey()
		if seen[k] || !printable(k) || len(k) < 26 {
			t.Fatalf("NewKey: got %q", k)
		}
		seen[k] = true
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, u := range []string{"", "localhost:8080", "ftp://x", "http://", "http://x?a=b", "http://x/#f", "http://%zz"} {
		if _, err := New(u, "key"); !errors.Is(err, ErrConfig) {
			t.Errorf("New(%q): got %v, want ErrConfig", u, err)
		}
	}
	for _, k := range []string{"", "a b", "a\n", "é"} {
		if _, err := New("http://x", k); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), `"`+k) {
			t.Errorf("New with API key %q: got %v, want ErrConfig", k, err)
		}
	}
}
