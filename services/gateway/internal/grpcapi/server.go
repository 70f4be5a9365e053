package grpcapi

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/proto/openapi"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// DefaultTimeout bounds a call to the order service, repeats included. It is far above what an order takes to be
// accepted, and below the time after which clients and proxies give up.
const DefaultTimeout = 10 * time.Second

// Server is the public OrderService.
type Server struct {
	orderv1.UnimplementedOrderServiceServer

	orders  orderv1.OrderServiceClient
	clients Clients
	limits  *limits
	timeout time.Duration
	logger  *slog.Logger
	pause   func(ctx context.Context, d time.Duration) error
	told    *instruments

	waits    chan struct{} // holds a value for each call that waits for an order's end
	stopping chan struct{} // closed by StopWaiting
	stopOnce sync.Once
}

// Config makes a Server. Orders and Clients are required.
type Config struct {
	Orders  orderv1.OrderServiceClient
	Clients Clients
	// Timeout bounds each call to Orders; 0 means DefaultTimeout.
	Timeout time.Duration
	// Rate and Burst are how often a client may call, a second and at once; 0 means DefaultRate and DefaultBurst, a negative rate no limit.
	Rate  float64
	Burst int
	// Logger may be nil.
	Logger *slog.Logger
	// Meter tells what clients are answered; nil tells nobody.
	Meter metric.Meter
}

// New makes a Server that passes calls on to the order service.
func New(cfg Config) *Server {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Rate == 0 {
		cfg.Rate = DefaultRate
	}
	if cfg.Burst <= 0 {
		cfg.Burst = DefaultBurst
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	told, err := newInstruments(cfg.Meter)
	if err != nil {
		cfg.Logger.Error("answers are not measured", telemetry.LogError, err) // they are given all the same
		told, _ = newInstruments(nil)
	}
	return &Server{told: told, orders: cfg.Orders, clients: cfg.Clients, timeout: cfg.Timeout, logger: cfg.Logger, pause: pause,
		limits: newLimits(cfg.Rate, cfg.Burst),
		waits:  make(chan struct{}, maxWaits), stopping: make(chan struct{})}
}

// Terms are the server's part of what callers are promised.
func (s *Server) Terms() openapi.Terms {
	return openapi.Terms{CallTimeout: s.timeout, ClientRate: float64(s.limits.rate), ClientBurst: s.limits.burst}
}

// CreateOrder places an order, or answers what it answered before for the same key.
func (s *Server) CreateOrder(ctx context.Context, req *orderv1.CreateOrderRequest) (*orderv1.CreateOrderResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	ctx = telemetry.WithAttributes(ctx, telemetry.OrderID.String(keys.OrderID(c.client, c.key).String()))
	return forward(context.WithoutCancel(ctx), s, c, "CreateOrder", req, s.orders.CreateOrder)
}

// ListOrders answers with the client's orders, newest first.
func (s *Server) ListOrders(ctx context.Context, req *orderv1.ListOrdersRequest) (*orderv1.ListOrdersResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	return forward(ctx, s, c, "ListOrders", req, s.orders.ListOrders)
}

// CancelOrder asks for an order to be undone.
func (s *Server) CancelOrder(ctx context.Context, req *orderv1.CancelOrderRequest) (*orderv1.CancelOrderResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if ctx, err = withOrder(ctx, req.GetOrderId()); err != nil {
		return nil, err
	}
	return forward(context.WithoutCancel(ctx), s, c, "CancelOrder", req, s.orders.CancelOrder)
}

// GetIdempotencyKey tells what is known of a key. The key is read as the one of a call is.
func (s *Server) GetIdempotencyKey(ctx context.Context, req *orderv1.GetIdempotencyKeyRequest) (*orderv1.GetIdempotencyKeyResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	key, err := keys.ParseHeader([]string{req.GetKey()})
	if err != nil {
		return nil, keyError(err)
	}
	ctx = telemetry.WithAttributes(ctx, telemetry.IdempotencyKey.String(key), telemetry.OrderID.String(keys.OrderID(c.client, key).String()))
	return forward(ctx, s, c, "GetIdempotencyKey", &orderv1.GetIdempotencyKeyRequest{Key: key}, s.orders.GetIdempotencyKey)
}

// GetTimeline tells what has happened to an order, as far as it concerns its client.
func (s *Server) GetTimeline(ctx context.Context, req *orderv1.GetTimelineRequest) (*orderv1.GetTimelineResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if ctx, err = withOrder(ctx, req.GetOrderId()); err != nil {
		return nil, err
	}
	return forward(ctx, s, c, "GetTimeline", req, s.orders.GetTimeline)
}

// withOrder puts the order id into the spans. An id that we never wrote names no order, and goes no further.
func withOrder(ctx context.Context, id string) (context.Context, error) {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return nil, grpcx.Error(grpcx.OrderNotFound, "there is no such order")
	}
	return telemetry.WithAttributes(ctx, telemetry.OrderID.String(id)), nil
}

// forward passes a call on, with metadata made from scratch and a deadline of ours, and tells the caller what came of it.
func forward[Req, Resp any](ctx context.Context, s *Server, c caller, method string, req *Req,
	call func(context.Context, *Req, ...grpc.CallOption) (*Resp, error),
) (*Resp, error) {
	return forwardWithin(ctx, s, s.timeout, c, method, req, call)
}

func forwardWithin[Req, Resp any](ctx context.Context, s *Server, timeout time.Duration, c caller, method string, req *Req,
	call func(context.Context, *Req, ...grpc.CallOption) (*Resp, error),
) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := grpcx.Outgoing(ctx, grpcx.Entries{ClientID: c.client, IdempotencyKey: c.key})
	var header metadata.MD
	resp, err := retry(out, s.pause, func() (*Resp, error) {
		header = nil
		return call(out, req, grpc.Header(&header))
	})
	if err != nil {
		told := translate(err)
		s.told.answered(ctx, method, kindOf(told))
		if grpcx.ReasonOf(told) == grpcx.Internal {
			s.logger.ErrorContext(ctx, "calling the order service failed", telemetry.LogMethod, method,
				telemetry.LogClientID, c.client, telemetry.LogError, err)
		}
		return nil, told
	}
	kind := kindNew
	switch {
	case first(header, grpcx.MetadataReplayed) == "true":
		kind = kindReplay
	case first(header, grpcx.MetadataKeyExpired) == "true":
		kind = kindExpired
	}
	s.told.answered(ctx, method, kind)
	if err := answer(ctx, header); err != nil {
		return nil, fmt.Errorf("passing on the answer of %s: %w", method, err)
	}
	return resp, nil
}

// answer passes on what the order service said beside the message.
func answer(ctx context.Context, header metadata.MD) error {
	replayed, expired := first(header, grpcx.MetadataReplayed) == "true", first(header, grpcx.MetadataKeyExpired) == "true"
	if a := AnswerFrom(ctx); a != nil {
		a.Replayed, a.Expired = replayed, expired
		if body := first(header, grpcx.MetadataHTTPBody); body != "" {
			a.Body = []byte(body)
		}
		return nil
	}
	md := metadata.MD{}
	if replayed {
		md.Set(grpcx.MetadataReplayed, "true")
	}
	if expired {
		md.Set(grpcx.MetadataKeyExpired, "true")
	}
	if len(md) == 0 {
		return nil
	}
	if err := grpc.SetHeader(ctx, md); err != nil {
		return fmt.Errorf("setting the header: %w", err)
	}
	return nil
}

func first(md metadata.MD, name string) string {
	if values := md.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

func indexed(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
