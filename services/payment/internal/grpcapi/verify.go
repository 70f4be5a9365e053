package grpcapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/verify"
	"github.com/throughline/throughline/services/payment/internal/postgres"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// Verify tells a proof of effects what the provider holds, and what the service has on record of it.
func Verify(pool *pgxpool.Pool, client *provider.Client) verify.Holdings {
	v := verifier{client}
	return verify.Participant{
		Pool: pool, List: v.list, Find: v.find,
		Records: func(ctx context.Context, orders []uuid.UUID) (map[uuid.UUID]*verifyv1.Record, error) {
			payments, err := postgres.Standings(ctx, pool, orders)
			if err != nil {
				return nil, err
			}
			records := make(map[uuid.UUID]*verifyv1.Record, len(payments))
			for id, p := range payments {
				records[id] = &verifyv1.Record{
					Status: string(p.State), Reference: p.IntentID, Currency: p.Currency, Amount: p.Amount, Captured: p.Captured, Refunded: p.Refunded,
				}
			}
			return records, nil
		},
	}
}

type verifier struct{ client *provider.Client }

// list gives the newest first, so it ends by itself.
func (v verifier) list(ctx context.Context, from, _ time.Time, after string) ([]verify.Entry, string, error) {
	page, next, err := v.client.ListIntents(ctx, from, after, provider.MaxPage)
	entries := make([]verify.Entry, len(page))
	for i := range page {
		entries[i] = entryOf(&page[i])
	}
	return entries, next, err
}

// find puts what a search finds, as it is now, together with what is known: a search may not find what is there.
func (v verifier) find(ctx context.Context, order uuid.UUID, known []string) ([]verify.Entry, error) {
	found, err := v.client.SearchIntents(ctx, order)
	if err != nil {
		return nil, err
	}
	ids := slices.Clone(known)
	for _, e := range found {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	var entries []verify.Entry
	for _, id := range ids {
		e, err := v.client.LookUpIntent(ctx, id)
		if answer, ok := errors.AsType[*provider.Error](err); ok && answer.Status == http.StatusNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if e.OrderID == order {
			entries = append(entries, entryOf(&e))
		}
	}
	return entries, nil
}

func entryOf(e *provider.Entry) verify.Entry {
	return verify.Entry{OrderID: e.OrderID, Intent: &verifyv1.Intent{
		Id: e.ID, Status: string(e.Status), Currency: string(e.Amount.Currency), Amount: e.Amount.Minor,
		Held: e.Held, Captured: e.Captured, Refunded: e.Refunded,
	}}
}
