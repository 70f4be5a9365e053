// Package config is the shipping service's settings.
package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/shipping/internal/bus"
	"github.com/throughline/throughline/services/shipping/internal/carrier"
)

// ErrDisagree says that two settings contradict each other.
var ErrDisagree = errors.New("two settings disagree")

// Config is what the shipping service can be told. Every field works with its zero value or default.
type Config struct {
	service.Config

	GRPCAddr string `env:"GRPC_ADDR" envDefault:"127.0.0.1:9150" doc:"where gRPC is served, to the other services"`
	HTTPAddr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:8150" doc:"where health and metrics are served"`

	WebhookAddr   string `env:"WEBHOOK_ADDR" envDefault:"127.0.0.1:8170" doc:"where the carrier's webhooks are taken, at /webhooks/carrier"`
	WebhookSecret string `env:"WEBHOOK_SECRET" secret:"true" doc:"what the carrier signs its webhooks with, several with commas while they are exchanged; empty takes none"`

	CarrierURL     string        `env:"CARRIER_URL" envDefault:"http://127.0.0.1:8091" doc:"the carrier"`
	CarrierKey     string        `env:"CARRIER_KEY" secret:"true" doc:"our key at the carrier"`
	CarrierTimeout time.Duration `env:"CARRIER_TIMEOUT" envDefault:"5s" doc:"how long one request to the carrier may take"`

	StepLease       time.Duration `env:"STEP_LEASE" envDefault:"15s" doc:"how long an instance owns a step that it has claimed"`
	StepSettle      time.Duration `env:"STEP_SETTLE" envDefault:"2s" doc:"how long after its sender has given up a request may still arrive"`
	CheckTime       time.Duration `env:"CHECK_TIME" envDefault:"24h" doc:"how long a creation without an answer is looked up again after the order has its shipment, or none"`
	StepConcurrency int           `env:"STEP_CONCURRENCY" envDefault:"64" doc:"most calls to the carrier at one time"`
	StepRetryRate   int           `env:"STEP_RETRY_RATE" envDefault:"100" doc:"most steps a second that are attempted again, also after an outage; an operator can lift it for a while"`
}

// WithDefaults answers c with its defaults in the place of zero values, for a Config that was not read from an environment.
// Addresses stay empty: that is a free port.
func (c Config) WithDefaults() Config {
	or(&c.CarrierURL, "http://127.0.0.1:8091")
	or(&c.CarrierTimeout, carrier.DefaultTimeout)
	or(&c.StepLease, participant.DefaultLease)
	or(&c.StepSettle, participant.DefaultSettle)
	or(&c.CheckTime, bus.DefaultCheckTime)
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

// Validate checks what no single setting can.
func (c Config) Validate() error {
	if 2*c.CarrierTimeout > callTime(c.StepLease) {
		return fmt.Errorf("%w: two requests of THROUGHLINE_CARRIER_TIMEOUT, %s each, do not fit into an attempt, which has four fifths of THROUGHLINE_STEP_LEASE, %s", ErrDisagree, c.CarrierTimeout, c.StepLease)
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
