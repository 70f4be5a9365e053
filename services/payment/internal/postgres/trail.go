package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

// Trail tells of the payment of an order. It is a trail.Own.
type Trail struct{ Pool *pgxpool.Pool }

const selectByIntent = `SELECT order_id FROM payment WHERE payment_intent_id = $1 LIMIT 50`

// Find implements trail.Own: it knows the provider's ids.
func (t Trail) Find(ctx context.Context, id, _ string) ([]*trailv1.Match, error) {
	if id == "" {
		return nil, nil
	}
	rows, err := t.Pool.Query(ctx, selectByIntent, id)
	if err != nil {
		return nil, fmt.Errorf("looking for a payment: %w", err)
	}
	orders, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("looking for a payment: %w", err)
	}
	matches := make([]*trailv1.Match, len(orders))
	for i, order := range orders {
		matches[i] = &trailv1.Match{OrderId: order.String(), Kind: trailv1.IdKind_ID_KIND_PROVIDER_ID}
	}
	return matches, nil
}

const selectPayment = `
SELECT status, payment_intent_id, currency, amount, amount_captured, amount_refunded, decline_reason, updated_at
  FROM payment
 WHERE order_id = $1`

// Tell implements trail.Own. Nothing of it is personal.
func (t Trail) Tell(ctx context.Context, order uuid.UUID, _ bool) (entries []*trailv1.Entry, leftOut []string, err error) {
	var (
		status, reference, currency, reason string
		amount, captured, refunded          int64
		at                                  time.Time
	)
	err = t.Pool.QueryRow(ctx, selectPayment, order).Scan(&status, &reference, &currency, &amount, &captured, &refunded, &reason, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("reading the payment of order %s: %w", order, err)
	}
	e := &trailv1.Entry{
		EntryId: "record/payment", At: timestamppb.New(at), Kind: trailv1.EntryKind_ENTRY_KIND_RECORD, Title: "payment " + status, Outcome: status,
		Reason: reason, Attributes: map[string]string{
			"amount": strconv.FormatInt(amount, 10), "amount_captured": strconv.FormatInt(captured, 10),
			"amount_refunded": strconv.FormatInt(refunded, 10), "currency": currency,
		},
	}
	if reference != "" {
		e.Attributes["reference"] = reference
	}
	return []*trailv1.Entry{e}, nil, nil
}
