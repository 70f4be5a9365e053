package storefront

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

var (
	// ErrUnresolved says that the context ended before the outcome was known. Call again with the same key.
	ErrUnresolved = errors.New("the outcome is not known yet")
	// ErrKey says that a key cannot be used: it must have 1 to 255 bytes of printable ASCII.
	ErrKey = errors.New("not an idempotency key")
	// ErrNeedsAttention says that an order waits for a person. It may still end either way.
	ErrNeedsAttention = errors.New("the order waits for a person")
	// ErrConfig says that a Client cannot be made this way.
	ErrConfig = errors.New("not a usable client")

	// errNotOurs is retried: something on the way answered in the place of the service.
	errNotOurs = errors.New("the answer is not one of the order service")
)

// Reasons by which a caller decides. The service has more; they are listed in its OpenAPI document.
const (
	ReasonKeyMismatch   = "KEY_MISMATCH"
	ReasonKeyInProgress = "KEY_IN_PROGRESS"
	ReasonInvalid       = "REQUEST_INVALID"
	ReasonOrderNotFound = "ORDER_NOT_FOUND"
	ReasonCancelTooLate = "CANCEL_TOO_LATE"
)

// Error is an answer of the service that is not a success.
type Error struct {
	// StatusCode is that of HTTP.
	StatusCode int `json:"-"`
	// Type and Reason name what is wrong, for programs; empty when the answer came from something else on the way.
	Type   string `json:"type"`
	Reason string `json:"reason"`
	// Title and Detail say it, for people.
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Fields are the parts of the request that are wrong or that differ.
	Fields []FieldError `json:"errors"`
	// RetryAfter is how long the service asks to be left alone; 0 when it does not say.
	RetryAfter time.Duration `json:"-"`
}

// FieldError says what is wrong with one part of a request.
type FieldError struct {
	Path   string `json:"path"`
	Detail string `json:"detail"`
}

// Error says it in one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", e.StatusCode)
	for _, part := range []string{e.Reason, e.Detail} {
		if part != "" {
			b.WriteString(" " + part)
		}
	}
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "; %s %s", f.Path, f.Detail)
	}
	return b.String()
}

// passing says whether the same call may have another answer later.
func (e *Error) passing() bool {
	switch e.StatusCode {
	case http.StatusConflict:
		return e.Reason == ReasonKeyInProgress
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return e.StatusCode >= http.StatusInternalServerError
}
