package payment_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	pkgmoney "github.com/throughline/throughline/pkg/money"
	"github.com/throughline/throughline/pkg/participant"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/payment/internal/bus"
	domain "github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/provider"
	"github.com/throughline/throughline/services/simulator/control"
	simulator "github.com/throughline/throughline/services/simulator/payment"
)

// TestVoid: net money is zero whatever the undo finds, and no money moves that need not.
func TestVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{RefundDelay: 200 * time.Millisecond})
	w.start()
	paid := money{charges: 1, captured: 2500}
	refunded := money{charges: 1, captured: 2500, refunded: 2500, refunds: 1}

	for name, tt := range map[string]struct {
		prepare func(o *order)
		want    money
	}{
		"authorized":            {func(*order) {}, money{charges: 1}},
		"captured":              {func(o *order) { wantDone(o.T, o.capture()) }, refunded},
		"voided by hand":        {func(o *order) { o.act("void") }, money{charges: 1}},
		"authorization expired": {func(o *order) { o.act("expire") }, money{charges: 1}},
		"refunded by hand":      {func(o *order) { wantDone(o.T, o.capture()); o.act("refund") }, refunded},
		"captured by hand":      {func(o *order) { o.captureByHand() }, refunded},
		"the cancel's answer lost": {func(o *order) {
			o.fault(control.Fault{Operation: "payment_intents.cancel", Action: control.DropAfter, Times: 1})
		}, money{charges: 1}},
		"the refund's answer lost": {func(o *order) {
			wantDone(o.T, o.capture())
			o.fault(control.Fault{Operation: "refunds.create", Action: control.DropAfter, Times: 1})
		}, refunded},
		"the refund's answer lost, keys not heeded": {func(o *order) {
			wantDone(o.T, o.capture())
			o.fault(control.Fault{Operation: "refunds.create", Action: control.NoDedup})
			o.fault(control.Fault{Operation: "refunds.create", Action: control.DropAfter, Times: 1})
		}, refunded},
		"refunds out of order for some time": {func(o *order) {
			wantDone(o.T, o.capture())
			o.fault(control.Fault{Operation: "refunds.create", Action: control.FailBefore, Status: 503, Times: 3})
		}, refunded},
		"refund takes its time": {func(o *order) { wantDone(o.T, o.capture()) }, refunded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := w.order(t)
			if strings.HasSuffix(name, "takes its time") {
				o.method = "pm_card_pendingRefund"
			}
			wantDone(t, o.authorize())
			tt.prepare(o)
			voided := o.void()
			wantDone(t, voided)
			o.wantMoney(tt.want)
			got := result[paymentv1.PaymentVoided](t, voided)
			if want := tt.want.refunded; got.GetAmountRefunded() != want || got.GetPaymentIntentId() != o.ledger().Intents[0].ID {
				t.Errorf("result: got %v, want the intent with %d refunded", got, want)
			}
		})
	}

	t.Run("captured between the question and the cancel", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantDone(t, o.authorize())
		rule := o.fault(control.Fault{Operation: "payment_intents.cancel", Action: control.Hold, Times: 1})
		o.Send(void, &paymentv1.VoidPayment{OrderId: o.ID.String()})
		o.held(rule, 1)
		o.captureByHand()
		o.release(rule)
		wantDone(t, o.Reply(void))
		o.wantMoney(refunded)
	})

	t.Run("a disputed charge needs a person", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantDone(t, o.authorize())
		wantDone(t, o.capture())
		o.fault(control.Fault{
			Operation: "refunds.create", Action: control.AnswerWith, Status: 400,
			Body: `{"error":{"type":"invalid_request_error","code":"charge_disputed","message":"This charge has been charged back."}}`,
		})
		wantRefused(t, o.void(), "charge_disputed")
		o.wantMoney(paid)
		if got, want := o.events(), []string{topology.PaymentAuthorized, topology.PaymentCaptured}; !slices.Equal(got, want) {
			t.Errorf("events: got %v, want %v", got, want)
		}
	})

	t.Run("a capture refunded by hand is no capture", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantDone(t, o.authorize())
		// The capture's answer is lost, and by the time of the next attempt somebody has given the money back.
		rule := o.fault(control.Fault{Operation: "payment_intents.retrieve", Action: control.Hold, Times: 1})
		o.fault(control.Fault{Operation: "payment_intents.capture", Action: control.FailAfter, Status: 500, Times: 1})
		o.Publish(o.captureCommand())
		o.held(rule, 1)
		o.act("refund")
		o.release(rule)
		wantRefused(t, o.Reply(capture), "refunded_at_provider")
		wantDone(t, o.void())
		o.wantMoney(refunded)
	})

	for do, reason := range map[string]string{"void": "canceled_at_provider", "expire": "authorization_expired"} {
		t.Run("capture after "+do, func(t *testing.T) {
			t.Parallel()
			o := w.order(t)
			wantDone(t, o.authorize())
			o.act(do)
			wantRefused(t, o.capture(), reason)
			o.wantMoney(money{charges: 1})
		})
	}

	t.Run("while the confirmation is still on its way", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		rule := o.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Hold, Times: 1})
		o.Send(authorize, o.authorizeCommand())
		o.held(rule, 1)
		wantDone(t, o.void())
		o.release(rule)
		o.Until("the late confirmation was answered", func() bool {
			return slices.ContainsFunc(o.ledger().Calls, func(c control.Call) bool {
				return c.Operation == "payment_intents.confirm" && c.Fault == control.Hold && c.Status != 0
			})
		})
		o.wantMoney(money{})
		wantRefused(t, o.authorize(), "undone")
	})

	t.Run("without the intent's id", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		// The intent is made, and the service never hears of it.
		o.fault(control.Fault{Operation: "payment_intents.create", Action: control.DropAfter, Times: 3})
		o.Send(authorize, o.authorizeCommand())
		o.Until("the answer was lost", func() bool { return o.calls("payment_intents.create") >= 2 })
		wantDone(t, o.void())
		l := o.ledger()
		if len(l.Intents) != 1 || l.Intents[0].Status != "canceled" {
			t.Errorf("intents: got %+v, want one that is cancelled", l.Intents)
		}
		o.wantMoney(money{})
	})

	t.Run("without an intent", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		rule := o.fault(control.Fault{Operation: "payment_intents.create", Action: control.FailBefore, Status: 503})
		o.Send(authorize, o.authorizeCommand())
		o.Until("the provider was asked", func() bool { return o.calls("payment_intents.create") >= 1 })
		o.Send(void, &paymentv1.VoidPayment{OrderId: o.ID.String()})
		o.Until("the undo has tried", func() bool { return o.steps() == 2 && o.Record(void).Attempts >= 1 && o.Record(void).LastError != "" })
		if err := w.sim.RemoveFault(t.Context(), rule); err != nil {
			t.Fatal(err)
		}
		wantDone(t, o.Reply(void))
		// The intent that the undo has made is the fence: nothing can be held under the key any more.
		if l := o.ledger(); len(l.Intents) != 1 || l.Intents[0].Status != "canceled" {
			t.Errorf("intents: got %+v, want one that is cancelled", l.Intents)
		}
	})
}

