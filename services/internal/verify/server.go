package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	// MaxOrders bounds a page of orders, and how many are asked for by their ids.
	MaxOrders = 500
	// MaxHoldings bounds how many orders' holdings and messages are asked for by their ids: each is a call to the outside.
	MaxHoldings = 20
	// MaxMessages bounds a page of messages, and how many receipts are asked for.
	MaxMessages = 1000
)

// Orders is what the order service alone knows.
type Orders interface {
	ListOrders(ctx context.Context, req *verifyv1.ListOrdersRequest) (*verifyv1.ListOrdersResponse, error)
}

// Holdings is what a service knows that calls the outside.
type Holdings interface {
	ListHoldings(ctx context.Context, req *verifyv1.ListHoldingsRequest) (*verifyv1.ListHoldingsResponse, error)
}

// Config makes a [Server].
type Config struct {
	// Service names it, as in subjects.
	Service string
	Pool    *pgxpool.Pool
	Conn    *messaging.Conn
	// Streams are all streams; those that are no work queues keep what they have acknowledged.
	Streams []messaging.Stream
	// Consumers are the service's own.
	Consumers []messaging.ConsumerConfig
	// InboxTTL is how long the service knows what it has dealt with.
	InboxTTL time.Duration
	// Orders and Holdings are nil where the service has none.
	Orders   Orders
	Holdings Holdings
}

// Server is VerifyService of one service.
type Server struct {
	verifyv1.UnimplementedVerifyServiceServer
	cfg  Config
	kept map[string]bool // streams that keep what they have acknowledged
}

// NewServer makes a server.
func NewServer(cfg Config) *Server {
	s := &Server{cfg: cfg, kept: make(map[string]bool)}
	for _, stream := range cfg.Streams {
		s.kept[stream.Name] = !stream.WorkQueue
	}
	return s
}

// Register adds the service to a gRPC server, which must ask for a credential.
func (s *Server) Register(r grpc.ServiceRegistrar) { verifyv1.RegisterVerifyServiceServer(r, s) }

// ListOrders implements verifyv1.VerifyServiceServer.
func (s *Server) ListOrders(ctx context.Context, req *verifyv1.ListOrdersRequest) (*verifyv1.ListOrdersResponse, error) {
	if s.cfg.Orders == nil {
		return s.UnimplementedVerifyServiceServer.ListOrders(ctx, req)
	}
	if n := len(req.GetOrderIds()); n > MaxOrders {
		return nil, tooMany("order_ids", n, MaxOrders)
	}
	resp, err := s.cfg.Orders.ListOrders(ctx, req)
	return resp, told(err)
}

// ListHoldings implements verifyv1.VerifyServiceServer.
func (s *Server) ListHoldings(ctx context.Context, req *verifyv1.ListHoldingsRequest) (*verifyv1.ListHoldingsResponse, error) {
	if s.cfg.Holdings == nil {
		return s.UnimplementedVerifyServiceServer.ListHoldings(ctx, req)
	}
	if n := len(req.GetOrderIds()); n > MaxHoldings {
		return nil, tooMany("order_ids", n, MaxHoldings)
	}
	if n := len(req.GetKnown()); n > MaxMessages {
		return nil, tooMany("known", n, MaxMessages)
	}
	resp, err := s.cfg.Holdings.ListHoldings(ctx, req)
	return resp, told(err)
}

func tooMany(path string, n, most int) error {
	return invalid(path, fmt.Sprintf("has %d entries, at most %d are taken", n, most))
}

func invalid(path, detail string) error {
	return grpcx.Error(grpcx.RequestInvalid, "the request is invalid", grpcx.WithViolations(grpcx.Violation{Path: path, Detail: detail}))
}

// ParseIDs reads order ids of a request. The error is for the caller.
func ParseIDs(texts []string) ([]uuid.UUID, error) {
	ids := make([]uuid.UUID, len(texts))
	for i, text := range texts {
		id, err := uuid.Parse(text)
		if err != nil {
			return nil, invalid(fmt.Sprintf("order_ids[%d]", i), "is no order id")
		}
		ids[i] = id
	}
	return ids, nil
}

// BadToken is the error for a page token that is not one of ours.
func BadToken() error { return invalid("page_token", "is not one of ours") }

// ErrOutside says that the provider or the carrier did not tell what it holds.
var ErrOutside = errors.New("the outside did not answer")

// told gives errors from beneath the reason that callers decide by. Others pass, and are shown as INTERNAL.
func told(err error) error {
	switch {
	case err == nil, grpcx.ReasonOf(err) != "":
		return err
	case errors.Is(err, ErrOutside):
		return grpcx.Error(grpcx.Unavailable, "the provider or carrier that the service calls cannot be asked now")
	case errors.Is(err, messaging.ErrUnavailable):
		return grpcx.Error(grpcx.Unavailable, "the broker cannot be asked now")
	case postgres.Classify(err) == postgres.Unavailable:
		return grpcx.Error(grpcx.Unavailable, "the service's database cannot be used now")
	default:
		return err
	}
}
