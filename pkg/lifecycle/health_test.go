package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/throughline/throughline/pkg/lifecycle"
)

func pass(context.Context) error { return nil }

func probe(t *testing.T, h *lifecycle.Health, path string) (int, string) {
	t.Helper()
	mux := http.NewServeMux()
	h.Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("got content type %q, want application/json", got)
	}
	return w.Code, w.Body.String()
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	broken := func(context.Context) error { return errors.New("connection refused") }
	type check struct {
		name string
		fn   lifecycle.Check
	}
	for _, tc := range []struct {
		name   string
		checks []check
		status int
		want   lifecycle.Report
	}{
		{"no checks", nil, 200, lifecycle.Report{Ready: true, Checks: []lifecycle.Result{}}},
		{"all pass", []check{{"postgres", pass}, {"nats", pass}}, 200, lifecycle.Report{Ready: true,
			Checks: []lifecycle.Result{{Name: "postgres", OK: true}, {Name: "nats", OK: true}}}},
		{"one fails", []check{{"postgres", pass}, {"nats", broken}}, 503, lifecycle.Report{
			Checks: []lifecycle.Result{{Name: "postgres", OK: true}, {Name: "nats", Error: "connection refused"}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var h lifecycle.Health
			for _, c := range tc.checks {
				h.AddCheck(c.name, c.fn)
			}
			status, body := probe(t, &h, "/readyz")
			var got lifecycle.Report
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("reading %q: %v", body, err)
			}
			if status != tc.status || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %d %+v, want %d %+v", status, got, tc.status, tc.want)
			}
			if status, _ := probe(t, &h, "/healthz"); status != 200 {
				t.Errorf("got /healthz %d, want 200 whatever the checks say", status)
			}
		})
	}
}

func TestSlowCheckIsNamedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h lifecycle.Health
		free := make(chan struct{})
		defer close(free)
		h.AddCheck("polite", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		h.AddCheck("deaf", func(context.Context) error { <-free; return nil })
		h.AddCheck("fast", pass)
		began := time.Now()
		r := h.Report(t.Context())
		if got := time.Since(began); got != 800*time.Millisecond {
			t.Errorf("got %v, want 800ms", got)
		}
		want := lifecycle.Report{Checks: []lifecycle.Result{
			{Name: "polite", Error: "context deadline exceeded"}, {Name: "deaf", Error: "context deadline exceeded"}, {Name: "fast", OK: true}}}
		if !reflect.DeepEqual(r, want) {
			t.Errorf("got %+v, want %+v", r, want)
		}
	})
}

func ExampleHealth() {
	var h lifecycle.Health
	h.AddCheck("postgres", func(context.Context) error { return nil })
	h.AddCheck("nats", func(context.Context) error { return errors.New("disconnected") })

	w := httptest.NewRecorder()
	h.Readyz().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output: 503 {"ready":false,"checks":[{"name":"postgres","ok":true},{"name":"nats","ok":false,"error":"disconnected"}]}
}