// steps counts the order's actions and undos that have a command.
func (o *order) steps() (n int) {
	o.T.Helper()
	if err := o.w.DB.QueryRow(o.T.Context(), `SELECT count(*) FROM step WHERE order_id = $1 AND command_id IS NOT NULL`, o.ID).Scan(&n); err != nil {
		o.T.Fatalf("counting steps: %v", err)
	}
	return n
}

// captureByHand is what a person does at the provider's site.
func (o *order) captureByHand() {
	o.T.Helper()
	amount, err := pkgmoney.New(o.currency, o.amount)
	if err != nil {
		o.T.Fatal(err)
	}
	client := provider.New(provider.Config{URL: o.w.config.ProviderURL, Key: "sk_test_person"})
	defer client.Close()
	p, err := client.Payment(domain.Charge{OrderID: o.ID, StepKey: keys.StepKey(o.ID, authorize), Amount: amount, Method: o.method})
	if err != nil {
		o.T.Fatal(err)
	}
	if _, err := p.Capture(o.T.Context(), uuid.New(), o.ledger().Intents[0].ID); err != nil {
		o.T.Fatalf("capturing by hand: %v", err)
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	w.start()
	begin := func(t *testing.T) *order {
		t.Helper()
		o := w.order(t)
		o.method = "pm_card_authenticationRequired"
		o.Send(authorize, o.authorizeCommand())
		o.Waiting(authorize)
		return o
	}
	t.Run("passed", func(t *testing.T) {
		t.Parallel()
		o := begin(t)
		said := result[paymentv1.PaymentActionRequired](t, o.Waiting(authorize))
		if want := w.config.ProviderURL + "/authenticate/" + o.ledger().Intents[0].ID; said.GetType() != "redirect_to_url" ||
			!strings.HasPrefix(said.GetUrl(), want) || said.GetOrderId() != o.ID.String() {
			t.Errorf("what the customer must do: got %v, want a redirect to %s", said, want)
		}
		if left := time.Until(said.GetExpiresAt().AsTime()); left > bus.DefaultCustomerTime || left < bus.DefaultCustomerTime-time.Minute {
			t.Errorf("time of the customer: got %s, want %s", left, bus.DefaultCustomerTime)
		}
		if told := result[paymentv1.PaymentActionRequired](t, o.Event(topology.PaymentActionRequired)); !proto.Equal(told, said) {
			t.Errorf("event: got %v, want %v", told, said)
		}
		o.act("confirm")
		wantDone(t, o.Reply(authorize))
		o.Event(topology.PaymentAuthorized)
		if got, want := o.Events(), []string{topology.PaymentActionRequired, topology.PaymentAuthorized}; !slices.Equal(got, want) {
			t.Errorf("events: got %v, want %v", got, want)
		}
		if l := o.ledger(); l.Intents[0].Status != "requires_capture" {
			t.Errorf("intent: got %+v, want requires_capture", l.Intents[0])
		}
	})
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		o := begin(t)
		o.act("refuse")
		wantRefused(t, o.Reply(authorize), "authentication_failed")
	})
	t.Run("undone meanwhile", func(t *testing.T) {
		t.Parallel()
		o := begin(t)
		wantDone(t, o.void())
		o.wantMoney(money{charges: 1})
		if l := o.ledger(); l.Intents[0].Status != "canceled" {
			t.Errorf("intent: got %+v, want canceled", l.Intents[0])
		}
	})
}

func TestCustomerStaysAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	w.config.CustomerTime = time.Millisecond
	w.start()
	for name, fault := range map[string]control.Fault{
		"cancelled at once":        {Operation: "refunds.list", Action: control.Delay, DelayMS: 1}, // meets nothing
		"the cancel's answer lost": {Operation: "payment_intents.cancel", Action: control.DropAfter, Times: 1},
		"the cancel failed":        {Operation: "payment_intents.cancel", Action: control.FailBefore, Status: 503, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := w.order(t)
			o.method = "pm_card_authenticationRequired"
			o.fault(fault)
			wantRefused(t, o.authorize(), "authentication_required")
			if l := o.ledger(); l.Intents[0].Status != "canceled" {
				t.Errorf("intent: got %+v, want canceled", l.Intents[0])
			}
			if got := o.Arrived(messaging.Reply); len(got) != 2 || got[0].Outcome != messaging.OutcomeWaiting {
				t.Errorf("replies: got %+v, want waiting, then refused", got)
			}
		})
	}
}

// TestConfirmedAsTimeRunsOut lets the customer confirm while the provider has not yet carried out the cancellation that the end of his
// time has led to. Whichever is first at the provider: the money is held and the answer is yes, or it is not and the answer is no.
func TestConfirmedAsTimeRunsOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	w.config.CustomerTime = time.Millisecond
	w.config.ProviderTimeout = 5 * time.Second
	w.start()
	t.Run("the confirmation overtakes the cancellation", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.method = "pm_card_authenticationRequired"
		rule := o.fault(control.Fault{Operation: "payment_intents.cancel", Action: control.Hold})
		o.Send(authorize, o.authorizeCommand())
		o.held(rule, 1)
		o.act("confirm")
		o.release(rule) // it finds money held, and releases it
		wantRefused(t, o.Reply(authorize), "authentication_required")
		o.wantMoney(money{charges: 1})
	})
	t.Run("the cancellation is refused, because the money was taken", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.method = "pm_card_authenticationRequired"
		rule := o.fault(control.Fault{Operation: "payment_intents.cancel", Action: control.Hold})
		o.Send(authorize, o.authorizeCommand())
		o.held(rule, 1)
		o.act("confirm")
		o.captureByHand()
		o.release(rule)
		wantDone(t, o.Reply(authorize))
		o.wantMoney(money{charges: 1, captured: 2500})
		wantDone(t, o.void())
		o.wantMoney(money{charges: 1, captured: 2500, refunded: 2500, refunds: 1})
	})
}

// TestKeyForgotten: when the provider may have forgotten a key, nothing is sent under it any more; the provider is only asked.
func TestKeyForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{KeyLifetime: time.Nanosecond})
	w.config.ProviderKeyLifetime, w.config.CustomerTime = 2*time.Nanosecond, time.Nanosecond
	w.start()

	t.Run("confirmation without effect", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.FailBefore, Status: 503, Times: 1})
		o.Send(authorize, o.authorizeCommand())
		o.Until("it was asked again", func() bool { return o.calls("payment_intents.retrieve") >= 2 })
		if got := o.calls("payment_intents.confirm"); got != 1 {
			t.Errorf("confirmations: got %d, want 1", got)
		}
		wantDone(t, o.void())
		o.wantMoney(money{})
	})
	t.Run("confirmation with effect", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.DropAfter, Times: 1})
		o.fault(control.Fault{Operation: "payment_intents.retrieve", Action: control.FailBefore, Status: 503, Times: 1})
		wantDone(t, o.authorize())
		o.wantMoney(money{charges: 1, held: 2500})
	})
	t.Run("intent unknown", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.fault(control.Fault{Operation: "payment_intents.create", Action: control.DropAfter, Times: 1})
		o.Send(authorize, o.authorizeCommand())
		o.Until("it was searched for", func() bool { return o.calls("payment_intents.search") >= 1 && o.Record(authorize).Attempts >= 2 })
		if got := o.Record(authorize).State; got != participant.StatePending {
			t.Errorf("state: got %s, want pending", got)
		}
		wantDone(t, o.void()) // what the search finds is cancelled
		if l := o.ledger(); len(l.Intents) != 1 || l.Intents[0].Status != "canceled" {
			t.Errorf("intents: got %+v, want one that is cancelled", l.Intents)
		}
	})
}
