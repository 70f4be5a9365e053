package payment_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"
	"github.com/stripe/stripe-go/v82/webhook"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/simulator/payment"
)

const secret = "whsec_test"

// delivery is what a receiver got; event is nil if its signature was refused.
type delivery struct {
	event *stripe.Event
	err   error
}

// receiver takes webhooks as the product does, with the provider's library.
// The first refuse deliveries are answered with 500.
func receiver(t *testing.T, refuse int) (string, <-chan delivery) {
	t.Helper()
	got := make(chan delivery, 100)
	left := make(chan struct{}, refuse)
	for range refuse {
		left <- struct{}{}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("reading webhook: %v", err)
		}
		select {
		case <-left:
			w.WriteHeader(http.StatusInternalServerError)
			return
		default:
		}
		e, err := webhook.ConstructEvent(body, r.Header.Get("Stripe-Signature"), secret)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			got <- delivery{err: err}
			return
		}
		got <- delivery{event: &e}
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

func next(t *testing.T, from <-chan delivery) delivery {
	t.Helper()
	select {
	case d := <-from:
		return d
	case <-time.After(20 * time.Second):
		t.Fatal("no webhook came")
		return delivery{}
	}
}

// types collects n events, which come in no order.
func types(t *testing.T, from <-chan delivery, n int) []string {
	t.Helper()
	var got []string
	for range n {
		d := next(t, from)
		if d.err != nil {
			t.Fatalf("signature: %v", d.err)
		}
		got = append(got, string(d.event.Type))
	}
	slices.Sort(got)
	return got
}

func TestWebhooksTellWhatHappened(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		play func(s *simulator)
		want []string // sorted
	}{
		"authorized": {
			func(s *simulator) { s.in("o", "requires_capture") },
			[]string{"payment_intent.amount_capturable_updated", "payment_intent.created"},
		},
		"captured": {
			func(s *simulator) { s.in("o", "succeeded") },
			[]string{"charge.captured", "payment_intent.amount_capturable_updated", "payment_intent.created", "payment_intent.succeeded"},
		},
		"declined": {
			func(s *simulator) { _, _ = s.confirm(s.mustCreate("o", "pm_card_chargeDeclined").ID, "c") },
			[]string{"payment_intent.created", "payment_intent.payment_failed"},
		},
		"canceled": {
			func(s *simulator) { s.in("o", "canceled") },
			[]string{"payment_intent.canceled", "payment_intent.created"},
		},
		"authentication": {
			func(s *simulator) { s.in("o", "requires_action"); _, _ = s.control.Act(s.t.Context(), "o", "confirm") },
			[]string{"payment_intent.amount_capturable_updated", "payment_intent.created", "payment_intent.requires_action"},
		},
		"refunded": {
			func(s *simulator) { _, _ = s.refund(s.in("o", "succeeded").ID, "r", 0) },
			[]string{
				"charge.captured", "charge.refunded", "payment_intent.amount_capturable_updated", "payment_intent.created",
				"payment_intent.succeeded", "refund.created", "refund.updated",
			},
		},
		"expired": {
			func(s *simulator) { s.in("o", "requires_capture"); _, _ = s.control.Act(s.t.Context(), "o", "expire") },
			[]string{"charge.expired", "payment_intent.amount_capturable_updated", "payment_intent.canceled", "payment_intent.created"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, got := receiver(t, 0)
			s := start(t, payment.Config{WebhookURL: url, WebhookSecret: secret})
			test.play(s)
			if got := types(t, got, len(test.want)); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWebhookIsSentAgainUntilTaken(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, 2)
	s := start(t, payment.Config{WebhookURL: url, WebhookSecret: secret})
	pi := s.mustCreate("o", "pm_card_visa")
	d := next(t, got)
	if d.err != nil || d.event.Data.Object["id"] != pi.ID || d.event.APIVersion != stripe.APIVersion {
		t.Errorf("got %+v, %v; want the event of %s", d.event, d.err, pi.ID)
	}
}

func TestWebhooksOnRequest(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, 0)
	s := start(t, payment.Config{WebhookURL: url, WebhookSecret: secret})
	s.mustCreate("o", "pm_card_visa")
	created := next(t, got)
	ask := func(q control.WebhookRequest) string {
		t.Helper()
		q.OrderID = "o"
		id, err := s.control.Webhook(t.Context(), q)
		if err != nil {
			t.Fatalf("asking for a webhook: %v", err)
		}
		return id
	}
	// A repeat is the same event, byte for byte as far as its reader can tell.
	if id := ask(control.WebhookRequest{Event: "payment_intent.created", Times: 2, DelayMS: 1}); id != created.event.ID {
		t.Errorf("repeat: got event %s, want %s", id, created.event.ID)
	}
	for range 2 {
		if d := next(t, got); d.err != nil || d.event.ID != created.event.ID || string(d.event.Data.Raw) != string(created.event.Data.Raw) {
			t.Errorf("repeat: got %+v, %v", d.event, d.err)
		}
	}
	// One that never happened.
	ask(control.WebhookRequest{Event: "payment_intent.succeeded"})
	if d := next(t, got); d.err != nil || d.event.Type != "payment_intent.succeeded" || d.event.ID == created.event.ID {
		t.Errorf("invented: got %+v, %v", d.event, d.err)
	}
	ask(control.WebhookRequest{Event: "payment_intent.created", BadSignature: true})
	if d := next(t, got); d.err == nil {
		t.Errorf("forged: got %+v, want its signature refused", d.event)
	}
}
