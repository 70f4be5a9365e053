package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

// Trail tells of the shipment of an order. It is a trail.Own.
type Trail struct{ Pool *pgxpool.Pool }

const selectByShipment = `SELECT order_id FROM shipment WHERE shipment_id = $1 LIMIT 50`

// Find implements trail.Own: it knows the carrier's ids.
func (t Trail) Find(ctx context.Context, id, _ string) ([]*trailv1.Match, error) {
	if id == "" {
		return nil, nil
	}
	rows, err := t.Pool.Query(ctx, selectByShipment, id)
	if err != nil {
		return nil, fmt.Errorf("looking for a shipment: %w", err)
	}
	orders, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("looking for a shipment: %w", err)
	}
	matches := make([]*trailv1.Match, len(orders))
	for i, order := range orders {
		matches[i] = &trailv1.Match{OrderId: order.String(), Kind: trailv1.IdKind_ID_KIND_CARRIER_ID}
	}
	return matches, nil
}

const selectShipment = `
SELECT status, shipment_id, refusal_reason, coalesce(carrier_status, ''), carrier_status_at, updated_at
  FROM shipment
 WHERE order_id = $1`

// Tell implements trail.Own. Nothing of it is personal.
func (t Trail) Tell(ctx context.Context, order uuid.UUID, _ bool) (entries []*trailv1.Entry, leftOut []string, err error) {
	var (
		status, reference, reason, carrierStatus string
		carrierAt                                *time.Time
		at                                       time.Time
	)
	err = t.Pool.QueryRow(ctx, selectShipment, order).Scan(&status, &reference, &reason, &carrierStatus, &carrierAt, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading the shipment of order %s: %w", order, err)
	}
	e := &trailv1.Entry{
		EntryId: "record/shipment", At: timestamppb.New(at), Kind: trailv1.EntryKind_ENTRY_KIND_RECORD, Title: "shipment " + status, Outcome: status,
		Reason: reason, Attributes: make(map[string]string),
	}
	if reference != "" {
		e.Attributes["reference"] = reference
	}
	if carrierStatus != "" && carrierAt != nil {
		e.Attributes["carrier_status"], e.Attributes["carrier_status_at"] = carrierStatus, carrierAt.UTC().Format(time.RFC3339Nano)
	}
	return []*trailv1.Entry{e}, nil, nil
}
