package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	stripehook "github.com/stripe/stripe-go/v82/webhook"

	"github.com/throughline/throughline/services/internal/webhook"
)

// signatureHeader carries the provider's signature and its time.
const signatureHeader = "Stripe-Signature"

// ReadWebhook checks and reads an event that the provider has sent: one of secrets must have signed it, no longer ago than
// webhook.MaxAge. The error is webhook.ErrRefused. An event about nothing of ours has no order id.
func ReadWebhook(body []byte, header http.Header, secrets []string) (webhook.Notice, error) {
	var refused error
	for _, secret := range secrets {
		event, err := stripehook.ConstructEventWithOptions(body, header.Get(signatureHeader), secret, stripehook.ConstructEventOptions{
			Tolerance: webhook.MaxAge,
			// Of the event only its id and the order's are read, which are where they are in every version.
			IgnoreAPIVersionMismatch: true,
		})
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		n := webhook.Notice{ID: event.ID, Type: safe(string(event.Type))}
		if n.ID == "" || len(n.ID) > 255 || event.Data == nil {
			return webhook.Notice{}, fmt.Errorf("%w: the event has no id or no object", webhook.ErrRefused)
		}
		var object struct {
			Metadata map[string]string `json:"metadata"`
		}
		if json.Unmarshal(event.Data.Raw, &object) == nil {
			if id, err := uuid.Parse(object.Metadata[metaOrderID]); err == nil {
				n.OrderID = id
			}
		}
		return n, nil
	}
	return webhook.Notice{}, fmt.Errorf("%w: %w", webhook.ErrRefused, refused)
}
