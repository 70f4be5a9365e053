package crash_test

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// story is how an order goes, were it not for the crash; and how it must end all the same.
type story struct {
	name, about, end string
	order            system.Order
	payment, parcel  *control.Fault // at the provider, at the carrier
	// during acts while the order is on its way; nil does nothing.
	during func(ctx context.Context, w *world, id string) error
}

// The stories. Their totals differ, so that one order's money is never another's.
var (
	sold          = &story{name: "sold", about: "everything succeeds", end: verify.Confirmed, order: system.Order{Quantity: 1}}
	undeliverable = &story{
		name: "undeliverable", about: "the carrier refuses the address", end: verify.Failed, order: system.Order{Quantity: 2, PostalCode: "00000"},
	}
	uncaptured = &story{
		name: "uncaptured", about: "the provider refuses the capture", end: verify.Failed,
		order: system.Order{Quantity: 3, PaymentMethod: "pm_sim_captureDeclined"},
	}
	lost = &story{
		name: "lost", about: "the parcel is lost after the capture", end: verify.Failed, order: system.Order{Quantity: 4},
		parcel: &control.Fault{Operation: "shipments.dispatch", Action: control.AnswerWith, Status: 409, Body: `{"error":{"code":"lost","message":"it is gone"}}`},
	}
	slow = &story{
		name: "slow", about: "the provider fails for longer than the saga waits before it asks", end: verify.Confirmed, order: system.Order{Quantity: 5},
		payment: &control.Fault{Operation: "payment_intents.confirm", Action: control.FailBefore, Status: 503, Times: 5},
	}
	authenticated = &story{
		name: "authenticated", about: "the customer confirms the payment", end: verify.Confirmed,
		order: system.Order{Quantity: 6, PaymentMethod: "pm_card_threeDSecure2Required"}, during: confirm,
	}
	cancelled = &story{
		name: "cancelled", about: "the client cancels while the carrier is at it", end: verify.Cancelled, order: system.Order{Quantity: 7},
		parcel: &control.Fault{Operation: "shipments.create", Action: control.Delay, DelayMS: 1500}, during: cancelOrder,
	}
)

// confirm does what the customer is asked for, as soon as that is possible.
func confirm(ctx context.Context, w *world, id string) error {
	return until(ctx, func() bool {
		acted, err := w.provider.Act(ctx, id, "confirm")
		return err == nil && len(acted) > 0
	})
}

// cancelOrder cancels once the carrier has been called.
func cancelOrder(ctx context.Context, w *world, id string) error {
	if err := until(ctx, func() bool {
		l, err := w.carrier.CarrierLedger(ctx, id)
		return err == nil && len(l.Calls) > 0
	}); err != nil {
		return err
	}
	_, err := w.shop.Cancel(ctx, id, "cancel-"+id)
	return err
}

// passage is where a process is killed.
type passage struct {
	service, point string
	what           string // as fault.At has it
	anyOrder       bool   // the point is not about one order
}

// crash is one row of the table: an order whose services are killed at passages.
type crash struct {
	story *story
	// column is the step, or what else the passage is about.
	column   string
	passages []passage
}

// stepped are the steps of a story whose passages are tried, in its sequence.
type stepped struct {
	story *story
	steps []string
}

func matrix() []stepped {
	return []stepped{
		{sold, []string{"authorize_payment", "create_shipment", "capture_payment", "dispatch_shipment"}},
		{undeliverable, []string{"create_shipment", "void_payment"}},
		{uncaptured, []string{"capture_payment", "cancel_shipment"}},
		{lost, []string{"dispatch_shipment", "void_payment"}},
	}
}

// participant is who performs a step.
func participant(step string) string {
	if strings.HasSuffix(step, "_payment") {
		return "payment"
	}
	return "shipping"
}

