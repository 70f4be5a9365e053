package storefront

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// shop is a service that keeps one order per key, and fails as it is told to: once for each fault, in order.
type shop struct {
	t      *testing.T
	server *httptest.Server

	mu       sync.Mutex
	faults   []fault
	requests []*http.Request // without bodies
	orders   map[string]string
	created  int
	status   string
}

// fault answers a request in the place of, or after, the effect. It says whether the request is done with.
type fault func(s *shop, w http.ResponseWriter, effect func() (int, string)) bool

func newShop(t *testing.T, faults ...fault) (*shop, *Client) {
	t.Helper()
	s := &shop{t: t, faults: faults, orders: map[string]string{}, status: "PENDING"}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	c, err := New(s.server.URL+"/", "key-of-the-shop")
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	c.pause = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	t.Cleanup(c.http.CloseIdleConnections)
	return s, c
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Errorf("reading a request: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	effect := func() (int, string) { return s.serve(w, r, string(body)) }
	if len(s.faults) > 0 {
		f := s.faults[0]
		s.faults = s.faults[1:]
		if f(s, w, effect) {
			return
		}
	}
	status, answer := effect()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

// serve is the service without faults.
func (s *shop) serve(w http.ResponseWriter, r *http.Request, body string) (int, string) {
	if got := r.Header.Get("Authorization"); got != "Bearer key-of-the-shop" {
		return 401, `{"title":"Not authenticated","reason":"UNAUTHENTICATED"}`
	}
	key := r.Header.Get("Idempotency-Key")
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/v1/orders":
		if r.URL.Query().Get("page_token") == "2" {
			return 200, `{"orders":[` + order("o-1", "FAILED") + `],"next_page_token":""}`
		}
		return 200, `{"orders":[` + order("o-3", "PENDING") + `,` + order("o-2", "NEW_STATUS") + `],"next_page_token":"2"}`
	case r.Method == http.MethodGet:
		return 200, order(strings.TrimPrefix(r.URL.Path, "/v1/orders/"), s.status)
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		return 200, order(strings.Split(r.URL.Path, "/")[3], "COMPENSATING")
	}
	if first, ok := s.orders[key]; ok {
		if first != body {
			return 422, `{"type":"https://throughline.dev/problems/key-mismatch","title":"T","status":422,"detail":"D","reason":"KEY_MISMATCH","errors":[{"path":"note","detail":"differs"}]}`
		}
		w.Header().Set("Idempotency-Replayed", "true")
	} else {
		s.orders[key] = body
		s.created++
	}
	return 201, order("o-"+key, "PENDING")
}

func order(id, status string) string {
	b, _ := json.Marshal(map[string]any{"order_id": id, "status": status, "currency": "EUR", "total": 1<<53 - 1,
		"created_at": "2026-01-02T03:04:05.000006Z", "a_member_of_a_newer_release": []int{1}})
	return string(b)
}

// cut ends the connection without another byte.
func cut(s *shop, w http.ResponseWriter) bool {
	c, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		s.t.Errorf("taking the connection: %v", err)
		return true
	}
	_ = c.(*net.TCPConn).SetLinger(0) // a reset, as from a process that was killed
	_ = c.Close()
	return true
}

func dropBefore(s *shop, w http.ResponseWriter, _ func() (int, string)) bool { return cut(s, w) }

func dropAfter(s *shop, w http.ResponseWriter, effect func() (int, string)) bool {
	effect()
	return cut(s, w)
}

// halfAnswer has the effect and sends a part of the answer.
func halfAnswer(_ *shop, w http.ResponseWriter, effect func() (int, string)) bool {
	status, answer := effect()
	w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer[:len(answer)/2])
	panic(http.ErrAbortHandler)
}

// say answers without the effect.
func say(status int, body string, header ...string) fault {
	return func(_ *shop, w http.ResponseWriter, _ func() (int, string)) bool {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
		return true
	}
}

// sayAfter answers something else after the effect.
func sayAfter(status int, body string) fault {
	return func(s *shop, w http.ResponseWriter, effect func() (int, string)) bool {
		effect()
		w.Header().Del("Idempotency-Replayed")
		return say(status, body)(s, w, nil)
	}
}

func healthy(*shop, http.ResponseWriter, func() (int, string)) bool { return false }
