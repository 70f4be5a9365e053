package grpcapi

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/keys"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// GetIdempotencyKey tells what is known of a key of the client's orders. The key comes parsed. A key of another client is as unknown as
// one that nobody has used: the order's id follows from both.
func (s *Server) GetIdempotencyKey(ctx context.Context, req *orderv1.GetIdempotencyKeyRequest) (*orderv1.GetIdempotencyKeyResponse, error) {
	client, err := grpcx.ClientID(ctx)
	if err != nil {
		return nil, err
	}
	key := req.GetKey()
	if key == "" || len(key) > keys.MaxLen {
		return nil, invalid([]order.Violation{{Path: "key", Detail: fmt.Sprintf("must have 1 to %d bytes", keys.MaxLen)}})
	}
	id := keys.OrderID(client, key)
	about(ctx, client, key, id)
	var row *postgres.Row
	found := make(map[uuid.UUID]idempotency.Record, 1)
	var read pgx.Batch
	postgres.QueueGet(&read, id, &row)
	idempotency.QueueFind(&read, []uuid.UUID{id}, found)
	if err := s.cfg.Pool.SendBatch(ctx, &read).Close(); err != nil {
		return nil, explain(ctx, fmt.Errorf("reading the key of order %s: %w", id, err))
	}
	known := &orderv1.IdempotencyKey{Key: key, State: orderv1.KeyState_KEY_STATE_UNKNOWN}
	if row == nil {
		return &orderv1.GetIdempotencyKeyResponse{IdempotencyKey: known}, nil
	}
	known.State, known.OrderId, known.FirstSeenAt = orderv1.KeyState_KEY_STATE_SETTLED, id.String(), timestamppb.New(row.CreatedAt)
	if record, ok := found[id]; ok {
		known.ExpiresAt, known.Replays = timestamppb.New(record.ExpiresAt), record.Replays
	}
	return &orderv1.GetIdempotencyKeyResponse{IdempotencyKey: known}, nil
}
