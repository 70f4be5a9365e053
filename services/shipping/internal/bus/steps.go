package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/telemetry"
	shippingv1 "github.com/throughline/throughline/proto/gen/throughline/shipping/v1"
	"github.com/throughline/throughline/services/shipping/internal/carrier"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

// The names of the steps, as commands and the step table have them.
const (
	CreateShipment   = "create_shipment"
	DispatchShipment = "dispatch_shipment"
	CancelShipment   = "cancel_shipment"
)

// DefaultSettle is how long after its sender has given up a request may still arrive at the carrier.
const DefaultSettle = 2 * time.Second

var (
	errUnplanned  = errors.New("the shipment's status tells neither a yes nor a no")
	errNotFound   = errors.New("the carrier does not find the shipment that it has created")
	errNotAsAsked = errors.New("the carrier says yes, and the shipment shows no effect")
)

// Config makes [Steps]. Zero values mean the defaults.
type Config struct {
	Carrier *carrier.Client
	// Settle is how long after its sender has given up a request may still arrive at the carrier.
	Settle time.Duration
	// CheckTime is how long after its end a creation that was in doubt is looked up again.
	CheckTime time.Duration
	Logger    *slog.Logger
}

// Steps are the steps that the shipping service performs.
type Steps struct {
	cfg Config
	log *slog.Logger
}