// alongStep are the passages of a step, in the sequence in which they come.
func alongStep(step string) []passage {
	p := participant(step)
	return []passage{
		{service: "order", point: fault.OutboxPublishing, what: step},
		{service: "order", point: fault.OutboxPublished, what: step},
		{service: p, point: fault.StepTaking, what: step},
		{service: p, point: fault.StepIntended, what: step},
		{service: p, point: fault.InboxCommitted, what: step},
		{service: p, point: fault.InboxAcked, what: step},
		{service: p, point: fault.StepClaimed, what: step},
		{service: p, point: fault.StepCalled, what: step},
		{service: p, point: fault.StepRecording, what: step},
		{service: p, point: fault.StepRecorded, what: step},
		{service: p, point: fault.OutboxPublishing, what: step},
		{service: p, point: fault.OutboxPublished, what: step},
		{service: "order", point: fault.SagaCommitting, what: step},
		{service: "order", point: fault.SagaCommitted, what: step},
		{service: "order", point: fault.InboxCommitted, what: step},
		{service: "order", point: fault.InboxAcked, what: step},
	}
}

// crashes are all that is tried.
func crashes() []crash {
	var all []crash
	for _, m := range matrix() {
		for _, step := range m.steps {
			for _, p := range alongStep(step) {
				all = append(all, crash{m.story, step, []passage{p}})
			}
		}
	}
	return append(all, others()...)
}

// others are passages that belong to no step.
func others() []crash {
	var all []crash
	one := func(s *story, service, what string, points ...string) {
		for _, p := range points {
			all = append(all, crash{s, what, []passage{{service: service, point: p, what: what}}})
		}
	}
	one(sold, "order", "create", fault.IdempotencyClaiming, fault.IdempotencyClaimed, fault.IdempotencyAnswering)
	one(cancelled, "order", "cancel", fault.SagaCommitting, fault.SagaCommitted, fault.IdempotencyAnswering)
	one(slow, "order", "authorize_payment", fault.SagaTimerFired, fault.SagaAsked, fault.SagaAnswered)
	one(authenticated, "payment", "payment_intent.amount_capturable_updated", fault.WebhookCommitting, fault.WebhookCommitted)
	one(sold, "shipping", "shipment.created", fault.WebhookCommitting, fault.WebhookCommitted)
	for _, e := range []struct {
		story *story
		what  string
	}{
		{sold, "evt.order.created"}, {sold, "evt.order.confirmed"}, {undeliverable, "evt.order.failed"},
		{sold, "evt.payment.authorized"}, {undeliverable, "evt.payment.voided"}, {sold, "evt.shipping.created"}, {uncaptured, "evt.shipping.cancelled"},
	} {
		one(e.story, strings.Split(e.what, ".")[1], e.what, fault.OutboxPublishing, fault.OutboxPublished)
	}
	// What the first crash leaves behind is the sweep's, and the second one meets the sweep.
	for _, twice := range []struct{ service, first, what string }{
		{"order", fault.SagaCommitted, "authorize_payment"}, {"payment", fault.StepRecorded, "authorize_payment"}, {"shipping", fault.StepRecorded, "create_shipment"},
	} {
		swept := twice.what
		if twice.service == "order" {
			swept = "create_shipment" // the command that follows
		}
		all = append(all, crash{sold, swept, []passage{{service: twice.service, point: twice.first, what: twice.what}, {service: twice.service, point: fault.OutboxSwept, what: swept}}})
	}
	for _, service := range []string{"order", "payment", "shipping"} {
		for _, point := range []string{fault.OutboxRemoving, fault.OutboxRemoved} {
			all = append(all, crash{sold, "removal", []passage{{service: service, point: point, anyOrder: true}}})
		}
	}
	return all
}

// wires are the files that arm a crash for an order.
func (c crash) wires(w *world, id uuid.UUID) []string {
	var paths []string
	for _, p := range c.passages {
		order := id
		if p.anyOrder {
			order = uuid.Nil
		}
		paths = append(paths, fault.Wire(w.processes[p.service].wires, p.point, order, p.what))
	}
	return paths
}

// points are all points that are tried.
func points() []string {
	var names []string
	for _, c := range crashes() {
		for _, p := range c.passages {
			names = append(names, p.point)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
