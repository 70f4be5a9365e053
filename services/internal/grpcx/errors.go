package grpcx

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ErrNoCredential says that a server or a connection was to be made without a service credential.
var ErrNoCredential = errors.New("no service credential is given")

// ErrSameCredential says that services and operators were given one credential, which would make every service an operator.
var ErrSameCredential = errors.New("the operator credential must not be the service credential")

// Violation says what is wrong with one part of a request.
type Violation struct {
	Path   string // lines[1].quantity
	Detail string
}

// Detail is something that an error carries beside its reason and message.
type Detail func(*details)

type details struct {
	metadata   map[string]string
	violations []Violation
	retryAfter time.Duration
}

// WithMetadata adds a pair to the ErrorInfo. Keys are lowerCamel words, as the type demands.
func WithMetadata(key, value string) Detail {
	return func(d *details) {
		if d.metadata == nil {
			d.metadata = make(map[string]string)
		}
		d.metadata[key] = value
	}
}

// WithViolations adds what is wrong with parts of the request, as google.rpc.BadRequest.
func WithViolations(vs ...Violation) Detail {
	return func(d *details) { d.violations = append(d.violations, vs...) }
}

// WithRetryAfter says, as google.rpc.RetryInfo, when the call may be repeated.
func WithRetryAfter(after time.Duration) Detail {
	return func(d *details) { d.retryAfter = after }
}

// Error makes a status error. The message is for people and goes to the caller; it must not contain secrets or the
// text of errors that come from beneath.
func Error(reason Reason, message string, ds ...Detail) error {
	var d details
	for _, set := range ds {
		set(&d)
	}
	msgs := []protoadapt.MessageV1{
		protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: string(reason), Domain: Domain, Metadata: d.metadata}),
	}
	if len(d.violations) > 0 {
		br := new(errdetails.BadRequest)
		for _, v := range d.violations {
			br.FieldViolations = append(br.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: v.Path, Description: v.Detail,
			})
		}
		msgs = append(msgs, protoadapt.MessageV1Of(br))
	}
	if d.retryAfter > 0 {
		msgs = append(msgs, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(d.retryAfter)}))
	}
	bare := status.New(reason.Meaning().Code, message)
	full, err := bare.WithDetails(msgs...)
	if err != nil {
		// Only a status with code OK takes no details, and no reason has that.
		return bare.Err()
	}
	return full.Err()
}

// ReasonOf answers the reason of an error made by Error, here or in another process; "" for any other error.
func ReasonOf(err error) Reason {
	if info := detail[*errdetails.ErrorInfo](err); info != nil && info.GetDomain() == Domain {
		return Reason(info.GetReason())
	}
	return ""
}

// Metadata answers the pairs of the error's ErrorInfo.
func Metadata(err error) map[string]string {
	if info := detail[*errdetails.ErrorInfo](err); info != nil && info.GetDomain() == Domain {
		return info.GetMetadata()
	}
	return nil
}

// Violations answers what is wrong with parts of the request, in the order in which it was found.
func Violations(err error) []Violation {
	br := detail[*errdetails.BadRequest](err)
	if br == nil {
		return nil
	}
	vs := make([]Violation, 0, len(br.GetFieldViolations()))
	for _, v := range br.GetFieldViolations() {
		vs = append(vs, Violation{Path: v.GetField(), Detail: v.GetDescription()})
	}
	return vs
}

// RetryDelay answers when the call may be repeated; false when the error does not say.
func RetryDelay(err error) (time.Duration, bool) {
	info := detail[*errdetails.RetryInfo](err)
	if info == nil || !info.GetRetryDelay().IsValid() {
		return 0, false
	}
	return info.GetRetryDelay().AsDuration(), true
}

func detail[T any](err error) T {
	var none T
	st, ok := status.FromError(err)
	if !ok || st == nil {
		return none
	}
	for _, d := range st.Details() {
		if found, ok := d.(T); ok {
			return found
		}
	}
	return none
}

// planned says whether an error says by itself what the caller is to know.
func planned(err error) bool {
	return ReasonOf(err) != ""
}

// unplanned answers what the caller is told of an error that carries no reason. ctx is that of the call.
func unplanned(ctx context.Context, err error) error {
	switch code := status.Code(err); {
	case code == codes.Unimplemented:
		return Error(NotImplemented, "this method is not served here")
	case code == codes.Unavailable:
		return Error(Unavailable, "a service that is needed cannot be reached")
	case code == codes.DeadlineExceeded, errors.Is(err, context.DeadlineExceeded),
		errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Error(Deadline, "the call took too long")
	case errors.Is(ctx.Err(), context.Canceled):
		// Nobody listens any more.
		return status.Error(codes.Canceled, "the caller went away")
	default:
		return Error(Internal, "internal error")
	}
}
