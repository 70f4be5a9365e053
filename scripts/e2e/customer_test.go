package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// nextAction is what an order says that its customer has to do.
type nextAction struct {
	Type      string    `json:"type"`
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

func nextActionOf(t *testing.T, a *system.Answer) *nextAction {
	t.Helper()
	var o struct {
		NextAction *nextAction `json:"next_action"`
	}
	if err := json.Unmarshal(a.Body, &o); err != nil {
		t.Fatalf("reading an order: %v", err)
	}
	return o.NextAction
}

// needsCustomer places an order whose payment the customer has to confirm, and waits until the order says so.
func needsCustomer(t *testing.T, s *system.System, key string, o system.Order) (id string, next nextAction) {
	t.Helper()
	ctx := system.Context(t, time.Minute)
	shop := s.Storefront()
	if o.PaymentMethod == "" {
		o.PaymentMethod = "pm_card_threeDSecure2Required"
	}
	placed, err := shop.Place(ctx, key, o)
	if err != nil {
		t.Fatal(err)
	}
	id = placed.Order.ID
	system.Eventually(ctx, t, "order "+id+" to say what its customer has to do", func() bool {
		a, err := shop.Get(ctx, id)
		if err != nil || a.Status != http.StatusOK {
			return false
		}
		n := nextActionOf(t, a)
		if n == nil {
			return false
		}
		if next = *n; a.Order.Status != verify.Pending {
			t.Errorf("status while the customer is waited for: got %s, want PENDING", a.Order.Status)
		}
		return true
	})
	return id, next
}

// click follows the link that the order gives, as the customer's browser does, and decides.
func click(t *testing.T, link, decision string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, link, strings.NewReader(url.Values{"do": {decision}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("deciding at the bank: got %s, want 200", resp.Status)
	}
}

// TestCustomerActs lets customers confirm and refuse their payments, where the provider tells of it and where it does not.
func TestCustomerActs(t *testing.T) {
	t.Parallel()
	for _, noWebhooks := range []bool{false, true} {
		t.Run(fmt.Sprintf("webhooks %t", !noWebhooks), func(t *testing.T) {
			t.Parallel()
			s := system.Start(t, system.Options{NoWebhooks: noWebhooks})
			ctx := system.Context(t, 2*time.Minute)
			shop := s.Storefront()

			confirmed, next := needsCustomer(t, s, "confirmed", system.Order{})
			if left := time.Until(next.ExpiresAt); next.Type != "redirect_to_url" || left < 10*time.Minute || left > 15*time.Minute {
				t.Errorf("next action: got %+v, want a redirect, for 15 minutes", next)
			}
			got := effects(ctx, t, s, confirmed)
			if got["shipments.create"] != 0 || got["payment_intents.capture"] != 0 {
				t.Errorf("effects while the customer is waited for: got %v, want no parcel and no capture", got)
			}
			click(t, next.URL, "confirm")
			if a := awaitRest(ctx, t, shop, confirmed); a.Order.Status != verify.Confirmed || nextActionOf(t, a) != nil {
				t.Errorf("confirmed: got %s, want CONFIRMED and nothing to do", a.Body)
			}

			refused, next := needsCustomer(t, s, "refused", system.Order{PaymentMethod: "pm_card_authenticationRequired"})
			click(t, next.URL, "refuse")
			if a := awaitRest(ctx, t, shop, refused); a.Order.Status != verify.Failed || a.Order.FailureReason != "authentication_failed" || nextActionOf(t, a) != nil {
				t.Errorf("refused: got %s, want FAILED for authentication_failed and nothing to do", a.Body)
			}

			declined, next := needsCustomer(t, s, "declined", system.Order{PaymentMethod: "pm_card_threeDSecureRequiredChargeDeclined"})
			click(t, next.URL, "confirm")
			if a := awaitRest(ctx, t, shop, declined); a.Order.Status != verify.Failed || a.Order.FailureReason != "card_declined" {
				t.Errorf("declined: got %s, want FAILED for card_declined", a.Body)
			}

			undeliverable, next := needsCustomer(t, s, "undeliverable", system.Order{PostalCode: "00000"})
			click(t, next.URL, "confirm")
			if a := awaitRest(ctx, t, shop, undeliverable); a.Order.Status != verify.Failed || a.Order.FailureReason != "address_refused" {
				t.Errorf("undeliverable: got %s, want FAILED for address_refused", a.Body)
			}

			cancelled, _ := needsCustomer(t, s, "cancelled", system.Order{})
			answer, err := shop.Cancel(ctx, cancelled, "cancelled-cancel")
			if err != nil || answer.Status != http.StatusOK || nextActionOf(t, answer) != nil {
				t.Fatalf("cancelling: got %+v, %v, want 200 and nothing to do", answer, err)
			}
			if a := awaitRest(ctx, t, shop, cancelled); a.Order.Status != verify.Cancelled {
				t.Errorf("cancelled: got %s, want CANCELLED", a.Body)
			}
			if _, err := s.Provider.Act(ctx, cancelled, "confirm"); err == nil {
				t.Error("confirming a payment that was cancelled: got no error, want a refusal")
			}
			s.Check(ctx)
		})
	}
}

// TestCustomerStaysAway lets the time of customers run out; some of them confirm just then, and some cancel.
func TestCustomerStaysAway(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{CustomerTime: 3 * time.Second})
	ctx := system.Context(t, 2*time.Minute)
	shop := s.Storefront()
	away, next := needsCustomer(t, s, "away", system.Order{})
	if left := time.Until(next.ExpiresAt); left > 3*time.Second {
		t.Errorf("time of the customer: got %s, want at most 3s", left)
	}
	ids := make(map[string]bool)
	for i := range 12 {
		id := keys.OrderID(shop.ID, fmt.Sprintf("late-%d", i)).String()
		if i%3 == 0 {
			if _, err := s.Provider.AddFault(ctx, control.Fault{Operation: "payment_intents.cancel", OrderID: id, Action: control.Delay, DelayMS: 300}); err != nil {
				t.Fatal(err)
			}
		}
		_, next := needsCustomer(t, s, fmt.Sprintf("late-%d", i), system.Order{})
		// From 300 ms before the end to 250 ms after it.
		timer := time.AfterFunc(time.Until(next.ExpiresAt)+time.Duration(i*50-300)*time.Millisecond, func() {
			_, _ = s.Provider.Act(ctx, id, "confirm") // it may be too late
		})
		t.Cleanup(func() { timer.Stop() })
		ids[id] = true
	}
	if a := awaitRest(ctx, t, shop, away); a.Order.Status != verify.Failed || a.Order.FailureReason != "authentication_required" || nextActionOf(t, a) != nil {
		t.Errorf("away: got %s, want FAILED for authentication_required and nothing to do", a.Body)
	}
	for id := range ids {
		if a := awaitRest(ctx, t, shop, id); a.Order.Status != verify.Confirmed && a.Order.Status != verify.Failed {
			t.Errorf("confirmed as time ran out: got %s, want CONFIRMED or FAILED", a.Body)
		}
	}
	s.Check(ctx) // one of both, never both
}

// TestWebhooksProveNothing forges, repeats and reorders what the provider says.
func TestWebhooksProveNothing(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{})
	ctx := system.Context(t, 2*time.Minute)
	shop := s.Storefront()
	id, next := needsCustomer(t, s, "k", system.Order{})
	send := func(r control.WebhookRequest) {
		t.Helper()
		r.OrderID = id
		if _, err := s.Provider.Webhook(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	send(control.WebhookRequest{Event: "payment_intent.amount_capturable_updated", BadSignature: true})
	send(control.WebhookRequest{Event: "payment_intent.amount_capturable_updated", Times: 5})
	send(control.WebhookRequest{Event: "payment_intent.succeeded", Times: 5})
	send(control.WebhookRequest{Event: "payment_intent.canceled"})
	asked := calls(ctx, t, s, id)["payment_intents.retrieve"]
	system.Eventually(ctx, t, "the provider to be asked", func() bool { return calls(ctx, t, s, id)["payment_intents.retrieve"] > asked })
	if a, err := shop.Get(ctx, id); err != nil || a.Order.Status != verify.Pending || nextActionOf(t, a) == nil {
		t.Errorf("after webhooks that are not true: got %v, %v, want PENDING and the customer to act", a, err)
	}
	forged, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/webhooks/provider", s.Ports()["payment-webhooks"]), strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(forged)
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("webhook without a signature: got %s, want 400", resp.Status)
	}
	click(t, next.URL, "confirm")
	if a := awaitRest(ctx, t, shop, id); a.Order.Status != verify.Confirmed {
		t.Errorf("ending: got %s, want CONFIRMED", a.Body)
	}
	for _, event := range []string{"payment_intent.requires_action", "payment_intent.created", "payment_intent.canceled", "charge.refunded"} {
		send(control.WebhookRequest{Event: event, Times: 3})
	}
	s.Check(ctx)
	if got := effects(ctx, t, s, id); got["payment_intents.capture"] != 1 || got["shipments.create"] != 1 || got["refunds.create"] != 0 {
		t.Errorf("effects: got %v, want one capture, one parcel and no refund", got)
	}
}
