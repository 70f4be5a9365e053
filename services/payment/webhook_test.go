package payment_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	stripehook "github.com/stripe/stripe-go/v82/webhook"

	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/internal/webhook"
	"github.com/throughline/throughline/services/payment"
	"github.com/throughline/throughline/services/simulator/control"
	simulator "github.com/throughline/throughline/services/simulator/payment"
)

const webhookSecret = "whsec_of_the_test"

// hooked is a world whose provider sends webhooks to the one instance of the service.
type hooked struct {
	*world
	url string
}

func newHookedWorld(t *testing.T) *hooked {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hooked{url: "http://" + ln.Addr().String() + "/webhooks/provider"}
	h.world = newWorld(t, simulator.Config{WebhookURL: h.url, WebhookSecret: webhookSecret})
	h.config.WebhookSecret = "whsec_of_yesterday," + webhookSecret
	in := h.Start(func(ctx context.Context, base service.Config, opts service.Options) error {
		cfg := h.config
		cfg.Config = base
		opts.WebhookListener = ln
		return payment.RunWith(ctx, cfg, opts)
	})
	if in.Webhook != ln.Addr().String() {
		t.Errorf("webhook address: got %q, want %s", in.Webhook, ln.Addr())
	}
	return h
}

// waits makes an order that waits for its customer, and is not going to ask by itself.
func (h *hooked) waits(t *testing.T) *order {
	t.Helper()
	o := h.order(t)
	o.method = "pm_card_threeDSecure2Required"
	o.Send(authorize, o.authorizeCommand())
	o.Waiting(authorize)
	// The provider has told of requires_action, too, which lets the step look once more.
	o.Until("the first webhooks are dealt with", func() bool { return h.marks(t) > 0 })
	o.Until("nobody is at the step, and it is to be looked at in an hour", func() bool {
		tag, err := h.DB.Exec(t.Context(), `UPDATE step SET due_at = now() + interval '1 hour'
			WHERE order_id = $1 AND lease_owner = '' AND state = 'waiting' AND nudged_token IS DISTINCT FROM token`, o.ID)
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected() == 1
	})
	return o
}

func (h *hooked) marks(t *testing.T) (n int) {
	t.Helper()
	if err := h.DB.QueryRow(t.Context(), `SELECT count(*) FROM inbox WHERE consumer = $1`, topology.ProviderWebhooks).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A customer who acts is noticed by the webhook, long before anybody would ask.
func TestWebhookIsAHint(t *testing.T) {
	t.Parallel()
	for do, want := range map[string]string{"confirm": "", "refuse": "authentication_failed"} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			h := newHookedWorld(t)
			o := h.waits(t)
			o.act(do)
			if reply := o.Reply(authorize); want == "" {
				wantDone(t, reply)
			} else {
				wantRefused(t, reply, want)
			}
			// Old news, in any order and any number, change nothing.
			for _, event := range []string{"payment_intent.requires_action", "payment_intent.created", "payment_intent.requires_action"} {
				if _, err := h.sim.Webhook(t.Context(), control.WebhookRequest{Event: event, OrderID: o.ID.String(), Times: 3}); err != nil {
					t.Fatal(err)
				}
			}
			wantDone(t, o.void())
			if l := o.ledger(); l.Intents[0].Status != "canceled" || len(o.Arrived(2)) != 3 {
				t.Errorf("end: got intent %+v and %d replies, want it cancelled and 3", l.Intents[0], len(o.Arrived(2)))
			}
		})
	}
}

// What says that the customer has confirmed, and is not true, does nothing but let us ask.
func TestWebhookIsNotTheTruth(t *testing.T) {
	t.Parallel()
	h := newHookedWorld(t)
	o := h.waits(t)
	asked := o.calls("payment_intents.retrieve")
	body := `{"id":"evt_lie","object":"event","type":"payment_intent.amount_capturable_updated","data":{"object":{"id":"pi_1","object":"payment_intent",` +
		`"status":"requires_capture","metadata":{"order_id":"` + o.ID.String() + `"}}}}`
	if got := h.post(t, body, webhookSecret, time.Now()); got != http.StatusNoContent {
		t.Fatalf("answer: got %d, want 204", got)
	}
	o.Until("the provider was asked", func() bool { return o.calls("payment_intents.retrieve") > asked })
	o.Until("the step has looked", func() bool { return o.Record(authorize).LeaseOwner == "" })
	if got := o.Record(authorize).State; got != "waiting" {
		t.Errorf("state: got %s, want waiting", got)
	}
}

func (h *hooked) post(t *testing.T, body, secret string, at time.Time) int {
	t.Helper()
	signed := stripehook.GenerateTestSignedPayload(&stripehook.UnsignedPayload{Payload: []byte(body), Secret: secret, Timestamp: at})
	return h.send(t, http.MethodPost, body, signed.Header)
}

func (h *hooked) send(t *testing.T, method, body, signature string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Stripe-Signature", signature)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// What is not signed, or was too long ago, is refused and leaves no trace.
func TestWebhookRefused(t *testing.T) {
	t.Parallel()
	h := newHookedWorld(t)
	o := h.waits(t)
	before, due := h.marks(t), o.Record(authorize).DueAt
	body := `{"id":"evt_1","object":"event","type":"payment_intent.succeeded","data":{"object":{"metadata":{"order_id":"` + o.ID.String() + `"}}}}`
	now := time.Now()
	for name, got := range map[string]int{
		"another secret":    h.post(t, body, "whsec_of_somebody", now),
		"no secret":         h.post(t, body, "", now),
		"no signature":      h.send(t, http.MethodPost, body, ""),
		"old":               h.post(t, body, webhookSecret, now.Add(-webhook.MaxAge-time.Minute)),
		"not an event":      h.post(t, `{"id":"evt_1"}`, webhookSecret, now),
		"not JSON":          h.post(t, `id`, webhookSecret, now),
		"signed, and other": h.send(t, http.MethodPost, body+" ", stripehook.GenerateTestSignedPayload(&stripehook.UnsignedPayload{Payload: []byte(body), Secret: webhookSecret}).Header),
	} {
		if got != http.StatusBadRequest {
			t.Errorf("%s: got %d, want 400", name, got)
		}
	}
	if got := h.post(t, body+strings.Repeat(" ", webhook.MaxBody), webhookSecret, now); got != http.StatusRequestEntityTooLarge {
		t.Errorf("too long: got %d, want 413", got)
	}
	if got := h.send(t, http.MethodGet, "", ""); got != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %d, want 405", got)
	}
	if _, err := h.sim.Webhook(t.Context(), control.WebhookRequest{Event: "payment_intent.created", OrderID: o.ID.String(), BadSignature: true}); err != nil {
		t.Fatal(err)
	}
	// The same event again, forged now: only its first copy is on record.
	if got := h.post(t, strings.Replace(body, "evt_1", "evt_2", 1), "whsec_of_yesterday", now); got != http.StatusNoContent {
		t.Errorf("signed with the secret of yesterday: got %d, want 204", got)
	}
	if after := h.marks(t); after != before+1 {
		t.Errorf("webhooks on record: got %d more, want 1", after-before)
	}
	if now := o.Record(authorize).DueAt; due == nil || now == nil {
		t.Errorf("step: got due at %v, then %v, want it open", due, now)
	}
}

// Without a secret nothing can be believed, so nobody listens.
func TestNoSecretNoWebhooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simulator.Config{})
	if in := w.start(); in.Webhook != "" {
		t.Errorf("webhook address: got %q, want none", in.Webhook)
	}
}
