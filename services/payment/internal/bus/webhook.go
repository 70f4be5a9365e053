package bus

import (
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/internal/webhook"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// WebhookPath is where the provider sends its events.
const WebhookPath = "/webhooks/provider"

// Webhooks takes the provider's events, signed with one of secrets. cfg needs no Read. An event of any kind, in any order, lets all
// open steps of its order ask the provider how things are.
func Webhooks(cfg webhook.Config, secrets []string) http.Handler {
	cfg.Read = func(body []byte, header http.Header) (webhook.Notice, error) {
		n, err := provider.ReadWebhook(body, header, secrets)
		n.Queue = func(b *pgx.Batch) *participant.Noticed {
			return participant.QueueNotice(b, n.OrderID, AuthorizePayment, n.ID, n.Type, AuthorizePayment, CapturePayment, VoidPayment)
		}
		return n, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+WebhookPath, webhook.New(cfg))
	return mux
}
