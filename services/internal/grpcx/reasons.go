package grpcx

import (
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
)

// Domain is the domain of every ErrorInfo of ours.
const Domain = "throughline"

// problemBase is what every problem type begins with.
const problemBase = "https://throughline.dev/problems/"

// Reason is why a call failed, as a stable word. It is what clients and services decide by.
type Reason string

// The reasons. None is ever renamed or reused.
const (
	// The idempotency key. Nothing was done, and the key is still unused.
	KeyMissing      Reason = "KEY_MISSING"
	KeyRepeated     Reason = "KEY_REPEATED"
	KeyEmpty        Reason = "KEY_EMPTY"
	KeyMalformed    Reason = "KEY_MALFORMED"
	KeyTooLong      Reason = "KEY_TOO_LONG"
	KeyNotPrintable Reason = "KEY_NOT_PRINTABLE"
	// The key names another order than the one that was sent.
	KeyMismatch Reason = "KEY_MISMATCH"
	// A request with the key is being executed. It may be repeated after the retry delay.
	KeyInProgress Reason = "KEY_IN_PROGRESS"

	// The request cannot be read, or means nothing that can be done. Nothing was done.
	RequestMalformed     Reason = "REQUEST_MALFORMED"
	RequestInvalid       Reason = "REQUEST_INVALID"
	PayloadTooLarge      Reason = "PAYLOAD_TOO_LARGE"
	HeadersTooLarge      Reason = "HEADERS_TOO_LARGE"
	UnsupportedMediaType Reason = "UNSUPPORTED_MEDIA_TYPE"
	RouteNotFound        Reason = "ROUTE_NOT_FOUND"
	MethodNotAllowed     Reason = "METHOD_NOT_ALLOWED"
	NotImplemented       Reason = "NOT_IMPLEMENTED"

	// Who is calling.
	Unauthenticated Reason = "UNAUTHENTICATED"
	Forbidden       Reason = "FORBIDDEN"
	RateLimited     Reason = "RATE_LIMITED"

	// The order. One of another client is not found.
	OrderNotFound Reason = "ORDER_NOT_FOUND"
	CancelTooLate Reason = "CANCEL_TOO_LATE"
	// The order needs nobody, or not for the step or in the way that was named. For operators only.
	NothingToResolve Reason = "NOTHING_TO_RESOLVE"
	// There is no client, key or dead letter of that name. For operators only.
	UnknownName Reason = "UNKNOWN_NAME"

	// Us. What became of the call is unknown; with the same key it may be repeated without limit.
	Unavailable Reason = "UNAVAILABLE"
	Deadline    Reason = "DEADLINE"
	Internal    Reason = "INTERNAL"
)

// Reasons answers all reasons.
func Reasons() []Reason {
	return []Reason{
		KeyMissing, KeyRepeated, KeyEmpty, KeyMalformed, KeyTooLong, KeyNotPrintable, KeyMismatch, KeyInProgress,
		RequestMalformed, RequestInvalid, PayloadTooLarge, HeadersTooLarge, UnsupportedMediaType, RouteNotFound,
		MethodNotAllowed, NotImplemented, Unauthenticated, Forbidden, RateLimited, OrderNotFound, CancelTooLate,
		NothingToResolve, UnknownName,
		Unavailable, Deadline, Internal,
	}
}

// Meaning is how a reason shows on the wire.
type Meaning struct {
	Code   codes.Code
	Status int    // of HTTP
	Title  string // for people; the same for every occurrence
}

// Meaning answers how the reason shows. A word that is not one of ours means what Internal means.
func (r Reason) Meaning() Meaning {
	switch r {
	case KeyMissing:
		return Meaning{codes.InvalidArgument, http.StatusBadRequest, "Idempotency key missing"}
	case KeyRepeated:
		return Meaning{codes.InvalidArgument, http.StatusBadRequest, "Idempotency key repeated"}
	case KeyEmpty:
		return Meaning{codes.InvalidArgument, http.StatusBadRequest, "Idempotency key empty"}
	case KeyMalformed:
		return Meaning{codes.InvalidArgument, http.StatusBadRequest, "Idempotency key malformed"}
	case KeyTooLong:
		return Meaning{codes.InvalidArgument, http.StatusBadRequest, "Idempotency key too long"}
	case KeyNotPrintable:
		return Meaning{codes.InvalidArgument, http.StatusBadRequest, "Idempotency key not printable ASCII"}
	case KeyMismatch:
		return Meaning{codes.FailedPrecondition, http.StatusUnprocessableEntity, "Idempotency key used for another request"}
	case KeyInProgress:
		return Meaning{codes.Aborted, http.StatusConflict, "Request with this idempotency key in progress"}
	case RequestMalformed:
		return Meaning{codes.InvalidArgument, http.StatusBadRequest, "Request malformed"}
	case RequestInvalid:
		return Meaning{codes.InvalidArgument, http.StatusBadRequest, "Request invalid"}
	case PayloadTooLarge:
		// Not ResourceExhausted: callers take that as a state that passes, and would repeat for ever.
		return Meaning{codes.InvalidArgument, http.StatusRequestEntityTooLarge, "Payload too large"}
	case HeadersTooLarge:
		return Meaning{codes.InvalidArgument, http.StatusRequestHeaderFieldsTooLarge, "Headers too large"}
	case UnsupportedMediaType:
		return Meaning{codes.InvalidArgument, http.StatusUnsupportedMediaType, "Unsupported media type"}
	case RouteNotFound:
		return Meaning{codes.Unimplemented, http.StatusNotFound, "No such route"}
	case MethodNotAllowed:
		return Meaning{codes.Unimplemented, http.StatusMethodNotAllowed, "Method not allowed"}
	case NotImplemented:
		return Meaning{codes.Unimplemented, http.StatusNotImplemented, "Not implemented"}
	case Unauthenticated:
		return Meaning{codes.Unauthenticated, http.StatusUnauthorized, "Not authenticated"}
	case Forbidden:
		return Meaning{codes.PermissionDenied, http.StatusForbidden, "Not allowed"}
	case RateLimited:
		return Meaning{codes.ResourceExhausted, http.StatusTooManyRequests, "Too many requests"}
	case OrderNotFound:
		return Meaning{codes.NotFound, http.StatusNotFound, "No such order"}
	case CancelTooLate:
		return Meaning{codes.FailedPrecondition, http.StatusConflict, "Too late to cancel"}
	case NothingToResolve:
		return Meaning{codes.FailedPrecondition, http.StatusConflict, "Nothing to resolve"}
	case UnknownName:
		return Meaning{codes.NotFound, http.StatusNotFound, "Nothing of that name"}
	case Unavailable:
		return Meaning{codes.Unavailable, http.StatusServiceUnavailable, "Service unavailable"}
	case Deadline:
		return Meaning{codes.DeadlineExceeded, http.StatusGatewayTimeout, "Deadline exceeded"}
	default:
		return Meaning{codes.Internal, http.StatusInternalServerError, "Internal error"}
	}
}

// ProblemType answers the type of the problem document (RFC 9457) that shows the reason.
func (r Reason) ProblemType() string {
	return problemBase + strings.ReplaceAll(strings.ToLower(string(r)), "_", "-")
}
