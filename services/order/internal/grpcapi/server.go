package grpcapi

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/ending"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/placeorder"
)

// Config makes a Server.
type Config struct {
	Pool   *pgxpool.Pool
	Engine *saga.Engine[*orderv1.PlaceOrder]
	Placer *placeorder.Placer
	// KeyLifetime is how long answers are kept.
	KeyLifetime time.Duration
	// Replays counts the answers that are given again.
	Replays *idempotency.ReplayCounter
	// Endings tells when orders end, to those who wait for it.
	Endings *ending.Watcher
	Logger  *slog.Logger
	// Tracer makes the span of placing an order, which has the waiting for the shared transaction in it.
	Tracer trace.Tracer
}

// Server is OrderService.
type Server struct {
	orderv1.UnimplementedOrderServiceServer
	cfg   Config
	rules order.Rules
	log   *slog.Logger
}

// New makes a server.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, rules: order.Rules{Country: isCountry}, log: cfg.Logger}
}

// about puts what a call is about on all its spans.
func about(ctx context.Context, client, key string, id uuid.UUID) context.Context {
	return telemetry.WithAttributes(ctx,
		telemetry.OrderID.String(id.String()), telemetry.IdempotencyKey.String(key), telemetry.ClientID.String(client))
}

// kind says how an answer came about.
type kind int

const (
	// firstAnswer: by executing the request.
	firstAnswer kind = iota
	// replayedAnswer: from the record of the first answer, byte for byte.
	replayedAnswer
	// expiredAnswer: that record is gone; the order is shown as it is now.
	expiredAnswer
)

// answer sets what goes out beside an answer: its JSON, and how it came about.
func answer(ctx context.Context, body []byte, k kind) error {
	md := metadata.MD{}
	if len(body) > 0 {
		md.Set(grpcx.MetadataHTTPBody, string(body))
	}
	switch k {
	case firstAnswer:
	case replayedAnswer:
		md.Set(grpcx.MetadataReplayed, "true")
	case expiredAnswer:
		md.Set(grpcx.MetadataKeyExpired, "true")
	}
	return grpc.SetHeader(ctx, md)
}

// now is our own clock, in the digits that the database keeps.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
