package grpcapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// MaxPayload bounds a request, in bytes of its JSON or of its protobuf. 200 lines with the longest texts stay far below.
const MaxPayload = 256 << 10

// Headers are what a call says of itself beside the request, as it came in: all values of each header or metadata entry.
type Headers struct {
	Authorization  []string
	IdempotencyKey []string
}

// caller is who calls, and with which key. It is in the context of every admitted call.
type caller struct {
	client string
	key    string // parsed; "" for methods that take none
}

type (
	callerKey struct{}
	answerKey struct{}
)

// NeedsKey says whether a method, by its full name, takes an idempotency key, and whether it is one of ours at all.
func NeedsKey(method string) (needs, known bool) {
	switch method {
	case orderv1.OrderService_CreateOrder_FullMethodName, orderv1.OrderService_CancelOrder_FullMethodName:
		return true, true
	case orderv1.OrderService_GetOrder_FullMethodName, orderv1.OrderService_ListOrders_FullMethodName,
		orderv1.OrderService_GetIdempotencyKey_FullMethodName, orderv1.OrderService_GetTimeline_FullMethodName:
		return false, true
	}
	return false, false
}

// scopeOf answers what an API key must be for, to call a method. What changes nothing is for reading.
func scopeOf(needsKey bool) apikey.Scope {
	if needsKey {
		return apikey.OrdersWrite
	}
	return apikey.OrdersRead
}

// Admit checks who calls a method, whether not too often, whether with the right scope and, where one is needed, the idempotency key, in this
// order. The context that it answers is what the Server's methods need; they refuse any other. Errors have the reason UNAUTHENTICATED,
// RATE_LIMITED, FORBIDDEN, one of KEY_…, UNAVAILABLE when nobody can say who calls, or NOT_IMPLEMENTED for a method that is not served here.
func (s *Server) Admit(ctx context.Context, method string, h Headers) (context.Context, error) {
	needsKey, known := NeedsKey(method)
	if !known {
		return nil, grpcx.Error(grpcx.NotImplemented, "this method is not served here")
	}
	token, ok := grpcx.Bearer(h.Authorization)
	if !ok {
		return nil, grpcx.Error(grpcx.Unauthenticated, `one "Authorization: Bearer <API key>" is needed`)
	}
	client, err := s.clients.Authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	if err := s.limits.allow(client.ID); err != nil {
		return nil, err
	}
	if scope := scopeOf(needsKey); !client.May(scope) {
		return nil, grpcx.Error(grpcx.Forbidden, "the API key lacks the scope "+string(scope))
	}
	c := caller{client: client.ID}
	ctx = telemetry.WithAttributes(ctx, telemetry.ClientID.String(client.ID))
	if needsKey {
		key, err := keys.ParseHeader(h.IdempotencyKey)
		if err != nil {
			return nil, keyError(err)
		}
		c.key = key
		ctx = telemetry.WithAttributes(ctx, telemetry.IdempotencyKey.String(key))
	}
	return context.WithValue(ctx, callerKey{}, c), nil
}

func keyError(err error) error {
	var he *keys.HeaderError
	if errors.As(err, &he) {
		return grpcx.Error(grpcx.Reason(he.Reason), he.Detail)
	}
	return grpcx.Error(grpcx.KeyMalformed, "the idempotency key cannot be read")
}

func callerFrom(ctx context.Context) (caller, error) {
	c, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		// Fail closed: a way in that forgot to ask who calls is our mistake.
		return caller{}, grpcx.Error(grpcx.Internal, "internal error")
	}
	return c, nil
}

// Answer is what the order service said of an answer beside the message. A front that wants to know puts one into the
// context of the call; the Server's methods fill it in.
type Answer struct {
	// Replayed says that the answer repeats an earlier one.
	Replayed bool
	// Expired says that the key was used before, and that its first answer is no longer kept.
	Expired bool
	// Waited is how long the call would have waited for the order's end, where it was asked to and could.
	Waited time.Duration
	// Body is the JSON that was stored with the answer; nil when none was.
	Body []byte
}

// WithAnswer answers a context in which a is filled in by the call that is made with it.
func WithAnswer(ctx context.Context, a *Answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// AnswerFrom answers what WithAnswer put into ctx, or nil.
func AnswerFrom(ctx context.Context) *Answer {
	a, _ := ctx.Value(answerKey{}).(*Answer)
	return a
}

// Intercept is the front of the public gRPC server: it admits calls by their metadata. Methods of other services, such as
// health checks, pass.
func (s *Server) Intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if info.Server != any(s) {
		return next(ctx, req)
	}
	ctx, err := s.Admit(ctx, info.FullMethod, Headers{
		Authorization:  grpcx.Incoming(ctx, grpcx.MetadataAuthorization),
		IdempotencyKey: grpcx.Incoming(ctx, grpcx.MetadataIdempotencyKey),
	})
	if err != nil {
		return nil, err
	}
	if m, ok := req.(proto.Message); ok {
		if proto.Size(m) > MaxPayload {
			return nil, grpcx.Error(grpcx.PayloadTooLarge, "a request may have 256 KiB")
		}
		if path, found := unknownField(m.ProtoReflect(), ""); found {
			return nil, grpcx.Error(grpcx.RequestInvalid, "the request has a field that is not known here",
				grpcx.WithViolations(grpcx.Violation{Path: path, Detail: "has an unknown field"}))
		}
	}
	return next(ctx, req)
}

// unknownField finds a message with fields that this release does not know. They are refused, as unknown members of JSON
// are: a newer client's wish must not be dropped in silence.
func unknownField(m protoreflect.Message, path string) (string, bool) {
	if len(m.GetUnknown()) > 0 {
		return path, true
	}
	at, found := "", false
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.IsMap() || fd.Message() == nil {
			return true // no public message has messages in maps
		}
		name := string(fd.Name())
		if path != "" {
			name = path + "." + name
		}
		if !fd.IsList() {
			at, found = unknownField(v.Message(), name)
			return !found
		}
		for i := range v.List().Len() {
			if at, found = unknownField(v.List().Get(i).Message(), indexed(name, i)); found {
				return false
			}
		}
		return true
	})
	return at, found
}
