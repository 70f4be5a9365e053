package bus

import (
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/internal/webhook"
	"github.com/throughline/throughline/services/shipping/internal/carrier"
	"github.com/throughline/throughline/services/shipping/internal/postgres"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

// WebhookPath is where the carrier sends its webhooks.
const WebhookPath = "/webhooks/carrier"

// Webhooks takes the carrier's webhooks, signed with one of secrets. cfg needs no Read. Each sets what the carrier says of the order's
// shipment, and lets the open steps of the order, and its check, ask the carrier how things are.
func Webhooks(cfg webhook.Config, secrets []string) http.Handler {
	cfg.Read = func(body []byte, header http.Header) (webhook.Notice, error) {
		n, report, err := carrier.ReadWebhook(body, header, secrets, time.Now())
		n.Queue = func(b *pgx.Batch) *participant.Noticed {
			postgres.QueueReport(b, report.OrderID, report.ID, string(report.Status), report.At)
			steps := []string{DispatchShipment, CancelShipment, VerifyShipment}
			if report.Status == shipping.Created {
				// A creation in doubt waits until it must have arrived, before it looks and, finding nothing, books another. Now there is
				// something to find.
				steps = append(steps, CreateShipment)
			}
			return participant.QueueNotice(b, n.OrderID, CreateShipment, n.ID, n.Type, steps...)
		}
		return n, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST "+WebhookPath, webhook.New(cfg))
	return mux
}
