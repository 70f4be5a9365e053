package placeorder

import (
	"bytes"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// The reasons of OrderNeedsAttention, as stable words.
const (
	// AttentionUndoRefused: a participant said that its undo cannot be done.
	AttentionUndoRefused = "undo_refused"
	// AttentionNoOutcome: a step at or after the pivot, or an undo, has had no outcome for longer than its budget.
	AttentionNoOutcome = "no_outcome"
	// AttentionLateSuccess: the pivot succeeded after everything had been undone.
	AttentionLateSuccess = "late_success"
)

// Projector keeps the order's row in step with its saga, and tells the world. The zero value is ready to use.
type Projector struct{}

var _ saga.Projector[*orderv1.PlaceOrder] = Projector{}

// StatusOf is what a saga's state means to the client. A saga that needs a person says so whatever else it is: it does also when
// money moved after everything had been undone, and then the order must not look undone.
func StatusOf(in *saga.Instance) order.Status {
	switch {
	case in.Attention != "":
		return order.NeedsAttention
	case in.Status == saga.Running:
		return order.Pending
	case in.Status == saga.Compensating:
		return order.Compensating
	case in.Status == saga.Completed:
		return order.Confirmed
	case in.Status == saga.Compensated && in.Cancelled():
		return order.Cancelled
	case in.Status == saga.Compensated:
		return order.Failed
	default:
		return "" // not begun
	}
}

// detailOf is what the saga's payment waits for, as the payment service has put it; nil while it does not.
func detailOf(in *saga.Instance) []byte {
	for _, s := range in.Steps {
		if s.Phase == saga.Waiting && len(s.Detail) > 0 {
			return s.Detail
		}
	}
	return nil
}

// NextActionOf is what the customer has to do for a saga to go on, as an encoded orderv1.NextAction; nil while nothing is. What cannot
// be read is nothing: a word for the customer must not hold up the order.
func NextActionOf(in *saga.Instance) ([]byte, error) {
	detail := detailOf(in)
	required := new(paymentv1.PaymentActionRequired)
	if detail == nil {
		return nil, nil
	}
	if err := proto.Unmarshal(detail, required); err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	next, err := proto.MarshalOptions{Deterministic: true}.Marshal(&orderv1.NextAction{
		Type: required.GetType(), Url: required.GetUrl(), ExpiresAt: required.GetExpiresAt(),
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the next action of order %s: %w", in.ID, err)
	}
	return next, nil
}

// Events gives the events of the states that a change enters, in their sequence: a saga with nothing to undo enters compensating and
// its end in one change, and both are told.
func (Projector) Events(c saga.Change[*orderv1.PlaceOrder]) ([]messaging.Message, error) {
	o, before, after := c.Data, &c.Before, &c.After
	var events []messaging.Message
	var failed error
	tell := func(subject string, event proto.Message) {
		payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(event)
		if err != nil {
			failed = fmt.Errorf("encoding %s: %w", subject, err)
		}
		events = append(events, messaging.Message{
			Subject: subject, Type: string(event.ProtoReflect().Descriptor().FullName()), Source: topology.OrderSource, Payload: payload,
		})
	}
	if before.Status == "" {
		tell(topology.OrderCreated, &orderv1.OrderCreated{
			OrderId: o.GetOrderId(), ClientId: o.GetClientId(), Currency: o.GetRequest().GetCurrency(), Total: o.GetTotal(),
			Lines: o.GetRequest().GetLines(), CreatedAt: timestamppb.New(c.At),
		})
	}
	if turnsBack(before.Status, after.Status) {
		tell(topology.OrderCompensating, &orderv1.OrderCompensating{
			OrderId: o.GetOrderId(), ClientId: o.GetClientId(), Reason: after.Reason,
		})
	}
	if was, is := StatusOf(before), StatusOf(after); is != was {
		switch is {
		case order.Confirmed:
			tell(topology.OrderConfirmed, &orderv1.OrderConfirmed{
				OrderId: o.GetOrderId(), ClientId: o.GetClientId(), Currency: o.GetRequest().GetCurrency(), Total: o.GetTotal(),
			})
		case order.Failed:
			tell(topology.OrderFailed, &orderv1.OrderFailed{OrderId: o.GetOrderId(), ClientId: o.GetClientId(), Reason: after.Reason})
		case order.Cancelled:
			tell(topology.OrderCancelled, &orderv1.OrderCancelled{OrderId: o.GetOrderId(), ClientId: o.GetClientId(), Reason: after.Reason})
		case order.NeedsAttention:
			tell(topology.OrderNeedsAttention, &orderv1.OrderNeedsAttention{
				OrderId: o.GetOrderId(), ClientId: o.GetClientId(), Reason: attentionReason(after),
			})
		case order.Pending, order.Compensating:
		}
	}
	return events, failed
}

// turnsBack tells whether a saga begins to undo: the first time, or again because of a late success.
func turnsBack(before, after saga.Status) bool {
	switch before {
	case saga.Running, "":
		return after == saga.Compensating || after == saga.Compensated
	case saga.Compensated:
		return after == saga.Compensating
	default:
		return false
	}
}

func attentionReason(in *saga.Instance) string {
	for _, s := range in.Steps {
		if s.Phase == saga.UndoRefused {
			return AttentionUndoRefused
		}
	}
	if in.Status.Ended() {
		return AttentionLateSuccess
	}
	return AttentionNoOutcome
}

// Queue brings the rows of the orders whose status changes to their new one. Changes come sorted by saga id, which is the order id.
func (Projector) Queue(b *pgx.Batch, changes []saga.Change[*orderv1.PlaceOrder]) error {
	moved := make([]postgres.StatusChange, 0, len(changes))
	var needs []postgres.Attention
	var settled []uuid.UUID
	for _, c := range changes {
		status, before, action := StatusOf(&c.After), detailOf(&c.Before), detailOf(&c.After)
		if status == StatusOf(&c.Before) && c.After.Reason == c.Before.Reason && bytes.Equal(before, action) {
			continue // most steps of a saga are none of the client's business
		}
		next, err := NextActionOf(&c.After)
		if err != nil {
			return err
		}
		moved = append(moved, postgres.StatusChange{OrderID: c.After.ID, Status: status, FailureReason: c.After.Reason, NextAction: next})
	}
	for _, c := range changes {
		after := c.After.Attention
		switch after {
		case c.Before.Attention:
		case "":
			settled = append(settled, c.After.ID)
		default:
			needs = append(needs, postgres.Attention{OrderID: c.After.ID, Reason: attentionReason(&c.After), Detail: after, Since: c.At})
		}
	}
	postgres.QueueStatus(b, moved)
	postgres.QueueAttention(b, needs, settled)
	return nil
}
