package provider_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/money"
	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/provider"
	"github.com/throughline/throughline/services/simulator/control"
	simulator "github.com/throughline/throughline/services/simulator/payment"
)

// books is a provider with a ledger of its own, and a client of it.
type books struct {
	t      *testing.T
	client *provider.Client
	url    string
	now    atomic.Int64 // in Unix seconds
}

func open(t *testing.T, lag time.Duration) *books {
	t.Helper()
	b := &books{t: t}
	b.now.Store(1_700_000_000)
	server, err := simulator.New(simulator.Config{
		SearchLag: lag, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Unix(b.now.Load(), 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		s.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	b.url = s.URL
	b.client = provider.New(provider.Config{URL: s.URL, Key: "sk_test_1", Timeout: 10 * time.Second})
	t.Cleanup(b.client.Close)
	return b
}

// pay makes an intent of the order, held, and captured if want says so; and gives what an audit is to find of it.
func (b *books) pay(order uuid.UUID, m money.Money, want payment.Status) provider.Entry {
	b.t.Helper()
	p, err := b.client.Payment(payment.Charge{OrderID: order, StepKey: uuid.New(), Amount: m, Method: "pm_card_visa"})
	if err != nil {
		b.t.Fatal(err)
	}
	in, err := p.Create(b.t.Context(), uuid.New())
	if err == nil && want != payment.RequiresConfirmation {
		in, err = p.Confirm(b.t.Context(), uuid.New(), in.ID)
	}
	switch {
	case err != nil:
	case want == payment.Succeeded:
		in, err = p.Capture(b.t.Context(), uuid.New(), in.ID)
	case want == payment.Canceled:
		in, err = p.Cancel(b.t.Context(), uuid.New(), in.ID, payment.RequestedByCustomer)
	}
	if err != nil || in.Status != want {
		b.t.Fatalf("paying: got %s, %v, want %s", in.Status, err, want)
	}
	return provider.Entry{
		OrderID: order, ID: in.ID, Status: want, Amount: m, Held: in.Held, Captured: in.Captured,
		CreatedAt: time.Unix(b.now.Load(), 0).UTC(),
	}
}

func eur(minor int64) money.Money { return money.Money{Currency: "EUR", Minor: minor} }

// all reads every page.
func (b *books) all(from time.Time, limit int) (entries []provider.Entry, pages int) {
	b.t.Helper()
	for after := ""; ; {
		page, next, err := b.client.ListIntents(b.t.Context(), from, after, limit)
		if err != nil {
			b.t.Fatalf("listing after %q: %v", after, err)
		}
		entries = append(entries, page...)
		if pages++; next == "" {
			return entries, pages
		}
		after = next
	}
}

func equal(t *testing.T, what string, got, want []provider.Entry) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%+v, want\n%+v", what, got, want)
	}
}

// TestListIntents reads a ledger of each status, with money of more and of fewer decimals than the provider counts.
func TestListIntents(t *testing.T) {
	t.Parallel()
	b := open(t, -1)
	refunded := b.pay(uuid.New(), eur(2500), payment.Succeeded)
	if _, err := control.New(b.url).Act(t.Context(), refunded.OrderID.String(), "refund"); err != nil {
		t.Fatal(err)
	}
	refunded.Refunded = 2500
	b.now.Add(1)
	cut := b.now.Load()
	want := []provider.Entry{ // newest first
		b.pay(uuid.New(), money.Money{Currency: "KWD", Minor: 12_340}, payment.Succeeded),
		b.pay(uuid.New(), money.Money{Currency: "ISK", Minor: 500}, payment.RequiresCapture),
		b.pay(uuid.New(), eur(1), payment.RequiresConfirmation),
		b.pay(uuid.New(), eur(3000), payment.Canceled), // its charge says refunded, and is not
	}
	slices.Reverse(want)
	if want[3].Captured != 12_340 || want[2].Held != 500 {
		t.Fatalf("made: got %+v", want)
	}
	got, pages := b.all(time.Unix(cut, 0).Add(999*time.Millisecond), 0)
	equal(t, "since the second", got, want)
	if pages != 1 {
		t.Errorf("pages: got %d, want 1", pages)
	}
	want = append(want, refunded)
	for limit, wantPages := range map[int]int{1: 5, 2: 3, 5: 1, 101: 1} {
		got, pages := b.all(time.Time{}, limit)
		equal(t, fmt.Sprint("by pages of ", limit), got, want)
		if pages != wantPages {
			t.Errorf("pages of %d: got %d, want %d", limit, pages, wantPages)
		}
	}
	for _, e := range want {
		got, err := b.client.LookUpIntent(t.Context(), e.ID)
		if err != nil || got != e {
			t.Errorf("looked up: got %+v, %v, want %+v", got, err, e)
		}
	}
}

// TestPartialCapture: what was released with a smaller capture was never ours, and is no refund.
func TestPartialCapture(t *testing.T) {
	t.Parallel()
	b := open(t, -1)
	want := b.pay(uuid.New(), eur(2500), payment.RequiresCapture)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/v1/payment_intents/"+want.ID+"/capture", strings.NewReader("amount_to_capture=2000"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk_test_1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("capturing a part: got %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	want.Status, want.Held, want.Captured = payment.Succeeded, 0, 2000
	got, _ := b.all(time.Time{}, 0)
	equal(t, "listed", got, []provider.Entry{want})
}

func TestSearchIntents(t *testing.T) {
	t.Parallel()
	b := open(t, 10*time.Second)
	order := uuid.New()
	want := []provider.Entry{b.pay(order, eur(2500), payment.Succeeded), b.pay(order, eur(10), payment.RequiresCapture)}
	slices.Reverse(want)
	b.pay(uuid.New(), eur(2500), payment.Succeeded)
	got, err := b.client.SearchIntents(t.Context(), order)
	if err != nil || len(got) != 0 {
		t.Errorf("before they can be found: got %+v, %v, want none", got, err)
	}
	b.now.Add(10)
	if got, err = b.client.SearchIntents(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	equal(t, "found", got, want)
}

// TestSearchIntentsOverPages: an order of more intents than a page holds is found whole.
func TestSearchIntentsOverPages(t *testing.T) {
	t.Parallel()
	one := `{"id":"pi_%d","status":"canceled","amount":2500,"currency":"eur","created":1700000000,"metadata":{"order_id":"` + charge.OrderID.String() + `"}}`
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch page := r.URL.Query().Get("page"); page {
		case "":
			if requests.Add(1) > 1 {
				t.Error("the first page was asked for again")
				w.WriteHeader(http.StatusTeapot)
				return
			}
			_, _ = fmt.Fprintf(w, `{"object":"search_result","has_more":true,"next_page":"p2","data":[`+one+`]}`, 1)
		case "p2":
			_, _ = fmt.Fprintf(w, `{"object":"search_result","has_more":false,"next_page":null,"data":[`+one+`]}`, 2)
		default:
			t.Errorf("page: got %q, want none or p2", page)
		}
	}))
	t.Cleanup(s.Close)
	c := provider.New(provider.Config{URL: s.URL, Key: "sk_test_1", Timeout: 10 * time.Second})
	t.Cleanup(c.Close)
	got, err := c.SearchIntents(t.Context(), charge.OrderID)
	if err != nil || len(got) != 2 || got[0].ID != "pi_1" || got[1].ID != "pi_2" {
		t.Errorf("found: got %+v, %v, want both", got, err)
	}
}

