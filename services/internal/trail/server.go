package trail

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	maxID     = 255
	maxActor  = 200
	maxReason = 1000
	// maxOfKind bounds the entries of one kind in an answer. An entry is about 400 bytes, so that an answer stays below half of what a message
	// may have. An order has some tens; only one that is retried for days has more.
	maxOfKind = 500
	// maxMatches bounds what is found by one id.
	maxMatches = 50
	// maxReceipts bounds what ListReceipts looks for at once.
	maxReceipts = 1000
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations creates the table of who was shown personal data.
func Migrations() postgres.Migrations {
	return postgres.Migrations{Name: "trail", FS: migrations, Dir: "migrations"}
}

// Own is what only one service knows.
type Own interface {
	// Find gives the orders that an id belongs to by the service's own tables. clientID says whose key it is, if it is one; empty is any
	// client's.
	Find(ctx context.Context, id, clientID string) ([]*trailv1.Match, error)
	// Tell gives the entries of the service's own tables, and in words what it leaves out of them. Personal data is masked unless reveal is
	// set. It need not fill in order_id and service.
	Tell(ctx context.Context, order uuid.UUID, reveal bool) (entries []*trailv1.Entry, leftOut []string, err error)
}

// Config is what the trail of one service is told from.
type Config struct {
	// Service names it, as in subjects.
	Service string
	Pool    *pgxpool.Pool
	Letters *inbox.DeadLetters
	// Consumers are the service's names in the inbox.
	Consumers []string
	// Retention is how long messages are kept after they were sent.
	Retention time.Duration
	// Participant says that the service performs steps.
	Participant bool
	// Peer is what the service calls for its steps, such as "payment_provider"; Webhooks the inbox consumer of its notices.
	Peer, Webhooks string
	// Operations are the words that the peer's idempotency keys derive from; none if it has no such keys.
	Operations []string
	// Undos names the steps that undo others.
	Undos []string
	// Own is nil for a service that has no tables of its own.
	Own    Own
	Logger *slog.Logger
}

// Register lets a gRPC server tell the trails of a service. The server must ask for the operator credential.
func Register(s grpc.ServiceRegistrar, cfg Config) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	trailv1.RegisterTrailServiceServer(s, &server{cfg: cfg})
}

type server struct {
	trailv1.UnimplementedTrailServiceServer
	cfg Config
}

// ListEntries implements trailv1.TrailServiceServer.
func (s *server) ListEntries(ctx context.Context, req *trailv1.ListEntriesRequest) (*trailv1.ListEntriesResponse, error) {
	order, err := parseOrder(req.GetOrderId())
	if err != nil {
		return nil, err
	}
	if req.GetReveal() {
		if err := s.noteReveal(ctx, order, req.GetActor(), req.GetReason()); err != nil {
			return nil, err
		}
	}
	t := &telling{server: s, order: order, reveal: req.GetReveal()}
	for _, part := range []func(context.Context) error{t.now, t.own, t.steps, t.sent, t.letters, t.reveals} {
		if err := part(ctx); err != nil {
			return nil, told(fmt.Errorf("telling the trail of order %s: %w", order, err))
		}
	}
	for _, e := range t.entries {
		e.OrderId, e.Service = order.String(), s.cfg.Service
	}
	return &trailv1.ListEntriesResponse{Entries: t.entries, LeftOut: t.leftOut, Now: timestamppb.New(t.clock)}, nil
}

// ListReceipts implements trailv1.TrailServiceServer.
func (s *server) ListReceipts(ctx context.Context, req *trailv1.ListReceiptsRequest) (*trailv1.ListReceiptsResponse, error) {
	order, err := parseOrder(req.GetOrderId())
	if err != nil {
		return nil, err
	}
	if n := len(req.GetMessageIds()); n > maxReceipts {
		return nil, invalid("message_ids", fmt.Sprintf("must be at most %d", maxReceipts))
	}
	ids := make([]uuid.UUID, len(req.GetMessageIds()))
	for i, text := range req.GetMessageIds() {
		if ids[i], err = uuid.Parse(text); err != nil {
			return nil, invalid(fmt.Sprintf("message_ids[%d]", i), "is not a UUID")
		}
	}
	receipts, err := inbox.Receipts(ctx, s.cfg.Pool, s.cfg.Consumers, ids)
	if err != nil {
		return nil, told(err)
	}
	resp := &trailv1.ListReceiptsResponse{}
	for i := range receipts {
		for _, e := range s.receiptEntries(&receipts[i]) {
			e.OrderId, e.Service = order.String(), s.cfg.Service
			resp.Entries = append(resp.Entries, e)
		}
	}
	return resp, nil
}

const insertReveal = `INSERT INTO trail_reveal (order_id, actor, reason) VALUES ($1, $2, $3)`

// noteReveal puts on record who is shown personal data, before that happens.
func (s *server) noteReveal(ctx context.Context, order uuid.UUID, actor, reason string) error {
	switch {
	case !said(actor, maxActor):
		return invalid("actor", fmt.Sprintf("must have 1 to %d characters", maxActor))
	case !said(reason, maxReason):
		return invalid("reason", fmt.Sprintf("must have 1 to %d characters", maxReason))
	}
	if _, err := s.cfg.Pool.Exec(ctx, insertReveal, order, actor, reason); err != nil {
		return told(fmt.Errorf("noting who is shown the personal data of order %s: %w", order, err))
	}
	s.cfg.Logger.InfoContext(ctx, "personal data shown to an operator", telemetry.LogOrderID, order, "actor", actor, "reason", reason)
	return nil
}

func said(s string, most int) bool {
	n := utf8.RuneCountInString(s)
	return n > 0 && n <= most && utf8.ValidString(s)
}

func parseOrder(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 { // the library takes other forms, too
		return uuid.Nil, invalid("order_id", "is not a UUID")
	}
	return id, nil
}

func invalid(path, detail string) error {
	return grpcx.Error(grpcx.RequestInvalid, "the request is invalid", grpcx.WithViolations(grpcx.Violation{Path: path, Detail: detail}))
}

func told(err error) error {
	if postgres.Classify(err) == postgres.Unavailable {
		return grpcx.Error(grpcx.Unavailable, "the service's database cannot be used now")
	}
	return err
}
