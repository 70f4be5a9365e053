package carrier

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/throughline/throughline/services/simulator/internal/webhook"
)

// signStandard signs by the Standard Webhooks scheme.
func signStandard(e webhook.Event, secret string, at time.Time) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, webhookKey(secret))
	mac.Write([]byte(e.ID + "." + timestamp + "."))
	mac.Write(e.Payload)
	h := http.Header{}
	h.Set("webhook-id", e.ID)
	h.Set("webhook-timestamp", timestamp)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return h
}

func webhookKey(secret string) []byte {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	if key, err := base64.StdEncoding.DecodeString(encoded); ok && err == nil {
		return key
	}
	return []byte(secret)
}

func (s *Server) build(kind string, sh *Shipment) webhook.Event {
	return webhook.Event{
		ID: "msg_" + rand.Text(), Type: kind, OrderID: sh.OrderID,
		Payload: encode(map[string]any{"type": kind, "timestamp": s.now(), "data": sh}),
	}
}

// events are the webhooks that tell of what was changed.
func (s *Server) events(t *tx) []webhook.Event {
	if !s.hooks.On() {
		return nil
	}
	var events []webhook.Event
	for _, sh := range t.changed {
		events = append(events, s.build("shipment."+sh.Status, sh))
	}
	return events
}

func (s *Server) send(e webhook.Event) {
	err := s.hooks.Send(e, webhook.Options{})
	if err != nil {
		s.config.Logger.Warn("webhook dropped", "type", e.Type, "order_id", e.OrderID, "error", err)
	}
}
