package provider_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// TestReturnURL shows what a confirmation says about where the customer comes back to, and that the creation, which the provider refuses it
// with, says nothing.
func TestReturnURL(t *testing.T) {
	t.Parallel()
	for configured, want := range map[string]string{
		"": "", "https://shop.example/o/{order_id}?from=bank&o={order_id}": "https://shop.example/o/" + charge.OrderID.String() + "?from=bank&o=" + charge.OrderID.String(),
	} {
		s := serve(t, func(int, seen) string { return ok(intent("requires_action")) })
		c := provider.New(provider.Config{URL: s.url, Key: "sk_test_1", Timeout: 10 * time.Second, ReturnURL: configured})
		t.Cleanup(c.Close)
		p, err := c.Payment(charge)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Create(t.Context(), uuid.New()); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Confirm(t.Context(), uuid.New(), "pi_1"); err != nil {
			t.Fatal(err)
		}
		requests := s.seen()
		for i, want := range []string{"", want} {
			form, err := url.ParseQuery(requests[i].body)
			if err != nil {
				t.Fatal(err)
			}
			if got := form.Get("return_url"); got != want {
				t.Errorf("return URL of request %d: got %q, want %q", i, got, want)
			}
		}
		// Only cards are allowed, by name: so the provider does not ask for a return URL because of methods that redirect always.
		form, _ := url.ParseQuery(requests[0].body)
		if got := form["payment_method_types[0]"]; len(got) != 1 || got[0] != "card" || form.Has("automatic_payment_methods[enabled]") {
			t.Errorf("payment methods: got %v, want card", form)
		}
	}
}

// TestKeyThatWasUsedOtherwise has a confirmation under the key that went with another return URL, and undos under the key of another intent of the
// order. The key is used up, and says nothing of the payment.
func TestKeyThatWasUsedOtherwise(t *testing.T) {
	t.Parallel()
	s := serve(t, func(int, seen) string {
		return respond("400 Bad Request", `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters"}}`)
	})
	p := client(t, s.url)
	_, err := p.Confirm(t.Context(), uuid.New(), "pi_1")
	if _, refused := provider.Refusal(err); err == nil || refused || !provider.Replayed(err) {
		t.Errorf("confirming: got %v, want an error that says that the key is used up, and no refusal", err)
	}
	_, err = p.Cancel(t.Context(), uuid.New(), "pi_1", payment.RequestedByCustomer)
	if _, refused := provider.Refusal(err); err == nil || refused || !provider.Replayed(err) {
		t.Errorf("cancelling: got %v, want an error that says that the key is used up, and no refusal", err)
	}
	_, err = p.RefundRest(t.Context(), uuid.New(), "pi_1")
	if _, refused := provider.Refusal(err); err == nil || refused || !provider.Replayed(err) {
		t.Errorf("refunding: got %v, want an error that says that the key is used up, and no refusal", err)
	}
	busy := serve(t, func(int, seen) string {
		return respond("409 Conflict", `{"error":{"type":"idempotency_error","code":"idempotency_key_in_use","message":"There is currently another in-progress request using this key"}}`)
	})
	if _, err := client(t, busy.url).Confirm(t.Context(), uuid.New(), "pi_1"); err == nil || provider.Replayed(err) {
		t.Errorf("confirming with a key that is being worked on: got %v, want an error that says nothing", err)
	}
	if _, err := p.Capture(t.Context(), uuid.New(), "pi_1"); err == nil || provider.Replayed(err) {
		t.Errorf("capturing: got %v, want an error that says nothing", err)
	}
}
