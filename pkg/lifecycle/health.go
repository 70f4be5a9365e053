package lifecycle

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// checkTimeout bounds all checks of one probe. It is below the usual timeout of
// those who ask, so that they get an answer that names the slow check.
const checkTimeout = 800 * time.Millisecond

// Check tells whether one thing that the process needs is there. It is called by
// every probe, from several goroutines at once, and should return when its context ends. nil
// is yes.
type Check func(ctx context.Context) error

// Health collects named checks. The zero value is ready to use and safe for
// concurrent use.
type Health struct {
	mu     sync.RWMutex
	checks []namedCheck
}

type namedCheck struct {
	name  string
	check Check
}

// AddCheck adds a check. Its name and its error are shown to whoever asks, so
// neither may contain a secret.
func (h *Health) AddCheck(name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, namedCheck{name, check})
}

// Report is the body of an answer of /readyz.
type Report struct {
	Ready  bool     `json:"ready"`
	Checks []Result `json:"checks"`
}

// Result is the outcome of one check.
type Result struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// Report runs all checks at once and returns their results in the order of
// AddCheck. A check that does not return in time counts as failed.
func (h *Health) Report(ctx context.Context) Report {
	h.mu.RLock()
	checks := append([]namedCheck(nil), h.checks...)
	h.mu.RUnlock()

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	pending := make([]chan error, len(checks))
	for i, c := range checks {
		// Room for one: a check that comes too late finds nobody and must not leak.
		pending[i] = make(chan error, 1)
		go func() { pending[i] <- c.check(ctx) }()
	}
	r := Report{Ready: true, Checks: make([]Result, len(checks))}
	for i, c := range checks {
		var err error
		select {
		case err = <-pending[i]:
		case <-ctx.Done():
			select {
			case err = <-pending[i]:
			default:
				err = ctx.Err()
			}
		}
		r.Checks[i] = Result{Name: c.name, OK: err == nil}
		if err != nil {
			r.Ready = false
			r.Checks[i].Error = err.Error()
		}
	}
	return r
}

// Healthz answers 200 as long as the process can answer at all. It looks at
// nothing else: restarting a process does not bring back a database.
func (h *Health) Healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
}

// Readyz answers 200 if all checks pass and 503 if not, with a [Report] that
// says which did not and why.
func (h *Health) Readyz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report := h.Report(r.Context())
		status := http.StatusOK
		if !report.Ready {
			status = http.StatusServiceUnavailable
		}
		writeJSON(w, status, report)
	})
}

// Register serves GET /healthz and GET /readyz on mux.
func (h *Health) Register(mux *http.ServeMux) {
	mux.Handle("GET /healthz", h.Healthz())
	mux.Handle("GET /readyz", h.Readyz())
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// An error here is a client that went away.
	_ = json.NewEncoder(w).Encode(body)
}
