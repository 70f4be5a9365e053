package grpcapi

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// perRevision is how many positions one change of a saga has room for: two for each of its steps, and some for itself.
const perRevision = 1000

// facts says what the changes of steps mean to a client. What is not here is ours: sending, asking, undoing.
var facts = map[string]map[saga.Phase]string{
	"authorize_payment": {saga.Done: "payment_authorized", saga.Refused: "payment_declined", saga.Waiting: "payment_action_required"},
	"void_payment":      {saga.Undone: "payment_voided"},
	"create_shipment":   {saga.Done: "shipment_created", saga.Refused: "shipment_refused"},
	"cancel_shipment":   {saga.Undone: "shipment_cancelled"},
	"capture_payment":   {saga.Done: "payment_captured", saga.Refused: "payment_capture_refused"},
	"dispatch_shipment": {saga.Done: "shipment_dispatched", saga.Refused: "shipment_dispatch_refused"},
}

// GetTimeline tells the client's view of what has happened to an order. It is told from the saga's history alone, so it does not depend
// on who else is there.
func (s *Server) GetTimeline(ctx context.Context, req *orderv1.GetTimelineRequest) (*orderv1.GetTimelineResponse, error) {
	client, err := grpcx.ClientID(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetAfter() < 0 {
		return nil, invalid([]order.Violation{{Path: "after", Detail: "must not be negative"}})
	}
	// The order is read first: of one that has ended the history is then whole.
	row, err := s.own(ctx, client, req.GetOrderId())
	if err != nil {
		return nil, explain(ctx, err)
	}
	history, err := saga.ReadHistory(ctx, s.cfg.Pool, row.OrderID)
	if err != nil {
		return nil, explain(ctx, err)
	}
	found, err := idempotency.Find(ctx, s.cfg.Pool, row.OrderID)
	if err != nil {
		return nil, explain(ctx, err)
	}
	resp := &orderv1.GetTimelineResponse{
		OrderId: row.OrderID.String(), Status: statuses[row.Status], Replays: found[row.OrderID].Replays, Mismatches: found[row.OrderID].Mismatches,
	}
	for _, e := range clientsView(&row, history) {
		if e.GetPosition() > req.GetAfter() {
			resp.Entries = append(resp.Entries, e)
		}
	}
	return resp, nil
}

func clientsView(row *postgres.Row, history []saga.Entry) []*orderv1.TimelineEntry {
	var entries []*orderv1.TimelineEntry
	var revision, place int64
	for i := range history {
		h := &history[i]
		if place++; h.Revision != revision {
			revision, place = h.Revision, 1
		}
		event, why := factOf(row, h)
		if event == "" {
			continue
		}
		e := &orderv1.TimelineEntry{Position: revision*perRevision + place, At: timestamppb.New(h.At), Event: event}
		if why {
			e.Reason = row.FailureReason
		}
		entries = append(entries, e)
	}
	return entries
}

// factOf gives what a change means to the client, or nothing; and whether the order's reason is why.
func factOf(row *postgres.Row, h *saga.Entry) (event string, why bool) {
	if h.Step != "" {
		return facts[h.Step][saga.Phase(h.To)], saga.Phase(h.To) == saga.Refused
	}
	switch {
	case h.To == saga.NeedsAttention:
		return "order_needs_attention", false
	case h.From == "" && h.To == string(saga.Running):
		return "order_placed", false
	case h.To == string(saga.Compensating) && h.From == string(saga.Running):
		return "order_compensating", true
	case h.To == string(saga.Completed):
		return "order_confirmed", false
	case h.To == string(saga.Compensated) && row.FailureReason == saga.ReasonCancelled:
		return "order_cancelled", true
	case h.To == string(saga.Compensated):
		return "order_failed", true
	}
	return "", false
}
