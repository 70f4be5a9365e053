// Package config is the payment service's settings.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/payment/internal/bus"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// ErrDisagree says that two settings contradict each other.
var ErrDisagree = errors.New("two settings disagree")

// Config is what the payment service can be told. Every field works with its zero value or default.
type Config struct {
	service.Config

	GRPCAddr string `env:"GRPC_ADDR" envDefault:"127.0.0.1:9130" doc:"where gRPC is served, to the other services"`
	HTTPAddr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:8130" doc:"where health and metrics are served"`

	WebhookAddr   string `env:"WEBHOOK_ADDR" envDefault:"127.0.0.1:8160" doc:"where the payment provider's webhooks are taken, at /webhooks/provider"`
	WebhookSecret string `env:"WEBHOOK_SECRET" secret:"true" doc:"what the payment provider signs its webhooks with, several with commas while they are exchanged; empty takes none"`

	ProviderURL         string        `env:"PROVIDER_URL" envDefault:"http://127.0.0.1:8090" doc:"the payment provider"`
	ProviderKey         string        `env:"PROVIDER_KEY" envDefault:"sk_test_simulator" secret:"true" doc:"our key at the payment provider"`
	ProviderTimeout     time.Duration `env:"PROVIDER_TIMEOUT" envDefault:"5s" doc:"how long one request to the provider may take"`
	ProviderKeyLifetime time.Duration `env:"PROVIDER_KEY_LIFETIME" envDefault:"23h" doc:"how long the provider is trusted to know an idempotency key; it promises 24h"`
	ReturnURL           string        `env:"RETURN_URL" doc:"where the provider sends customers back who have authenticated, with {order_id} for the order; a real provider gives no link to them without it"`
	CustomerTime        time.Duration `env:"CUSTOMER_TIME" envDefault:"15m" doc:"how long a customer may take to authenticate a payment"`

	StepLease       time.Duration `env:"STEP_LEASE" envDefault:"15s" doc:"how long an instance owns a step that it has claimed"`
	StepSettle      time.Duration `env:"STEP_SETTLE" envDefault:"2s" doc:"how long after the end of a lease a request of its owner may still arrive"`
	StepConcurrency int           `env:"STEP_CONCURRENCY" envDefault:"64" doc:"most calls to the provider at one time"`
	StepRetryRate   int           `env:"STEP_RETRY_RATE" envDefault:"100" doc:"most steps a second that are attempted again, also after an outage; an operator can lift it for a while"`
}

// WithDefaults answers c with its defaults in the place of zero values, for a Config that was not read from an environment.
// Addresses stay empty: that is a free port.
func (c Config) WithDefaults() Config {
	or(&c.ProviderURL, "http://127.0.0.1:8090")
	or(&c.ProviderKey, "sk_test_simulator")
	or(&c.ProviderTimeout, provider.DefaultTimeout)
	or(&c.ProviderKeyLifetime, bus.DefaultKeyLifetime)
	or(&c.CustomerTime, bus.DefaultCustomerTime)
	or(&c.StepLease, participant.DefaultLease)
	or(&c.StepSettle, participant.DefaultSettle)
	or(&c.StepConcurrency, participant.DefaultConcurrency)
	or(&c.StepRetryRate, participant.DefaultRetryRate)
	return c
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// providerKeyLifetime is what the provider promises at least.
const providerKeyLifetime = 24 * time.Hour

// Validate checks what no single setting can.
func (c Config) Validate() error {
	switch {
	case 2*c.ProviderTimeout > callTime(c.StepLease):
		return fmt.Errorf("%w: two requests of THROUGHLINE_PROVIDER_TIMEOUT, %s each, do not fit into an attempt, which has four fifths of THROUGHLINE_STEP_LEASE, %s", ErrDisagree, c.ProviderTimeout, c.StepLease)
	case c.ProviderKeyLifetime > providerKeyLifetime:
		return fmt.Errorf("%w: THROUGHLINE_PROVIDER_KEY_LIFETIME of %s is longer than the provider's own of %s", ErrDisagree, c.ProviderKeyLifetime, providerKeyLifetime)
	case c.CustomerTime >= c.ProviderKeyLifetime:
		return fmt.Errorf("%w: THROUGHLINE_CUSTOMER_TIME of %s must be shorter than THROUGHLINE_PROVIDER_KEY_LIFETIME of %s", ErrDisagree, c.CustomerTime, c.ProviderKeyLifetime)
	}
	return checkReturnURL(c.ReturnURL)
}

// ErrReturnURL says that customers cannot be sent to an address.
var ErrReturnURL = errors.New("THROUGHLINE_RETURN_URL is no absolute http or https address")

func checkReturnURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(s, provider.OrderPlaceholder, "0"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("%w: %q", ErrReturnURL, s)
	}
	return nil
}

// callTime is what a lease leaves for calls. A write and the question that follows when it is not answered must fit in.
func callTime(lease time.Duration) time.Duration { return lease - lease/5 }

// WebhookSecrets are the secrets in WebhookSecret.
func (c Config) WebhookSecrets() []string {
	return strings.FieldsFunc(c.WebhookSecret, func(r rune) bool { return r == ',' || r == ' ' })
}

// WebhookListen is where webhooks are taken; empty if nothing could be believed, because there is no secret.
func (c Config) WebhookListen() string {
	if len(c.WebhookSecrets()) == 0 {
		return ""
	}
	if c.WebhookAddr == "" {
		return "127.0.0.1:0"
	}
	return c.WebhookAddr
}
