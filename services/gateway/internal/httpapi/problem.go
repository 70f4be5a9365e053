package httpapi

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/status"

	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const problemType = "application/problem+json"

// Problem is the body of every answer of 400 or more (RFC 9457).
type Problem struct {
	// Type names the reason: https://throughline.dev/problems/key-mismatch.
	Type string `json:"type"`
	// Title is the same for every occurrence of the type.
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is about this occurrence. It never repeats a key or a value of the request.
	Detail string `json:"detail"`
	// Reason is the last part of Type as gRPC callers see it: KEY_MISMATCH.
	Reason grpcx.Reason `json:"reason,omitempty"`
	// Errors are the parts of the request that are wrong, or that differ from the first request with the key.
	Errors []FieldError `json:"errors,omitempty"`
}

// FieldError says what is wrong with one part of a request.
type FieldError struct {
	Path   string `json:"path"`
	Detail string `json:"detail"`
}

// problemOf answers the problem that shows a status error. One without a reason shows as INTERNAL and tells nothing.
func problemOf(err error) Problem {
	reason := grpcx.ReasonOf(err)
	if reason == "" {
		return newProblem(grpcx.Internal, "internal error")
	}
	p := newProblem(reason, status.Convert(err).Message())
	for _, v := range grpcx.Violations(err) {
		p.Errors = append(p.Errors, FieldError(v))
	}
	return p
}

func newProblem(reason grpcx.Reason, detail string) Problem {
	m := reason.Meaning()
	return Problem{Type: reason.ProblemType(), Title: m.Title, Status: m.Status, Detail: detail, Reason: reason}
}

func (p Problem) encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		// Strings, numbers and lists of them: there is nothing that could fail.
		return []byte(`{}`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// writeError answers a request with the problem that shows err, which must be a status error.
func writeError(w http.ResponseWriter, r *http.Request, logger *slog.Logger, err error) {
	p := problemOf(err)
	if grpcx.ReasonOf(err) == "" {
		logger.ErrorContext(r.Context(), "answering a request failed", telemetry.LogPath, r.Pattern,
			telemetry.LogError, err)
	}
	h := w.Header()
	// What was meant for an answer that did not come.
	h.Del("Location")
	h.Del("Idempotency-Replayed")
	h.Del("Idempotency-Key-Expired")
	h.Del("Preference-Applied")
	h.Del("Content-Length")
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store")
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="throughline"`)
	case http.StatusForbidden:
		h.Set("WWW-Authenticate", `Bearer realm="throughline", error="insufficient_scope"`) // RFC 6750
	}
	if after, ok := grpcx.RetryDelay(err); ok {
		h.Set("Retry-After", retryAfter(after))
	}
	body := p.encode()
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	// An error here is a caller that went away.
	_, _ = w.Write(body)
}

// retryAfter answers whole seconds, at least one: 0 would be an invitation to hammer.
func retryAfter(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}
