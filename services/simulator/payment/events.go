package payment

import (
	"net/http"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v82"
	stripehook "github.com/stripe/stripe-go/v82/webhook"

	"github.com/throughline/throughline/services/simulator/internal/webhook"
)

// eventJSON is the provider's event object.
type eventJSON struct {
	ID              string         `json:"id"`
	Object          string         `json:"object"`
	APIVersion      string         `json:"api_version"`
	Created         int64          `json:"created"`
	Data            map[string]any `json:"data"`
	Livemode        bool           `json:"livemode"`
	PendingWebhooks int            `json:"pending_webhooks"`
	Request         *string        `json:"request"`
	Type            string         `json:"type"`
}

// signStripe signs as the provider does; the receiver's library is the proof.
func signStripe(e webhook.Event, secret string, at time.Time) http.Header {
	signed := stripehook.GenerateTestSignedPayload(&stripehook.UnsignedPayload{
		Payload: e.Payload, Secret: secret, Timestamp: at,
	})
	return http.Header{"Stripe-Signature": {signed.Header}}
}

func (s *Server) build(e event) webhook.Event {
	id := newID("evt_")
	return webhook.Event{
		ID: id, Type: e.kind, OrderID: e.orderID,
		Payload: encode(eventJSON{
			ID: id, Object: "event", APIVersion: stripe.APIVersion, Created: s.config.Now().Unix(),
			Data: map[string]any{"object": e.object}, PendingWebhooks: 1, Type: e.kind,
		}),
	}
}

func (s *Server) send(e event) {
	if !s.hooks.On() {
		return
	}
	err := s.hooks.Send(s.build(e), webhook.Options{})
	if err != nil {
		s.config.Logger.Warn("webhook dropped", "type", e.kind, "order_id", e.orderID, "error", err)
	}
}

// newest is the object that an event of that type about the order would carry.
func (s *Server) newest(kind, orderID string) any {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	intents := s.store.byOrder[orderID]
	if len(intents) == 0 {
		return nil
	}
	in := intents[len(intents)-1]
	switch {
	case strings.HasPrefix(kind, "payment_intent."):
		return in.render(false)
	case strings.HasPrefix(kind, "charge.") && in.Charge != nil:
		return in.renderCharge()
	case strings.HasPrefix(kind, "refund."):
		if refunds := s.store.byIntent[in.ID]; len(refunds) > 0 {
			return refunds[len(refunds)-1].render()
		}
	}
	return nil
}
