package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/participant"
	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
)

// Entry is a thing that the outside has made: an intent or a parcel.
type Entry struct {
	// OrderID is uuid.Nil for one of somebody else.
	OrderID uuid.UUID
	Intent  *verifyv1.Intent
	Parcel  *verifyv1.Parcel
}

// Participant is [Holdings] of a service that performs steps outside.
type Participant struct {
	Pool *pgxpool.Pool
	// List gives a page of what the outside has made from a time on, behind a place; next is empty after the last page. A list of the oldest
	// first ends at until, if that is not the zero time, so that it does end.
	List func(ctx context.Context, from, until time.Time, after string) (page []Entry, next string, err error)
	// Find gives all that the outside has made for an order. ids are of what is known to be there; one that is not, or is of another order, is
	// left out.
	Find func(ctx context.Context, order uuid.UUID, ids []string) ([]Entry, error)
	// Records reads what the service itself has on record of some orders.
	Records func(ctx context.Context, orders []uuid.UUID) (map[uuid.UUID]*verifyv1.Record, error)
}

// ListHoldings gives a page of what is held outside.
func (p Participant) ListHoldings(ctx context.Context, req *verifyv1.ListHoldingsRequest) (*verifyv1.ListHoldingsResponse, error) {
	if len(req.GetOrderIds()) > 0 {
		return p.find(ctx, req.GetOrderIds(), req.GetKnown())
	}
	resp := new(verifyv1.ListHoldingsResponse)
	from, until := time.Time{}, time.Time{}
	if req.GetSince() != nil {
		from = req.GetSince().AsTime()
	}
	if req.GetUntil() != nil {
		until = req.GetUntil().AsTime()
	}
	page, next, err := p.List(ctx, from, until, req.GetPageToken())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutside, err)
	}
	resp.NextPageToken = next
	var ids []uuid.UUID
	byOrder := make(map[uuid.UUID]*verifyv1.Holding)
	for _, e := range page {
		if e.OrderID == uuid.Nil {
			continue
		}
		if byOrder[e.OrderID] == nil {
			byOrder[e.OrderID] = &verifyv1.Holding{OrderId: e.OrderID.String()}
			ids = append(ids, e.OrderID)
		}
		e.addTo(byOrder[e.OrderID])
	}
	records, err := p.Records(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		byOrder[id].Record = records[id]
		resp.Holdings = append(resp.Holdings, byOrder[id])
	}
	return resp, nil
}

// find gives all that there is of some orders.
func (p Participant) find(ctx context.Context, texts []string, known []*verifyv1.Known) (*verifyv1.ListHoldingsResponse, error) {
	ids, err := ParseIDs(texts)
	if err != nil {
		return nil, err
	}
	// What is still to be done is asked first: what was done meanwhile is then found.
	due, err := participant.Undecided(ctx, p.Pool, ids)
	if err != nil {
		return nil, err
	}
	records, err := p.Records(ctx, ids)
	if err != nil {
		return nil, err
	}
	seen := make(map[string][]string)
	for _, k := range known {
		seen[k.GetOrderId()] = append(seen[k.GetOrderId()], k.GetId())
	}
	resp := new(verifyv1.ListHoldingsResponse)
	for i, id := range ids {
		if reference := records[id].GetReference(); reference != "" {
			seen[texts[i]] = append(seen[texts[i]], reference)
		}
		entries, err := p.Find(ctx, id, seen[texts[i]])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOutside, err)
		}
		h := &verifyv1.Holding{OrderId: id.String(), Record: records[id], StepDue: due[id]}
		for _, e := range entries {
			e.addTo(h)
		}
		resp.Holdings = append(resp.Holdings, h)
	}
	return resp, nil
}

func (e *Entry) addTo(h *verifyv1.Holding) {
	if e.Intent != nil {
		h.Intents = append(h.Intents, e.Intent)
	}
	if e.Parcel != nil {
		h.Parcels = append(h.Parcels, e.Parcel)
	}
}
