package trail

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/outbox"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

const (
	defaultActivity = 100
	maxActivity     = 500
	// overlap is how long after its id was minted a message may still be told: transactions that write messages take milliseconds, and wait
	// for locks a second at most.
	overlap = 5 * time.Second
)

// ListActivity implements trailv1.TrailServiceServer. The cursor is the id of a message, which need not exist.
func (s *server) ListActivity(ctx context.Context, req *trailv1.ListActivityRequest) (*trailv1.ListActivityResponse, error) {
	size := int(req.GetPageSize())
	if size == 0 {
		size = defaultActivity
	}
	if size < 1 || size > maxActivity {
		return nil, invalid("page_size", fmt.Sprintf("must be from 1 to %d", maxActivity))
	}
	var now time.Time
	if err := s.cfg.Pool.QueryRow(ctx, `SELECT now()`).Scan(&now); err != nil {
		return nil, told(fmt.Errorf("reading the time: %w", err))
	}
	edge := firstMessageAt(now.Add(-overlap))
	after := edge
	if text := req.GetCursor(); text != "" {
		id, err := uuid.Parse(text)
		if err != nil || len(text) != 36 {
			return nil, invalid("cursor", "is not one of ours")
		}
		after = id
	}
	found, err := outbox.Lately(ctx, s.cfg.Pool, after, size)
	if err != nil {
		return nil, told(err)
	}
	resp := &trailv1.ListActivityResponse{NextCursor: edge.String()}
	for i := range found {
		e := sentEntry(&found[i])
		e.OrderId, e.Service, e.Undo = found[i].AggregateID.String(), s.cfg.Service, (&telling{server: s}).undo(found[i].StepName)
		resp.Entries = append(resp.Entries, e)
	}
	if len(found) == size { // there is more: go on behind it, and look back only when it has been caught up with
		resp.NextCursor = found[size-1].ID.String()
	}
	return resp, nil
}

// firstMessageAt is the least id that a message of this time may have: a UUIDv7 begins with the milliseconds of Unix time.
func firstMessageAt(t time.Time) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(max(t.UnixMilli(), 0))<<16) //nolint:gosec // never negative
	return id
}