// TestOthersOnTheAccount: an intent that is none of ours is shown as such, whatever money it is about.
func TestOthersOnTheAccount(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]string{"names nothing": `{}`, "names something else": `{"order_id":"invoice 7"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(int, seen) string {
				return ok(`{"object":"list","has_more":false,"data":[{"id":"pi_9","status":"processing","amount":5,"currency":"xyz","created":1700000000,"metadata":` + metadata + `}]}`)
			})
			c := provider.New(provider.Config{URL: s.url, Key: "sk_test_1", Timeout: 10 * time.Second})
			t.Cleanup(c.Close)
			got, _, err := c.ListIntents(t.Context(), time.Time{}, "", 0)
			want := []provider.Entry{{ID: "pi_9", Status: payment.Processing, CreatedAt: time.Unix(1_700_000_000, 0).UTC()}}
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "listed", got, want)
		})
	}
}

// TestUnreadableBooks: an answer that is not what was asked for is an error, and never an empty page.
func TestUnreadableBooks(t *testing.T) {
	t.Parallel()
	list := func(intent string) string { return `{"object":"list","has_more":false,"data":[` + intent + `]}` }
	ours := func(id, amount, currency string) string {
		return list(`{"id":"` + id + `","status":"succeeded","amount":` + amount + `,"currency":"` + currency + `","metadata":{"order_id":"` + charge.OrderID.String() + `"}}`)
	}
	for name, tt := range map[string]struct {
		status, body string
		is           error
	}{
		"no list":                {"200 OK", `{}`, nil},
		"no object":              {"200 OK", `[]`, nil},
		"nothing":                {"200 OK", ``, nil},
		"without an id":          {"200 OK", ours("", "1", "eur"), nil},
		"an id to be afraid of":  {"200 OK", ours("../x", "1", "eur"), nil},
		"a currency of no state": {"200 OK", ours("pi_1", "1", "xyz"), provider.ErrAmount},
		"less than nothing":      {"200 OK", ours("pi_1", "-1", "eur"), provider.ErrAmount},
		"a wrong key of ours":    {"401 Unauthorized", `{"error":{"type":"invalid_request_error","message":"no"}}`, provider.ErrConfiguration},
		"an error":               {"500 Internal Server Error", `{"error":{"type":"api_error","message":"no"}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(int, seen) string { return respond(tt.status, tt.body) })
			c := provider.New(provider.Config{URL: s.url, Key: "sk_test_1", Timeout: 10 * time.Second})
			t.Cleanup(c.Close)
			page, next, err := c.ListIntents(t.Context(), time.Time{}, "", 0)
			if e, ok := errors.AsType[*provider.Error](err); !ok || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("listing: got %v (%T), want an error of the provider's with %v", err, e, tt.is)
			}
			if page != nil || next != "" {
				t.Errorf("page: got %v and %q, want none", page, next)
			}
			if _, err := c.SearchIntents(t.Context(), charge.OrderID); err == nil {
				t.Error("searching: got no error")
			}
			if _, refused := provider.Refusal(err); refused {
				t.Errorf("error: got a definite no, %v", err)
			}
		})
	}
}

// TestNoSuchIntent: what is not there is told by the status.
func TestNoSuchIntent(t *testing.T) {
	t.Parallel()
	b := open(t, -1)
	for name, ask := range map[string]func() error{
		"404": func() error { _, err := b.client.LookUpIntent(t.Context(), "pi_nope"); return err },
		"400": func() error { _, _, err := b.client.ListIntents(t.Context(), time.Time{}, "pi_nope", 0); return err },
	} {
		err := ask()
		if e, ok := errors.AsType[*provider.Error](err); !ok || fmt.Sprint(e.Status) != name || e.Code != "resource_missing" {
			t.Errorf("got %v, want status %s, resource_missing", err, name)
		}
	}
}
