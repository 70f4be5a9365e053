package carrier_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/throughline/throughline/services/shipping/internal/carrier"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

var (
	orderID   = uuid.MustParse("bc765b28-bc4d-58fd-a83e-d135647f37a8")
	reference = uuid.MustParse("5665917c-6373-5fb0-9b0b-bdabd76539bc")
)

const good = `{"id":"shp_1","status":"created","reference":"5665917c-6373-5fb0-9b0b-bdabd76539bc","order_id":"bc765b28-bc4d-58fd-a83e-d135647f37a8"}`

func order(t *testing.T, url string) *carrier.Order {
	t.Helper()
	c := carrier.New(carrier.Config{URL: url, Key: "carrier_key", Timeout: 10 * time.Second})
	t.Cleanup(c.Close)
	return c.Order(orderID, reference)
}

func create(ctx context.Context, o *carrier.Order) error {
	_, err := o.Create(ctx, shipping.Address{Name: "A. Buyer"}, []shipping.Item{{SKU: "BOOK-1", Quantity: 1}})
	return err
}

// TestOneCallIsOneRequest: a kept-alive connection dies before the answer, and nothing is sent again.
func TestOneCallIsOneRequest(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(context.Context, *carrier.Order) error{
		"create":   create,
		"cancel":   func(ctx context.Context, o *carrier.Order) error { _, err := o.Cancel(ctx, "shp_1"); return err },
		"dispatch": func(ctx context.Context, o *carrier.Order) error { _, err := o.Dispatch(ctx, "shp_1"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var writes, connections atomic.Int64
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Idempotency-Key"); got != "" {
					t.Errorf("Idempotency-Key: got %q, want none", got)
				}
				if r.Method == http.MethodGet {
					_, _ = w.Write([]byte(good))
					return
				}
				writes.Add(1)
				panic(http.ErrAbortHandler) // cuts the connection
			}))
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections.Add(1)
				}
			}
			s.Start()
			t.Cleanup(s.Close)
			o := order(t, s.URL)
			if _, err := o.Get(t.Context(), "shp_1"); err != nil {
				t.Fatalf("getting: %v", err)
			}
			err := write(t.Context(), o)
			if _, refused := carrier.Refusal(err); err == nil || refused || carrier.NothingSent(err) {
				t.Errorf("got %v, want an error that leaves open what happened", err)
			}
			if writes.Load() != 1 || connections.Load() != 1 {
				t.Errorf("got %d writes over %d connections, want one over the kept-alive one", writes.Load(), connections.Load())
			}
		})
	}
}

func TestNothingSent(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close() // now nobody listens there
	if err := create(t.Context(), order(t, "http://"+ln.Addr().String())); !carrier.NothingSent(err) {
		t.Errorf("got %v, want an error that says that nothing was sent", err)
	}
}

// TestAnswers: what an answer may and may not mean.
func TestAnswers(t *testing.T) {
	t.Parallel()
	swap := func(from, to string) string { return strings.Replace(good, from, to, 1) }
	failure := func(code string) string { return `{"error":{"code":"` + code + `","message":"no"}}` }
	for name, tt := range map[string]struct {
		status   int
		body     string
		reason   string // of a definite no
		conflict shipping.Status
		is       error
	}{
		"of another order":     {201, swap(orderID.String(), uuid.NewString()), "", "", carrier.ErrNotOurs},
		"of another reference": {201, swap(reference.String(), uuid.NewString()), "", "", carrier.ErrNotOurs},
		"without an id":        {201, swap("shp_1", ""), "", "", carrier.ErrUnreadable},
		"with an id to fear":   {201, swap("shp_1", "../x?y"), "", "", carrier.ErrUnreadable},
		"no object":            {201, "[]", "", "", carrier.ErrUnreadable},
		"nothing":              {201, "", "", "", carrier.ErrUnreadable},
		"another success":      {200, good, "", "", nil},
		"too long":             {201, good + strings.Repeat(" ", 1<<20), "", "", carrier.ErrUnreadable},
		"a refused address":    {422, failure("address_refused"), "address_refused", "", nil},
		"a page with 422":      {422, "<html>no</html>", "", "", carrier.ErrUnreadable},
		"another 422":          {422, failure("mood"), "", "", nil},
		"an invalid request":   {400, failure("invalid_request"), "rejected_by_carrier", "", nil},
		"another 400":          {400, failure("mood"), "", "", nil},
		"a wrong key of ours":  {401, failure("unauthorized"), "", "", carrier.ErrConfiguration},
		"not found":            {404, failure("not_found"), "", "", nil},
		"already dispatched":   {409, failure("already_dispatched"), "", shipping.Dispatched, nil},
		"cancelled":            {409, failure("cancelled"), "", shipping.Cancelled, nil},
		"lost":                 {409, failure("lost"), "", shipping.Lost, nil},
		"another conflict":     {409, failure("mood"), "", "", nil},
		"an error":             {500, failure("address_refused"), "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.body))
			}))
			t.Cleanup(s.Close)
			err := create(t.Context(), order(t, s.URL))
			if err == nil {
				t.Fatal("got no error")
			}
			if got, _ := carrier.Refusal(err); got != tt.reason {
				t.Errorf("reason: got %q, want %q (%v)", got, tt.reason, err)
			}
			if got, _ := carrier.Conflict(err); got != tt.conflict {
				t.Errorf("conflict: got %q, want %q (%v)", got, tt.conflict, err)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error: got %v, want %v", err, tt.is)
			}
		})
	}
	t.Run("a redirect is not followed", func(t *testing.T) {
		t.Parallel()
		var requests atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			http.Redirect(w, r, "/v1/shipments", http.StatusTemporaryRedirect)
		}))
		t.Cleanup(s.Close)
		if err := create(t.Context(), order(t, s.URL)); err == nil || requests.Load() != 1 {
			t.Errorf("got %v and %d requests, want an error and one", err, requests.Load())
		}
	})
	t.Run("text that a text column cannot hold", func(t *testing.T) {
		t.Parallel()
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("\x00\xff" + strings.Repeat("x", 1<<16)))
		}))
		t.Cleanup(s.Close)
		if got := create(t.Context(), order(t, s.URL)).Error(); strings.Contains(got, "\x00") || !utf8.ValidString(got) || len(got) > 1000 {
			t.Errorf("error: got %d bytes %.100q, want a short and valid text", len(got), got)
		}
	})
}
