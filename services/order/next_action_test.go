package order_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/internal/topology"
)

// say publishes a participant's reply.
func (w *world) say(nc *messaging.Conn, orderID, step, outcome string, payload proto.Message) {
	w.t.Helper()
	id := uuid.MustParse(orderID)
	m := messaging.Message{
		ID: keys.NewMessageID(), Kind: messaging.Reply, Subject: topology.PlaceOrderReplies, Type: "google.protobuf.Empty", Source: "/test",
		AggregateID: id, IdempotencyKey: "key", StepName: step, StepKey: keys.StepKey(id, step), Outcome: outcome, CreatedAt: time.Now(),
	}
	if payload != nil {
		encoded, err := proto.Marshal(payload)
		if err != nil {
			w.t.Fatal(err)
		}
		m.Type, m.Payload = string(payload.ProtoReflect().Descriptor().FullName()), encoded
	}
	if _, err := nc.Publish(w.t.Context(), &m).Wait(w.t.Context()); err != nil {
		w.t.Fatalf("publishing a reply: %v", err)
	}
}

// awaitAction reads an order until what its customer has to do is this.
func (c *client) awaitAction(who, orderID string, want *orderv1.NextAction) *orderv1.Order {
	c.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		o, err := c.get(who, orderID)
		if got := o.GetNextAction(); err == nil && (got == nil) == (want == nil) && proto.Equal(got, want) {
			return o
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("next action of %s: got %v, %v, want %v", orderID, o.GetNextAction(), err, want)
		}
	}
}

// What the customer has to do is on the order from the participant's word until the step goes on, however it does.
func TestNextAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	nc := w.connect()
	expires := timestamppb.New(time.Date(2026, time.May, 1, 12, 0, 0, 0, time.UTC))
	required := &paymentv1.PaymentActionRequired{Type: "redirect_to_url", Url: "https://bank.example/1", ExpiresAt: expires}
	want := &orderv1.NextAction{Type: "redirect_to_url", Url: "https://bank.example/1", ExpiresAt: expires}
	const step = "authorize_payment"
	for name, goOn := range map[string]func(id string) orderv1.OrderStatus{
		"the customer has acted": func(id string) orderv1.OrderStatus {
			w.say(nc, id, step, messaging.OutcomeDone, nil)
			return orderv1.OrderStatus_ORDER_STATUS_PENDING
		},
		"the customer has not": func(id string) orderv1.OrderStatus {
			w.say(nc, id, step, messaging.OutcomeRefused, nil)
			return orderv1.OrderStatus_ORDER_STATUS_FAILED
		},
		"the client cancels": func(id string) orderv1.OrderStatus {
			if r := c.must(c.cancel("storefront", "cancel "+id, id, "")); r.order.GetNextAction() != nil {
				t.Errorf("answer to the cancellation: got next action %v, want none", r.order.GetNextAction())
			}
			return orderv1.OrderStatus_ORDER_STATUS_COMPENSATING
		},
	} {
		r := c.must(c.create("storefront", name, request()))
		id := r.order.GetOrderId()
		if r.order.GetNextAction() != nil {
			t.Errorf("%s: new order: got next action %v, want none", name, r.order.GetNextAction())
		}
		w.say(nc, id, step, messaging.OutcomeWaiting, required)
		if o := c.awaitAction("storefront", id, want); o.GetStatus() != orderv1.OrderStatus_ORDER_STATUS_PENDING {
			t.Errorf("%s: status while the customer is waited for: got %s, want pending", name, o.GetStatus())
		}
		again := proto.Clone(required).(*paymentv1.PaymentActionRequired)
		again.Url = "https://bank.example/2"
		w.say(nc, id, step, messaging.OutcomeWaiting, again)
		c.awaitAction("storefront", id, &orderv1.NextAction{Type: "redirect_to_url", Url: again.GetUrl(), ExpiresAt: expires})
		status := goOn(id)
		if o := c.awaitAction("storefront", id, nil); o.GetStatus() != status {
			t.Errorf("%s: status afterwards: got %s, want %s", name, o.GetStatus(), status)
		}
	}
}
