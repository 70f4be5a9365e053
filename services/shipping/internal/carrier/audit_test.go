package carrier_test

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

	"github.com/throughline/throughline/services/shipping/internal/carrier"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
	simulator "github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/control"
)

// books is a carrier with a ledger of its own, and a client of it.
type books struct {
	t      *testing.T
	client *carrier.Client
	url    string
	now    atomic.Int64 // in Unix milliseconds
}

func open(t *testing.T) *books {
	t.Helper()
	b := &books{t: t}
	b.now.Store(1_700_000_000_000)
	server, err := simulator.New(simulator.Config{
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.UnixMilli(b.now.Load()) },
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
	b.url, b.client = s.URL, dial(t, s.URL)
	return b
}

func dial(t *testing.T, url string) *carrier.Client {
	t.Helper()
	c := carrier.New(carrier.Config{URL: url, Key: "carrier_key", Timeout: 10 * time.Second})
	t.Cleanup(c.Close)
	return c
}

// ship books a shipment of the order and brings it to the status; and gives what an audit is to find of it.
func (b *books) ship(order uuid.UUID, want shipping.Status) carrier.Entry {
	b.t.Helper()
	o := b.client.Order(order, reference)
	s, err := o.Create(b.t.Context(), shipping.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", Country: "DE"}, nil)
	switch {
	case err != nil:
	case want == shipping.Dispatched:
		s, err = o.Dispatch(b.t.Context(), s.ID)
	case want == shipping.Cancelled:
		s, err = o.Cancel(b.t.Context(), s.ID)
	case want == shipping.Lost:
		_, err = control.New(b.url).Act(b.t.Context(), order.String(), "lose")
		s.Status = shipping.Lost
	}
	if err != nil || s.Status != want {
		b.t.Fatalf("shipping: got %s, %v, want %s", s.Status, err, want)
	}
	return carrier.Entry{
		OrderID: order, Reference: reference.String(), ID: s.ID, Status: want, CreatedAt: time.UnixMilli(b.now.Load()).UTC(),
	}
}

// all reads every page.
func (b *books) all(from time.Time, limit int) (entries []carrier.Entry, pages int) {
	b.t.Helper()
	for after := ""; ; {
		page, next, err := b.client.ListShipments(b.t.Context(), from, after, limit)
		if err != nil {
			b.t.Fatalf("listing after %q: %v", after, err)
		}
		entries = append(entries, page...)
		if pages++; next == "" || pages > 100 {
			return entries, pages
		}
		after = next
	}
}

func equal(t *testing.T, what string, got, want []carrier.Entry) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%+v, want\n%+v", what, got, want)
	}
}

// TestListShipments reads a ledger of each status, and of an order with two.
func TestListShipments(t *testing.T) {
	t.Parallel()
	b := open(t)
	twice := uuid.New()
	want := []carrier.Entry{b.ship(uuid.New(), shipping.Dispatched), b.ship(twice, shipping.Cancelled)}
	b.now.Add(1)
	cut := time.UnixMilli(b.now.Load())
	want = append(want, b.ship(twice, shipping.Created), b.ship(uuid.New(), shipping.Lost))
	got, pages := b.all(cut, 0)
	equal(t, "since the millisecond", got, want[2:])
	if pages != 1 {
		t.Errorf("pages: got %d, want 1", pages)
	}
	for limit, wantPages := range map[int]int{1: 4, 3: 2, 4: 1, 100_000: 1} {
		got, pages := b.all(time.Time{}, limit)
		equal(t, fmt.Sprint("by pages of ", limit), got, want)
		if pages != wantPages {
			t.Errorf("pages of %d: got %d, want %d", limit, pages, wantPages)
		}
	}
	found, err := b.client.FindShipments(t.Context(), twice)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "of one order", found, want[1:3])
	if found, err := b.client.FindShipments(t.Context(), uuid.New()); err != nil || len(found) != 0 {
		t.Errorf("of no order: got %v, %v, want none", found, err)
	}
}

// TestLargeShipments: a page of shipments of the largest size can be read.
func TestLargeShipments(t *testing.T) {
	t.Parallel()
	one := `{"id":"shp_1","status":"created","items":"` + strings.Repeat("x", 60<<10) + `"}`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"shipments":[%s]}`, strings.Join(slices.Repeat([]string{one}, carrier.MaxPage), ","))
	}))
	t.Cleanup(s.Close)
	page, _, err := dial(t, s.URL).ListShipments(t.Context(), time.Time{}, "", 0)
	if err != nil || len(page) != carrier.MaxPage {
		t.Errorf("listing: got %d, %v, want %d", len(page), err, carrier.MaxPage)
	}
}

// TestOthersAtTheCarrier: a shipment that names none of our orders is shown as such.
func TestOthersAtTheCarrier(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"shipments":[{"id":"shp_9","status":"held\u0000","reference":"by hand","order_id":"","created_at":"2026-01-02T03:04:05Z"}]}`))
	}))
	t.Cleanup(s.Close)
	got, next, err := dial(t, s.URL).ListShipments(t.Context(), time.Time{}, "", 0)
	if err != nil || next != "" {
		t.Fatalf("listing: got next %q, %v", next, err)
	}
	equal(t, "listed", got, []carrier.Entry{{
		ID: "shp_9", Status: "held\uFFFD", Reference: "by hand", CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}})
}

// TestUnreadableBooks: an answer that is not what was asked for is an error, and never an empty page.
func TestUnreadableBooks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int
		body   string
		is     error
	}{
		"no list":              {200, `{}`, carrier.ErrUnreadable},
		"no object":            {200, `[]`, carrier.ErrUnreadable},
		"nothing":              {200, ``, carrier.ErrUnreadable},
		"without an id":        {200, `{"shipments":[{"status":"created"}]}`, carrier.ErrUnreadable},
		"an id to fear":        {200, `{"shipments":[{"id":"../x"}]}`, carrier.ErrUnreadable},
		"a time that is none":  {200, `{"shipments":[{"id":"shp_1","created_at":"today"}]}`, carrier.ErrUnreadable},
		"too long":             {200, `{"shipments":[]}` + strings.Repeat(" ", carrier.MaxPage<<16), carrier.ErrUnreadable},
		"a wrong key of ours":  {401, `{"error":{"code":"unauthorized","message":"no"}}`, carrier.ErrConfiguration},
		"no such page":         {400, `{"error":{"code":"invalid_request","message":"no"}}`, nil},
		"an error":             {500, `{"error":{"code":"internal","message":"no"}}`, nil},
		"a page of some proxy": {502, `<html>`, carrier.ErrUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			t.Cleanup(s.Close)
			c := dial(t, s.URL)
			page, next, err := c.ListShipments(t.Context(), time.Time{}, "", 0)
			if e, ok := errors.AsType[*carrier.Error](err); !ok || e.Status != tt.status || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("listing: got %v, want an error of the carrier's with status %d and %v", err, tt.status, tt.is)
			}
			if page != nil || next != "" {
				t.Errorf("page: got %v and %q, want none", page, next)
			}
			if _, refused := carrier.Refusal(err); refused {
				t.Errorf("error: got a definite no, %v", err)
			}
			if _, err := c.FindShipments(t.Context(), orderID); err == nil {
				t.Error("finding: got no error")
			}
		})
	}
}
