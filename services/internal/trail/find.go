package trail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/outbox"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

const (
	// scanTime bounds the search for a derived key. A million steps take about two seconds.
	scanTime = 20 * time.Second
	scanPage = 10_000
)

// FindOrders implements trailv1.TrailServiceServer.
func (s *server) FindOrders(ctx context.Context, req *trailv1.FindOrdersRequest) (*trailv1.FindOrdersResponse, error) {
	id := strings.TrimSpace(req.GetId())
	if !said(id, maxID) || strings.ContainsRune(id, 0) {
		return nil, invalid("id", fmt.Sprintf("must have 1 to %d characters", maxID))
	}
	f := &finding{server: s, seen: make(map[string]bool)}
	if err := f.find(ctx, id, req.GetClientId()); err != nil {
		return nil, told(fmt.Errorf("looking for what %q belongs to: %w", id, err))
	}
	return &trailv1.FindOrdersResponse{Matches: f.matches[:min(len(f.matches), maxMatches)]}, nil
}

type finding struct {
	*server
	matches []*trailv1.Match
	seen    map[string]bool // orders and kinds
}

func (f *finding) add(matches ...*trailv1.Match) {
	for _, m := range matches {
		if key := m.GetOrderId() + m.GetKind().String(); !f.seen[key] {
			f.seen[key] = true
			f.matches = append(f.matches, m)
		}
	}
}

func (f *finding) order(id uuid.UUID, kind trailv1.IdKind) {
	f.add(&trailv1.Match{OrderId: id.String(), Kind: kind})
}

func (f *finding) find(ctx context.Context, text, client string) error {
	if f.cfg.Own != nil {
		matches, err := f.cfg.Own.Find(ctx, text, client)
		if err != nil {
			return err
		}
		f.add(matches...)
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return nil //nolint:nilerr // an id that is no UUID is one of the service's own, or none
	}
	if err := f.steps(ctx, id); err != nil {
		return err
	}
	order, ok, err := outbox.AggregateOf(ctx, f.cfg.Pool, id)
	if err != nil {
		return err
	}
	if ok {
		f.order(order, trailv1.IdKind_ID_KIND_MESSAGE_ID)
	}
	if err := f.deadLetter(ctx, id); err != nil {
		return err
	}
	if len(f.matches) > 0 || !f.cfg.Participant || id.Version() != 5 {
		return nil
	}
	return f.derived(ctx, id)
}

// steps looks for an order of that id.
func (f *finding) steps(ctx context.Context, id uuid.UUID) error {
	if !f.cfg.Participant {
		return nil
	}
	var known bool
	if err := f.cfg.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM step WHERE order_id = $1)`, id).Scan(&known); err != nil {
		return err
	}
	if known {
		f.order(id, trailv1.IdKind_ID_KIND_ORDER_ID)
	}
	return nil
}

const selectLetterOrder = `SELECT aggregate_id FROM dead_letter WHERE message_id = $1 LIMIT 1`

func (f *finding) deadLetter(ctx context.Context, id uuid.UUID) error {
	var order uuid.UUID
	err := f.cfg.Pool.QueryRow(ctx, selectLetterOrder, id).Scan(&order)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		f.order(order, trailv1.IdKind_ID_KIND_MESSAGE_ID)
	}
	return err
}

// selectKeys pages through the steps by their key. Only the index is read.
const selectKeys = `
SELECT order_id, step_name FROM step
 WHERE (order_id, step_name) > ($1, $2)
 ORDER BY order_id, step_name
 LIMIT $3`

// derived looks for the step that a key was derived from. Keys derive one way only, and an index over them would cost each order more
// than this search ever will; so all steps are gone through, which takes seconds and is asked for by people.
func (f *finding) derived(ctx context.Context, id uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	var order uuid.UUID
	var step string
	for {
		rows, err := f.cfg.Pool.Query(ctx, selectKeys, order, step, scanPage)
		if err != nil {
			return err
		}
		n := 0
		_, err = pgx.ForEachRow(rows, []any{&order, &step}, func() error {
			n++
			key := keys.StepKey(order, step)
			if key == id {
				f.order(order, trailv1.IdKind_ID_KIND_STEP_KEY)
			}
			for _, operation := range f.cfg.Operations {
				if keys.ProviderKey(key, operation) == id {
					f.order(order, trailv1.IdKind_ID_KIND_PROVIDER_KEY)
				}
			}
			return nil
		})
		if err != nil || len(f.matches) > 0 || n < scanPage {
			return err
		}
	}
}