// NewSteps makes the steps.
func NewSteps(cfg Config) *Steps {
	if cfg.Settle <= 0 {
		cfg.Settle = DefaultSettle
	}
	if cfg.CheckTime <= 0 {
		cfg.CheckTime = DefaultCheckTime
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Steps{cfg: cfg, log: cfg.Logger}
}

// All are the steps for a participant.Runner.
func (s *Steps) All() []participant.Step {
	return []participant.Step{
		{Name: CreateShipment, Perform: s.loud(s.create)},
		{Name: DispatchShipment, Perform: s.loud(s.dispatch)},
		{Name: CancelShipment, Undoes: []string{CreateShipment, DispatchShipment}, Perform: s.loud(s.cancel)},
		{Name: VerifyShipment, Checks: []string{CreateShipment}, Perform: s.loud(s.verify)},
	}
}

// loud reports what no repetition will cure: somebody has to look.
func (s *Steps) loud(perform func(context.Context, *participant.Call) participant.Outcome) func(context.Context, *participant.Call) participant.Outcome {
	return func(ctx context.Context, call *participant.Call) participant.Outcome {
		out := perform(ctx, call)
		u, ok := out.(participant.Unknown)
		if !ok {
			return out
		}
		level := slog.LevelInfo
		if errors.Is(u.Err, carrier.ErrNotOurs) || errors.Is(u.Err, carrier.ErrConfiguration) || errors.Is(u.Err, errNotFound) {
			level = slog.LevelError
		}
		s.log.Log(ctx, level, "outcome at the carrier is unknown", telemetry.LogOrderID, call.OrderID, telemetry.LogStep, call.StepName,
			telemetry.LogAttempt, call.Attempt, telemetry.LogError, u.Err)
		return out
	}
}

// order gives the carrier's side of an order.
func (s *Steps) order(id uuid.UUID) *carrier.Order {
	return s.cfg.Carrier.Order(id, keys.StepKey(id, CreateShipment))
}

// create books the order's shipment.
func (s *Steps) create(ctx context.Context, call *participant.Call) participant.Outcome {
	var cmd shippingv1.CreateShipment
	if err := proto.Unmarshal(call.Payload, &cmd); err != nil || cmd.GetOrderId() != call.OrderID.String() || cmd.GetShipTo() == nil {
		return participant.Refused{Reason: shipping.ReasonInvalidCommand}
	}
	o := s.order(call.OrderID)
	if call.Attempt > 1 {
		if out := s.adopt(ctx, call, o); out != nil {
			return out
		}
	}
	made, err := o.Create(ctx, addressOf(cmd.GetShipTo()), itemsOf(cmd.GetItems()))
	if reason, ok := carrier.Refusal(err); ok {
		return participant.Refused{Reason: reason}
	}
	switch {
	case carrier.NothingSent(err):
		return participant.Unknown{Err: err}
	case err != nil:
		// The next attempt looks first, and finds what is still on its way now.
		return participant.Unknown{Err: err, RetryAfter: s.cfg.Settle}
	case made.Status != shipping.Created:
		return participant.Unknown{Err: fmt.Errorf("%w: %q", errUnplanned, made.Status), Reference: made.ID}
	case call.Attempt > 1:
		// An earlier one may have arrived in between.
		out := s.adopt(ctx, call, o)
		if out == nil {
			out = participant.Unknown{Err: errNotFound, Reference: made.ID}
		}
		return out
	}
	return created(call.OrderID, made)
}

// adopt looks what the carrier has of an order, takes it as the order's shipment, and cancels what is too much. It gives nil if there
// is nothing.
func (s *Steps) adopt(ctx context.Context, call *participant.Call, o *carrier.Order) participant.Outcome {
	found, err := o.Find(ctx)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	d := shipping.ForCreate(found)
	switch d.Act {
	case shipping.Create:
		return nil
	case shipping.Refuse:
		return participant.Refused{Reason: d.Reason, Reference: found[0].ID}
	case shipping.Finish:
	default:
		return participant.Unknown{Err: errUnplanned}
	}
	for _, extra := range d.Cancel {
		status, err := cancelOne(ctx, o, extra.ID)
		if err != nil {
			return participant.Unknown{Err: fmt.Errorf("cancelling an extra shipment: %w", err), Reference: d.Keep.ID}
		}
		level := slog.LevelWarn
		if status == shipping.Dispatched {
			level = slog.LevelError // two parcels are on their way, and no repetition brings one back
		}
		s.log.Log(ctx, level, "order had an extra shipment", telemetry.LogOrderID, call.OrderID, "shipment_id", extra.ID, telemetry.LogStatus, status)
	}
	return created(call.OrderID, d.Keep)
}

func created(order uuid.UUID, sh shipping.Shipment) participant.Outcome {
	return participant.Done{Reference: sh.ID, Result: &shippingv1.ShipmentCreated{OrderId: order.String(), ShipmentId: sh.ID}}
}

// cancelOne cancels a shipment and gives what has become of it. An error leaves that open.
func cancelOne(ctx context.Context, o *carrier.Order, id string) (shipping.Status, error) {
	after, err := o.Cancel(ctx, id)
	if status, ok := carrier.Conflict(err); ok {
		return status, nil
	}
	if err == nil && after.Status == shipping.Created {
		err = errNotAsAsked
	}
	return after.Status, err
}

// dispatch sends the order's shipment on its way.
func (s *Steps) dispatch(ctx context.Context, call *participant.Call) participant.Outcome {
	create, ok, err := call.Sibling(ctx, CreateShipment)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	if !ok || create.State != participant.StateDone || create.Reference == "" {
		return participant.Refused{Reason: shipping.ReasonNotCreated}
	}
	o := s.order(call.OrderID)
	// At the first attempt the shipment is as its creation has left it, or the carrier will say otherwise.
	sh := shipping.Shipment{ID: create.Reference, Status: shipping.Created}
	if call.Attempt > 1 {
		if sh, err = o.Get(ctx, create.Reference); err != nil {
			return participant.Unknown{Err: err, Reference: create.Reference}
		}
	}
	if shipping.ForDispatch(sh).Act == shipping.Dispatch {
		sent, err := o.Dispatch(ctx, sh.ID)
		if status, ok := carrier.Conflict(err); ok {
			sent, err = shipping.Shipment{ID: sh.ID, Status: status}, nil
		}
		if err != nil {
			var askErr error
			if sent, askErr = o.Get(ctx, sh.ID); askErr != nil {
				return participant.Unknown{Err: errors.Join(err, askErr), Reference: sh.ID}
			}
		}
		sh = sent
		if shipping.ForDispatch(sh).Act == shipping.Dispatch {
			return participant.Unknown{Err: errors.Join(errNotAsAsked, err), Reference: sh.ID}
		}
	}
	switch d := shipping.ForDispatch(sh); d.Act {
	case shipping.Finish:
		return participant.Done{Reference: sh.ID, Result: &shippingv1.ShipmentDispatched{OrderId: call.OrderID.String(), ShipmentId: sh.ID}}
	case shipping.Refuse:
		return participant.Refused{Reason: d.Reason, Reference: sh.ID}
	default:
		return participant.Unknown{Err: fmt.Errorf("%w: %q", errUnplanned, sh.Status), Reference: sh.ID}
	}
}

// cancel leaves the order without a live shipment, whatever it finds. Its runner has put the tombstones and waited until a creation
// in doubt must have arrived, so what is not found now is not there.
func (s *Steps) cancel(ctx context.Context, call *participant.Call) participant.Outcome {
	create, ok, err := call.Sibling(ctx, CreateShipment)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	result := &shippingv1.ShipmentCancelled{OrderId: call.OrderID.String()}
	if !ok || neverBegan(&create) {
		return participant.Done{Result: result}
	}
	o := s.order(call.OrderID)
	found, err := o.Find(ctx)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	if len(found) == 0 && create.Reference != "" {
		return participant.Unknown{Err: errNotFound}
	}
	d := shipping.ForCancel(found)
	for _, sh := range d.Cancel {
		switch status, err := cancelOne(ctx, o, sh.ID); {
		case err != nil:
			return participant.Unknown{Err: err, Reference: sh.ID}
		case status == shipping.Dispatched:
			d.Act, d.Reason, d.Keep = shipping.Refuse, shipping.ReasonAlreadyDispatched, sh // it left meanwhile
		case status != shipping.Cancelled && status != shipping.Lost:
			return participant.Unknown{Err: fmt.Errorf("%w: %q", errUnplanned, status), Reference: sh.ID}
		}
	}
	switch d.Act {
	case shipping.Finish:
		for _, sh := range found {
			if sh.Status != shipping.Lost {
				result.ShipmentIds = append(result.ShipmentIds, sh.ID)
			}
		}
		return participant.Done{Result: result, Reference: create.Reference}
	case shipping.Refuse:
		return participant.Refused{Reason: d.Reason, Reference: d.Keep.ID}
	default:
		return participant.Unknown{Err: errUnplanned}
	}
}

// neverBegan tells whether no creation can have reached the carrier, or none that was not refused: its command never came, or it was
// never attempted, or its only attempt was a definite no.
func neverBegan(create *participant.Record) bool {
	switch {
	case create.CommandID == uuid.Nil, create.Attempts == 0:
		return true
	case create.Reference != "" || create.Attempts > 1:
		return false
	}
	return create.State == participant.StateRefused && create.Reason != participant.ReasonUndone
}

func addressOf(a *shippingv1.Address) shipping.Address {
	return shipping.Address{
		Name: a.GetName(), Line1: a.GetLine1(), Line2: a.GetLine2(), City: a.GetCity(), Region: a.GetRegion(),
		PostalCode: a.GetPostalCode(), Country: a.GetCountry(),
	}
}

func itemsOf(items []*shippingv1.Item) []shipping.Item {
	list := make([]shipping.Item, len(items))
	for i, it := range items {
		list[i] = shipping.Item{SKU: it.GetSku(), Quantity: it.GetQuantity()}
	}
	return list
}
