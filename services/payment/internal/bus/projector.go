package bus

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/participant"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/postgres"
)

// Projector keeps the table payment in step with the steps, and says which events their results are.
type Projector struct{}

var _ participant.Projector = Projector{}

// QueueLoad implements participant.Projector.
func (Projector) QueueLoad(b *pgx.Batch, orders []uuid.UUID, into map[uuid.UUID]*participant.Row) {
	postgres.QueueLoad(b, orders, into)
}

// QueueStore implements participant.Projector.
func (Projector) QueueStore(b *pgx.Batch, changes []participant.Change) error {
	rows := make([]postgres.Change, len(changes))
	for i, c := range changes {
		rows[i].Row = c.Row
		for _, intent := range c.Intents {
			rows[i].Update.Merge(asked(intent))
		}
		for _, result := range c.Results {
			rows[i].Update.Merge(answered(result))
		}
	}
	postgres.QueueStore(b, rows)
	return nil
}

// asked is what a command that was taken in says about the payment.
func asked(i participant.Intent) payment.Update {
	if i.StepName != AuthorizePayment {
		return payment.Update{}
	}
	// A command that cannot be read is refused by the step itself.
	charge, reason := chargeOf(i.OrderID, i.Payload)
	if reason != "" {
		return payment.Update{}
	}
	return payment.Update{Currency: string(charge.Amount.Currency), Amount: &charge.Amount.Minor}
}

// answered is what the result of a step says about the payment.
func answered(r participant.Result) payment.Update {
	switch o := r.Outcome.(type) {
	case participant.Refused:
		u := payment.Update{Reason: o.Reason, IntentID: o.Reference}
		if r.StepName == AuthorizePayment {
			u.State = payment.Declined
		}
		return u
	case participant.Waiting:
		return payment.Update{IntentID: o.Reference}
	case participant.Done:
		switch result := o.Result.(type) {
		case *paymentv1.PaymentAuthorized:
			return payment.Update{State: payment.Authorized, IntentID: o.Reference}
		case *paymentv1.PaymentCaptured:
			return payment.Update{State: payment.Captured, IntentID: o.Reference, Captured: &result.AmountCaptured}
		case *paymentv1.PaymentVoided:
			u := payment.Update{State: payment.Voided, IntentID: o.Reference, Refunded: &result.AmountRefunded}
			if result.AmountRefunded > 0 {
				// Also where somebody else captured: what was given back had been taken.
				u.Captured = &result.AmountRefunded
			}
			return u
		}
	}
	return payment.Update{}
}

// Events implements participant.Projector.
func (Projector) Events(r participant.Result) ([]messaging.Message, error) {
	switch o := r.Outcome.(type) {
	case participant.Refused:
		if r.StepName == VoidPayment {
			return nil, nil // that a person must act is the saga's event
		}
		return event(topology.PaymentDeclined, &paymentv1.PaymentDeclined{
			OrderId: r.OrderID.String(), StepName: r.StepName, Reason: o.Reason,
		})
	case participant.Done:
		switch o.Result.(type) {
		case *paymentv1.PaymentAuthorized:
			return event(topology.PaymentAuthorized, o.Result)
		case *paymentv1.PaymentCaptured:
			return event(topology.PaymentCaptured, o.Result)
		case *paymentv1.PaymentVoided:
			return event(topology.PaymentVoided, o.Result)
		}
	case participant.Waiting:
		if o.Result != nil {
			return event(topology.PaymentActionRequired, o.Result)
		}
		return nil, nil
	}
	return nil, fmt.Errorf("step %s has the unplanned outcome %T", r.StepName, r.Outcome)
}

func event(subject string, payload proto.Message) ([]messaging.Message, error) {
	encoded, err := (proto.MarshalOptions{Deterministic: true}).Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("encoding event %s: %w", subject, err)
	}
	return []messaging.Message{{
		Subject: subject, Type: string(payload.ProtoReflect().Descriptor().FullName()), Source: topology.PaymentSource, Payload: encoded,
	}}, nil
}
