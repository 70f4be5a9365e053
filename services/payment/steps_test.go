package payment_test

import (
	"slices"
	"testing"

	"github.com/throughline/throughline/pkg/messaging"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/simulator/control"
	simulator "github.com/throughline/throughline/services/simulator/payment"
)

func TestPayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	w.start()

	t.Run("authorized and captured", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		authorized := o.authorize()
		wantDone(t, authorized)
		got := result[paymentv1.PaymentAuthorized](t, authorized)
		if l := o.ledger(); len(l.Intents) != 1 || got.GetPaymentIntentId() != l.Intents[0].ID || got.GetAmount() != 2500 || got.GetCurrency() != "EUR" {
			t.Errorf("result: got %v, want intent %+v over 2500 EUR", got, l.Intents)
		}
		o.wantMoney(money{charges: 1, held: 2500})
		wantDone(t, o.capture())
		o.wantMoney(money{charges: 1, captured: 2500})
		// Without faults each call is made once, and nothing is asked.
		if l := o.ledger(); len(l.Calls) != 3 {
			t.Errorf("calls: got %+v, want create, confirm and capture", l.Calls)
		}
		o.Event(topology.PaymentCaptured)
		if got, want := o.Events(), []string{topology.PaymentAuthorized, topology.PaymentCaptured}; !slices.Equal(got, want) {
			t.Errorf("events: got %v, want %v", got, want)
		}
		o.wantRow(row{"captured", "EUR", 2500, 2500, 0, ""})
	})

	for name, tt := range map[string]struct{ method, reason string }{
		"declined":           {"pm_card_visa_chargeDeclined", "card_declined"},
		"short form":         {"pm_card_chargeDeclined", "card_declined"},
		"insufficient funds": {"pm_card_visa_chargeDeclinedInsufficientFunds", "insufficient_funds"},
		"stolen":             {"pm_card_visa_chargeDeclinedStolenCard", "card_declined"},
		"expired":            {"pm_card_chargeDeclinedExpiredCard", "expired_card"},
		"incorrect cvc":      {"pm_card_chargeDeclinedIncorrectCvc", "incorrect_cvc"},
		"processing error":   {"pm_card_chargeDeclinedProcessingError", "processing_error"},
		"unknown method":     {"pm_card_of_nobody", "invalid_payment_method"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			t.Parallel()
			o := w.order(t)
			o.method = tt.method
			wantRefused(t, o.authorize(), tt.reason)
			declined := result[paymentv1.PaymentDeclined](t, o.Event(topology.PaymentDeclined))
			if declined.GetReason() != tt.reason || declined.GetStepName() != authorize {
				t.Errorf("event: got %v, want %s for %s", declined, tt.reason, authorize)
			}
			o.wantMoney(money{})
			o.wantRow(row{"declined", "EUR", 2500, 0, 0, tt.reason})
			wantDone(t, o.void())
			o.wantMoney(money{})
		})
	}

	t.Run("refused: capture", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		o.method = simulator.CaptureDeclined
		wantDone(t, o.authorize())
		wantRefused(t, o.capture(), "card_declined")
		wantDone(t, o.void())
		o.wantMoney(money{charges: 1})
		o.Event(topology.PaymentVoided)
		if got, want := o.Events(), []string{topology.PaymentAuthorized, topology.PaymentDeclined, topology.PaymentVoided}; !slices.Equal(got, want) {
			t.Errorf("events: got %v, want %v", got, want)
		}
	})

	t.Run("refused: capture of nothing", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantRefused(t, o.capture(), "not_authorized")
		if got := o.ledger().Calls; len(got) != 0 {
			t.Errorf("calls: got %+v, want none", got)
		}
	})

	t.Run("amounts in the provider's units", func(t *testing.T) {
		t.Parallel()
		for _, tt := range []struct {
			currency       string
			amount, atSite int64
		}{{"JPY", 500, 500}, {"KWD", 1500, 1500}, {"EUR", 2500, 2500}, {"ISK", 500, 50000}} {
			t.Run(tt.currency, func(t *testing.T) {
				t.Parallel()
				o := w.order(t)
				o.currency, o.amount = tt.currency, tt.amount
				wantDone(t, o.authorize())
				wantDone(t, o.capture())
				o.wantMoney(money{charges: 1, captured: tt.atSite})
				voided := result[paymentv1.PaymentVoided](t, o.void())
				if voided.GetAmountRefunded() != tt.amount {
					t.Errorf("refunded: got %d, want %d", voided.GetAmountRefunded(), tt.amount)
				}
				o.wantMoney(money{charges: 1, captured: tt.atSite, refunded: tt.atSite, refunds: 1})
				o.wantRow(row{"voided", tt.currency, tt.amount, tt.amount, tt.amount, ""})
			})
		}
		for _, tt := range []struct {
			currency string
			amount   int64
			reason   string
		}{{"KWD", 1505, "amount_not_accepted"}, {"EUR", 100_000_000, "amount_not_accepted"}, {"XXX", 100, "currency_not_accepted"}, {"eur", 100, "currency_not_accepted"}} {
			t.Run("refused "+tt.currency, func(t *testing.T) {
				t.Parallel()
				o := w.order(t)
				o.currency, o.amount = tt.currency, tt.amount
				wantRefused(t, o.authorize(), tt.reason)
				o.wantMoney(money{})
			})
		}
	})

	t.Run("void before authorize", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		wantDone(t, o.void())
		wantRefused(t, o.authorize(), "undone")
		wantRefused(t, o.capture(), "undone")
		if got := o.ledger().Calls; len(got) != 0 {
			t.Errorf("calls: got %+v, want none", got)
		}
	})

	t.Run("a command asked again gets the recorded reply", func(t *testing.T) {
		t.Parallel()
		o := w.order(t)
		first := o.authorize()
		wantDone(t, first)
		o.Send(authorize, o.authorizeCommand())
		o.Until("two replies are there", func() bool { return len(o.Arrived(messaging.Reply)) == 2 })
		second := o.Arrived(messaging.Reply)[1]
		if second.Outcome != first.Outcome || string(second.Payload) != string(first.Payload) {
			t.Errorf("second reply: got %s %x, want %s %x", second.Outcome, second.Payload, first.Outcome, first.Payload)
		}
		o.wantMoney(money{charges: 1, held: 2500})
	})

	t.Run("an answer about another order is no answer", func(t *testing.T) {
		t.Parallel()
		other, o := w.order(t), w.order(t)
		wantDone(t, other.authorize())
		// The provider mixes orders up: it answers the create with another order's intent, which is authorized already.
		o.fault(control.Fault{
			Operation: "payment_intents.create", Times: 1, Action: control.AnswerWith, Status: 200,
			Body: control.Body(`{"id":"` + other.ledger().Intents[0].ID + `","object":"payment_intent","status":"requires_capture","amount":2500,` +
				`"amount_capturable":2500,"currency":"eur","metadata":{"order_id":"` + other.ID.String() + `"}}`),
		})
		wantDone(t, o.authorize())
		o.wantMoney(money{charges: 1, held: 2500})
		if got := o.Record(authorize); got.Attempts != 2 || got.Reference == other.Record(authorize).Reference {
			t.Errorf("record: got %d attempts and reference %s, want 2 and an intent of its own", got.Attempts, got.Reference)
		}
	})
}

// row is what the service's own table says.
type row struct {
	status, currency           string
	amount, captured, refunded int64
	reason                     string
}

func (o *order) wantRow(want row) {
	o.T.Helper()
	var got row
	err := o.w.DB.QueryRow(o.T.Context(), `SELECT status, currency, amount, amount_captured, amount_refunded, decline_reason FROM payment WHERE order_id = $1`, o.ID).
		Scan(&got.status, &got.currency, &got.amount, &got.captured, &got.refunded, &got.reason)
	if err != nil || got != want {
		o.T.Errorf("row: got %+v, %v, want %+v", got, err, want)
	}
}
