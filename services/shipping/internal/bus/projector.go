package bus

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/participant"
	shippingv1 "github.com/throughline/throughline/proto/gen/throughline/shipping/v1"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/shipping/internal/postgres"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

// Projector keeps the table shipment in step with the steps, and says which events their results are.
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
		for _, result := range c.Results {
			rows[i].Update.Merge(answered(result))
		}
	}
	postgres.QueueStore(b, rows)
	return nil
}

// answered is what the result of a step says about the shipment.
func answered(r participant.Result) shipping.Update {
	switch o := r.Outcome.(type) {
	case participant.Refused:
		u := shipping.Update{Reason: o.Reason, ShipmentID: o.Reference}
		if r.StepName == CreateShipment {
			u.State = shipping.StateRefused
		}
		return u
	case participant.Done:
		switch o.Result.(type) {
		case *shippingv1.ShipmentCreated:
			return shipping.Update{State: shipping.StateCreated, ShipmentID: o.Reference}
		case *shippingv1.ShipmentDispatched:
			return shipping.Update{State: shipping.StateDispatched, ShipmentID: o.Reference}
		case *shippingv1.ShipmentCancelled:
			return shipping.Update{State: shipping.StateCancelled, ShipmentID: o.Reference}
		}
	}
	return shipping.Update{}
}

// Events implements participant.Projector.
func (Projector) Events(r participant.Result) ([]messaging.Message, error) {
	switch o := r.Outcome.(type) {
	case participant.Refused:
		if r.StepName == CancelShipment {
			return nil, nil // that a person must act is the saga's event
		}
		return event(topology.ShipmentRefused, &shippingv1.ShipmentRefused{
			OrderId: r.OrderID.String(), StepName: r.StepName, Reason: o.Reason,
		})
	case participant.Done:
		switch o.Result.(type) {
		case *shippingv1.ShipmentCreated:
			return event(topology.ShipmentCreated, o.Result)
		case *shippingv1.ShipmentDispatched:
			return event(topology.ShipmentDispatched, o.Result)
		case *shippingv1.ShipmentCancelled:
			return event(topology.ShipmentCancelled, o.Result)
		}
	}
	return nil, fmt.Errorf("step %s has the unplanned outcome %T", r.StepName, r.Outcome)
}

func event(subject string, payload proto.Message) ([]messaging.Message, error) {
	encoded, err := (proto.MarshalOptions{Deterministic: true}).Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("encoding event %s: %w", subject, err)
	}
	return []messaging.Message{{
		Subject: subject, Type: string(payload.ProtoReflect().Descriptor().FullName()), Source: topology.ShippingSource, Payload: encoded,
	}}, nil
}
