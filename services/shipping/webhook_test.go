package shipping_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/internal/webhook"
	"github.com/throughline/throughline/services/shipping"
	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/control"
)

// webhookSecret stands for the bytes "of the test".
const webhookSecret = "whsec_b2YgdGhlIHRlc3Q="

// hooked is a world whose carrier sends webhooks to the one instance of the service.
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
	h := &hooked{url: "http://" + ln.Addr().String() + "/webhooks/carrier"}
	h.world = newWorldWith(t, carrier.Config{WebhookURL: h.url, WebhookSecret: webhookSecret})
	h.config.WebhookSecret = "whsec_eWVzdGVyZGF5, " + webhookSecret
	h.Start(func(ctx context.Context, base service.Config, opts service.Options) error {
		cfg := h.config
		cfg.Config = base
		opts.WebhookListener = ln
		return shipping.RunWith(ctx, cfg, opts)
	})
	return h
}

func (h *hooked) marks(t *testing.T) (n int) {
	t.Helper()
	if err := h.DB.QueryRow(t.Context(), `SELECT count(*) FROM inbox WHERE consumer = $1`, topology.CarrierWebhooks).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// carrierStatus is what the carrier has said of the order's shipment.
func (o *order) carrierStatus() (status string) {
	o.T.Helper()
	if err := o.w.DB.QueryRow(o.T.Context(), `SELECT coalesce(carrier_status, '') FROM shipment WHERE order_id = $1`, o.ID).Scan(&status); err != nil {
		o.T.Fatal(err)
	}
	return status
}

// A creation that takes effect late is noticed by its webhook, long before anybody would look.
func TestWebhookIsAHint(t *testing.T) {
	t.Parallel()
	h := newHookedWorld(t)
	o := h.order(t)
	rule := o.holdCreation()
	o.Publish(o.createCommand())
	o.held(rule, 1)
	wantDone(t, o.cancel())
	o.Until("nobody is at the check, and it is to look in an hour", func() bool {
		tag, err := h.DB.Exec(t.Context(), `UPDATE step SET due_at = now() + interval '1 hour'
			WHERE order_id = $1 AND step_name = $2 AND lease_owner = ''`, o.ID, verify)
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected() == 1
	})
	o.release(rule)
	o.untilShipments("cancelled")
}

// The carrier's status is set by the latest of its reports, whichever comes last and however often.
func TestCarrierStatus(t *testing.T) {
	t.Parallel()
	h := newHookedWorld(t)
	o := h.order(t)
	wantDone(t, o.create())
	wantDone(t, o.dispatch())
	o.act("lose")
	o.Until("the loss is known", func() bool { return o.carrierStatus() == "lost" })
	before := h.marks(t)
	id := o.ledger().Shipments[0].ID
	at := time.Now().Add(-time.Hour)
	report := func(event, status string, at time.Time) int {
		return h.post(t, event, `{"type":"shipment.`+status+`","data":{"id":"`+id+`","status":"`+status+`","reference":"r","order_id":"`+
			o.ID.String()+`","updated_at":"`+at.Format(time.RFC3339Nano)+`"}}`, webhookSecret, time.Now())
	}
	for event, status := range map[string]string{"msg_1": "dispatched", "msg_2": "created"} {
		for range 3 {
			if got := report(event, status, at); got != http.StatusNoContent {
				t.Errorf("%s: got %d, want 204", status, got)
			}
		}
	}
	if got := o.carrierStatus(); got != "lost" {
		t.Errorf("status after old news: got %q, want lost", got)
	}
	if got := h.marks(t) - before; got != 2 {
		t.Errorf("webhooks on record: got %d more, want 2", got)
	}
	report("msg_3", "dispatched", time.Now().Add(time.Minute))
	if got := o.carrierStatus(); got != "dispatched" {
		t.Errorf("status after news: got %q, want dispatched", got)
	}
	o.wantRow("dispatched", "")
}

func (h *hooked) post(t *testing.T, id, body, secret string, at time.Time) int {
	t.Helper()
	encoded, _ := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "." + body))
	return h.send(t, map[string]string{
		"webhook-id": id, "webhook-timestamp": timestamp,
		"webhook-signature": "v2,x v1,bm9uZQ== v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
	}, body)
}

func (h *hooked) send(t *testing.T, header map[string]string, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
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
	o := h.order(t)
	wantDone(t, o.create())
	body := `{"type":"shipment.lost","data":{"id":"` + o.ledger().Shipments[0].ID + `","status":"lost","order_id":"` + o.ID.String() +
		`","updated_at":"2099-01-01T00:00:00Z"}}`
	now := time.Now()
	const wrong = "whsec_c29tZWJvZHk="
	for name, got := range map[string]int{
		"another secret": h.post(t, "msg_1", body, wrong, now),
		"no secret":      h.post(t, "msg_1", body, "whsec_", now),
		"nothing signed": h.send(t, nil, body),
		"no signature":   h.send(t, map[string]string{"webhook-id": "msg_1", "webhook-timestamp": strconv.FormatInt(now.Unix(), 10)}, body),
		"no time":        h.send(t, map[string]string{"webhook-id": "msg_1", "webhook-signature": "v1,x"}, body),
		"old":            h.post(t, "msg_1", body, webhookSecret, now.Add(-webhook.MaxAge-time.Minute)),
		"of the future":  h.post(t, "msg_1", body, webhookSecret, now.Add(webhook.MaxAge+time.Minute)),
		"not JSON":       h.post(t, "msg_1", "lost", webhookSecret, now),
	} {
		if got != http.StatusBadRequest {
			t.Errorf("%s: got %d, want 400", name, got)
		}
	}
	if _, err := h.sim.Webhook(t.Context(), control.WebhookRequest{Event: "shipment.lost", OrderID: o.ID.String(), BadSignature: true}); err != nil {
		t.Fatal(err)
	}
	if got := h.post(t, "msg_2", strings.Replace(body, o.ID.String(), "somebody's", 1), webhookSecret, now); got != http.StatusNoContent {
		t.Errorf("about another user's order: got %d, want 204", got)
	}
	if got := o.carrierStatus(); got == "lost" {
		t.Errorf("status: got %q, want what was signed", got)
	}
	if got := h.post(t, "msg_1", body, "whsec_eWVzdGVyZGF5", now); got != http.StatusNoContent {
		t.Errorf("signed with the secret of yesterday: got %d, want 204", got)
	}
	if got := o.carrierStatus(); got != "lost" {
		t.Errorf("status: got %q, want lost", got)
	}
}
