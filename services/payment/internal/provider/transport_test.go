package provider_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/money"
	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// seen is one request as a server got it.
type seen struct {
	connection int
	method     string
	path, key  string
	header     http.Header
	body       string
}

// server answers requests on kept-alive connections; answer gets the number of the request, from 1, and what to write. An empty
// answer cuts the connection.
type server struct {
	url string

	mu       sync.Mutex
	requests []seen
}

func serve(t *testing.T, answer func(n int, r seen) string) *server {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{url: "http://" + ln.Addr().String()}
	var connections sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		connections.Wait()
	})
	connections.Go(func() {
		for n := 1; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { s.talk(c, n, answer) })
		}
	})
	return s
}

func (s *server) talk(c net.Conn, connection int, answer func(int, seen) string) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		r := seen{connection, req.Method, req.URL.Path, req.Header.Get("Idempotency-Key"), req.Header, string(body)}
		s.mu.Lock()
		s.requests = append(s.requests, r)
		n := len(s.requests)
		s.mu.Unlock()
		out := answer(n, r)
		if out == "" {
			return
		}
		if _, err := io.WriteString(c, out); err != nil {
			return
		}
	}
}

func (s *server) seen() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.requests...)
}

func ok(body string) string { return respond("200 OK", body) }

func respond(status, body string) string {
	var b strings.Builder
	resp := http.Response{
		ProtoMajor: 1, ProtoMinor: 1, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": {"application/json"}},
	}
	_ = resp.Write(&b)
	return strings.Replace(b.String(), "000 status code 0", status, 1)
}

var charge = payment.Charge{
	OrderID: uuid.MustParse("bc765b28-bc4d-58fd-a83e-d135647f37a8"), StepKey: uuid.MustParse("5665917c-6373-5fb0-9b0b-bdabd76539bc"),
	Amount: money.Money{Currency: "EUR", Minor: 2500}, Method: "pm_card_visa",
}

// intent is an answer about the charge.
func intent(status string) string {
	return `{"id":"pi_1","object":"payment_intent","status":"` + status + `","amount":2500,"currency":"eur","metadata":{"order_id":"` +
		charge.OrderID.String() + `","step_key":"` + charge.StepKey.String() + `"}}`
}

func client(t *testing.T, url string) *provider.Payment {
	t.Helper()
	c := provider.New(provider.Config{URL: url, Key: "sk_test_1", Timeout: 10 * time.Second})
	t.Cleanup(c.Close)
	p, err := c.Payment(charge)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOneCallIsOneRequest: net/http would send a request with an Idempotency-Key again when a kept-alive connection dies before
// the answer, and the SDK would send it again after any transport error.
func TestOneCallIsOneRequest(t *testing.T) {
	t.Parallel()
	key := uuid.MustParse("75ed65ec-e66d-53c0-8e81-6acb925dacbe")
	for name, write := range map[string]func(context.Context, *provider.Payment) error{
		"create": func(ctx context.Context, p *provider.Payment) error { _, err := p.Create(ctx, key); return err },
		"confirm": func(ctx context.Context, p *provider.Payment) error {
			_, err := p.Confirm(ctx, key, "pi_1")
			return err
		},
		"capture": func(ctx context.Context, p *provider.Payment) error {
			_, err := p.Capture(ctx, key, "pi_1")
			return err
		},
		"cancel": func(ctx context.Context, p *provider.Payment) error {
			_, err := p.Cancel(ctx, key, "pi_1", payment.Abandoned)
			return err
		},
		"refund": func(ctx context.Context, p *provider.Payment) error {
			_, err := p.RefundRest(ctx, key, "pi_1")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(n int, _ seen) string {
				if n == 1 {
					return ok(intent("requires_confirmation"))
				}
				return "" // and cut
			})
			p := client(t, s.url)
			if _, err := p.Retrieve(t.Context(), "pi_1"); err != nil {
				t.Fatalf("retrieving: %v", err)
			}
			err := write(t.Context(), p)
			if err == nil {
				t.Fatal("writing over a connection that was cut: got no error")
			}
			if _, refused := provider.Refusal(err); refused || provider.Replayed(err) {
				t.Errorf("error: got %v, want one that leaves open what happened", err)
			}
			got := s.seen()
			if len(got) != 2 || got[1].connection != got[0].connection {
				t.Fatalf("requests: got %+v, want one read, and one write over the same connection", got)
			}
			if got[1].key != key.String() {
				t.Errorf("key: got %s, want %s", got[1].key, key)
			}
		})
	}
}

// TestBodilessPost: a POST without parameters has no body to be sent, and is not sent again all the same.
func TestBodilessPost(t *testing.T) {
	t.Parallel()
	s := serve(t, func(n int, _ seen) string {
		if n == 1 {
			return ok("{}")
		}
		return ""
	})
	rt := provider.Once(http.DefaultTransport.(*http.Transport).Clone())
	for n, wantErr := range []bool{false, true} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/x", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k")
		resp, err := rt.RoundTrip(req)
		if (err != nil) != wantErr {
			t.Fatalf("request %d: got %v, want an error: %t", n+1, err, wantErr)
		}
		if err == nil {
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	}
	got := s.seen()
	if len(got) != 2 || got[0].connection != got[1].connection {
		t.Fatalf("requests: got %+v, want two over one connection", got)
	}
	if got := got[0].header.Get("Transfer-Encoding"); got != "" || s.seen()[0].body != "" {
		t.Errorf("body: got encoding %q and %q, want none", got, s.seen()[0].body)
	}
}

