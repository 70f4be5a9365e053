package control_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
	sim "github.com/throughline/throughline/services/simulator/internal/control"
)

// nothing is a simulator without state.
type nothing struct{}

func (nothing) Ledger(string) any                              { return struct{}{} }
func (nothing) Reset() error                                   { return nil }
func (nothing) Act(string, string) ([]string, error)           { return nil, sim.ErrNotFound }
func (nothing) Webhook(control.WebhookRequest) (string, error) { return "", sim.ErrConflict }

func TestControlIsForLoopbackOnly(t *testing.T) {
	t.Parallel()
	h := sim.NewEngine(sim.EngineConfig{}).Handler(nothing{})
	tests := map[string]int{
		"127.0.0.1:4711":          http.StatusOK,
		"127.9.9.9:4711":          http.StatusOK,
		"[::1]:4711":              http.StatusOK,
		"[::ffff:127.0.0.1]:4711": http.StatusOK,
		"192.0.2.7:4711":          http.StatusForbidden,
		"10.0.0.1:4711":           http.StatusForbidden,
		"[2001:db8::1]:4711":      http.StatusForbidden,
		"@":                       http.StatusForbidden,
	}
	for from, want := range tests {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/_control/ledger", http.NoBody)
			r.RemoteAddr = from
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("got %d, want %d", w.Code, want)
			}
		})
	}
}

// A broken ledger must not be answered as if all were well.
func TestCallThatCannotBeRecordedFails(t *testing.T) {
	t.Parallel()
	e := sim.NewEngine(sim.EngineConfig{
		Now:        time.Now,
		Operations: []string{"a"},
		ErrorBody:  func(int, string) []byte { return []byte("broken") },
	})
	w := httptest.NewRecorder()
	e.Serve(w, sim.Call{Operation: "a", Apply: func(_ bool, settle sim.Settle) error {
		settle(sim.Answer{Status: http.StatusOK, Body: []byte("fine")}, true)
		return sim.ErrConflict
	}})
	if w.Code != http.StatusInternalServerError || w.Body.String() != "broken" {
		t.Errorf("got %d %s, want 500 broken", w.Code, w.Body)
	}
}
