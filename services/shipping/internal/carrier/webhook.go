package carrier

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/services/internal/webhook"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

// The headers of a signed webhook, by the Standard Webhooks scheme.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// Report is what the carrier says in a webhook about a shipment.
type Report struct {
	shipping.Shipment
	OrderID uuid.UUID
	// At is when the shipment became what it is, by the carrier's clock. Of two reports the one with the later time holds.
	At time.Time
}

// ReadWebhook checks and reads a webhook of the carrier: one of secrets must have signed it, no longer ago than webhook.MaxAge. now is
// our clock. The error is webhook.ErrRefused. A webhook about nothing of ours has no order id.
func ReadWebhook(body []byte, header http.Header, secrets []string, now time.Time) (webhook.Notice, Report, error) {
	refused := func(why string) (webhook.Notice, Report, error) {
		return webhook.Notice{}, Report{}, fmt.Errorf("%w: %s", webhook.ErrRefused, why)
	}
	id, at := header.Get(headerID), header.Get(headerTimestamp)
	if id == "" || len(id) > 255 {
		return refused("it has no id")
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return refused("it has no time")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > webhook.MaxAge || age < -webhook.MaxAge {
		return refused("its signature is too old, or from the future")
	}
	if !signed(id+"."+at+"."+string(body), header.Get(headerSignature), secrets) {
		return refused("its signature is wrong")
	}
	var event struct {
		Type string `json:"type"`
		Data struct {
			shipment
			UpdatedAt time.Time `json:"updated_at"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return refused("it cannot be read")
	}
	n := webhook.Notice{ID: id, Type: safe(event.Type)}
	order, notOurs := uuid.Parse(event.Data.OrderID)
	if ours := notOurs == nil && plausible(event.Data.ID); !ours {
		return n, Report{}, nil // another user's
	}
	n.OrderID = order
	return n, Report{
		Shipment: shipping.Shipment{ID: event.Data.ID, Status: shipping.Status(safe(event.Data.Status))}, OrderID: order, At: event.Data.UpdatedAt,
	}, nil
}

// signed tells whether one of the signatures, which have blanks between, is that of one of the secrets. Each is compared in constant time.
func signed(content, signatures string, secrets []string) bool {
	ok := false
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, keyOf(secret))
		mac.Write([]byte(content))
		want := mac.Sum(nil)
		for signature := range strings.FieldsSeq(signatures) {
			encoded, known := strings.CutPrefix(signature, "v1,")
			got, err := base64.StdEncoding.DecodeString(encoded)
			if known && err == nil && hmac.Equal(got, want) {
				ok = true
			}
		}
	}
	return ok
}

// keyOf is the key that a secret stands for: what follows whsec_, decoded, or else the secret itself.
func keyOf(secret string) []byte {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	if key, err := base64.StdEncoding.DecodeString(encoded); ok && err == nil {
		return key
	}
	return []byte(secret)
}