// TestWhatLeaves: nothing goes to the provider that is not for it.
func TestWhatLeaves(t *testing.T) {
	t.Parallel()
	s := serve(t, func(int, seen) string { return ok(intent("requires_confirmation")) })
	p := client(t, s.url)
	for range 2 { // the SDK's telemetry would begin with the second request
		if _, err := p.Create(t.Context(), uuid.New()); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range s.seen() {
		for _, name := range []string{"X-Stripe-Client-Telemetry", "X-Stripe-Client-User-Agent", "Traceparent", "Baggage"} {
			if got := r.header.Get(name); got != "" {
				t.Errorf("%s: got %q, want none", name, got)
			}
		}
	}
}

// TestAnswers: what an answer may and may not mean.
func TestAnswers(t *testing.T) {
	t.Parallel()
	swap := func(from, to string) string { return strings.Replace(intent("requires_capture"), from, to, 1) }
	failure := func(kind, rest string) string { return `{"error":{"type":"` + kind + `","message":"no"` + rest + `}}` }
	for name, tt := range map[string]struct {
		status, body string
		reason       string // of a definite no
		is           error
	}{
		"of another order":           {"200 OK", swap(charge.OrderID.String(), uuid.NewString()), "", provider.ErrNotOurs},
		"of another step":            {"200 OK", swap(charge.StepKey.String(), uuid.NewString()), "", provider.ErrNotOurs},
		"about another amount":       {"200 OK", swap("2500", "2499"), "", provider.ErrNotOurs},
		"about another currency":     {"200 OK", swap("eur", "usd"), "", provider.ErrNotOurs},
		"without an id":              {"200 OK", swap("pi_1", ""), "", provider.ErrNotOurs},
		"with an id to be afraid of": {"200 OK", swap("pi_1", "../refunds?x"), "", provider.ErrNotOurs},
		"held more than possible":    {"200 OK", swap(`"currency"`, `"amount_capturable":-1,"currency"`), "", provider.ErrNotOurs},
		"no object":                  {"200 OK", "[]", "", nil},
		"nothing":                    {"200 OK", "", "", nil},
		"a page":                     {"402 Payment Required", "<html>no</html>", "", nil},
		"a decline":                  {"402 Payment Required", failure("card_error", `,"code":"card_declined","decline_code":"insufficient_funds"`), "insufficient_funds", nil},
		"a decline without a code":   {"402 Payment Required", failure("card_error", ""), "card_declined", nil},
		"402 of another kind":        {"402 Payment Required", failure("api_error", ""), "", nil},
		"a key in use":               {"409 Conflict", failure("idempotency_error", `,"code":"idempotency_key_in_use"`), "", nil},
		"a key used for others":      {"400 Bad Request", failure("idempotency_error", ""), "", nil},
		"an unexpected state":        {"400 Bad Request", failure("invalid_request_error", `,"code":"payment_intent_unexpected_state"`), "", nil},
		"an unknown method":          {"400 Bad Request", failure("invalid_request_error", `,"code":"resource_missing","param":"payment_method"`), "invalid_payment_method", nil},
		"a wrong key of ours":        {"401 Unauthorized", failure("invalid_request_error", ""), "", provider.ErrConfiguration},
		"not found":                  {"404 Not Found", failure("invalid_request_error", `,"code":"resource_missing","param":"intent"`), "", nil},
		"too many":                   {"429 Too Many Requests", failure("invalid_request_error", `,"code":"rate_limit"`), "", nil},
		"an error":                   {"500 Internal Server Error", failure("api_error", ""), "", nil},
		"a card error by a 500":      {"500 Internal Server Error", failure("card_error", `,"code":"card_declined"`), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(int, seen) string { return respond(tt.status, tt.body) })
			_, err := client(t, s.url).Confirm(t.Context(), uuid.New(), "pi_1")
			if err == nil {
				t.Fatal("got no error")
			}
			if got, _ := provider.Refusal(err); got != tt.reason {
				t.Errorf("reason: got %q, want %q (%v)", got, tt.reason, err)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error: got %v, want %v", err, tt.is)
			}
		})
	}
	t.Run("text that a text column cannot hold", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(int, seen) string { return respond("502 Bad Gateway", "\x00\xff"+strings.Repeat("x", 1<<16)) })
		_, err := client(t, s.url).Confirm(t.Context(), uuid.New(), "pi_1")
		if got := err.Error(); strings.Contains(got, "\x00") || !utf8.ValidString(got) || len(got) > 1000 {
			t.Errorf("error: got %d bytes %.100q, want a short and valid text", len(got), got)
		}
	})
}
