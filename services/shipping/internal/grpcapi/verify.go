package grpcapi

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/verify"
	"github.com/throughline/throughline/services/shipping/internal/carrier"
	"github.com/throughline/throughline/services/shipping/internal/postgres"
)

// Verify tells a proof of effects what the carrier has, and what the service has on record of it.
func Verify(pool *pgxpool.Pool, client *carrier.Client) verify.Holdings {
	return verify.Participant{
		Pool: pool,
		List: func(ctx context.Context, from, until time.Time, after string) ([]verify.Entry, string, error) {
			page, next, err := client.ListShipments(ctx, from, after, carrier.MaxPage)
			if n := len(page); n > 0 && !until.IsZero() && !page[n-1].CreatedAt.Before(until) {
				next = "" // the oldest come first, so all that follows is later still
			}
			return entriesOf(page), next, err
		},
		Find: func(ctx context.Context, order uuid.UUID, _ []string) ([]verify.Entry, error) {
			found, err := client.FindShipments(ctx, order)
			return entriesOf(found), err
		},
		Records: func(ctx context.Context, orders []uuid.UUID) (map[uuid.UUID]*verifyv1.Record, error) {
			shipments, err := postgres.Standings(ctx, pool, orders)
			if err != nil {
				return nil, err
			}
			records := make(map[uuid.UUID]*verifyv1.Record, len(shipments))
			for id, s := range shipments {
				records[id] = &verifyv1.Record{Status: string(s.State), Reference: s.ShipmentID}
			}
			return records, nil
		},
	}
}

func entriesOf(found []carrier.Entry) []verify.Entry {
	entries := make([]verify.Entry, len(found))
	for i, e := range found {
		entries[i] = verify.Entry{OrderID: e.OrderID, Parcel: &verifyv1.Parcel{Id: e.ID, Status: string(e.Status)}}
	}
	return entries
}
