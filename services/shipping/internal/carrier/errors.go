package carrier

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

var (
	// ErrNotOurs says that a shipment is of another order, or was made under another reference, than was asked about.
	ErrNotOurs = errors.New("the carrier's shipment does not belong to this order")

	// ErrConfiguration says that the carrier does not know us, or does not let us: the key is wrong.
	ErrConfiguration = errors.New("the carrier refuses our key")

	// ErrUnreadable says that an answer is not what the carrier's interface promises.
	ErrUnreadable = errors.New("the carrier's answer cannot be read")
)

// maxText bounds what is kept of a carrier's text: enough to recognise a page of a proxy.
const maxText = 300

// The carrier's codes of errors that are decided by.
const (
	codeInvalidRequest = "invalid_request"
	codeAddressRefused = "address_refused"
	codeDispatched     = "already_dispatched"
	codeCancelled      = "cancelled"
	codeLost           = "lost"
)

// Error is an answer of the carrier that is not a success, or that there was none.
type Error struct {
	Operation string
	// Status is the HTTP status; 0 if no answer came.
	Status int
	// Code is the carrier's word for the error; empty if the answer has none that can be read.
	Code  string
	text  string
	cause error
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return fmt.Sprintf("%s: %s", e.Operation, e.text)
	}
	return fmt.Sprintf("%s: status %s: %s", e.Operation, strings.TrimSpace(strconv.Itoa(e.Status)+" "+e.Code), e.text)
}

// Unwrap gives the cause: a context's error, say.
func (e *Error) Unwrap() error { return e.cause }

// Refusal tells whether err is the carrier's definite no to a creation, and the stable word for it. Nothing was made.
func Refusal(err error) (reason string, ok bool) {
	e, is := errors.AsType[*Error](err)
	switch {
	case !is || e.Operation != opCreate:
	case e.Status == http.StatusUnprocessableEntity && e.Code == codeAddressRefused:
		return shipping.ReasonAddressRefused, true
	case e.Status == http.StatusBadRequest && e.Code == codeInvalidRequest:
		return shipping.ReasonRejected, true
	}
	return "", false
}

// Conflict tells whether err says that a shipment's status forbids what was asked, and which status that is.
func Conflict(err error) (shipping.Status, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != http.StatusConflict {
		return "", false
	}
	switch e.Code {
	case codeDispatched:
		return shipping.Dispatched, true
	case codeCancelled:
		return shipping.Cancelled, true
	case codeLost:
		return shipping.Lost, true
	}
	return "", false
}

// NothingSent tells whether the request of err can not have reached the carrier.
func NothingSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// safe makes a text of the outside fit for logs and for a text column: bounded, valid and without NUL.
func safe(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
