package payment_test

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/services/simulator/payment"
)

func TestParseConfig(t *testing.T) {
	t.Parallel()
	got, err := payment.ParseConfig(
		[]string{"--address", "127.0.0.1:1", "--search-lag=-1s"},
		[]string{"PAYMENT_SIMULATOR_ADDRESS=127.0.0.1:2", "PAYMENT_SIMULATOR_KEY_LIFETIME=1h", "PAYMENT_SIMULATOR_WEBHOOK_SECRET=whsec_1"},
		io.Discard,
	)
	want := payment.Config{
		Address: "127.0.0.1:1", KeyLifetime: time.Hour, SearchLag: -time.Second, RefundDelay: payment.DefaultRefundDelay, WebhookSecret: "whsec_1",
	}
	// Config has a func, so it is compared by what it shows, and by the secret.
	if err != nil || got.LogValue().String() != want.LogValue().String() || got.WebhookSecret != want.WebhookSecret {
		t.Errorf("got %v, %v; want %v", got.LogValue(), err, want.LogValue())
	}
	if _, err := payment.ParseConfig(nil, []string{"PAYMENT_SIMULATOR_COLOUR=red"}, io.Discard); err == nil {
		t.Error("an unknown setting was taken")
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "config", payment.Config{WebhookSecret: "geheim", APIKey: "streng"})
	if s := b.String(); strings.Contains(s, "geheim") || strings.Contains(s, "streng") || !strings.Contains(s, "webhook_secret_set=true") {
		t.Errorf("log line: %s", s)
	}
}
