// Package config is the order service's settings.
package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/verify"
)

// ErrLifetime says that answers would be forgotten while clients still repeat their requests.
var ErrLifetime = errors.New("THROUGHLINE_KEY_LIFETIME is shorter than THROUGHLINE_CLIENT_RETRIES")

// Config is what the order service can be told. Every field works with its zero value or default.
type Config struct {
	service.Config

	GRPCAddr string `env:"GRPC_ADDR" envDefault:"127.0.0.1:9110" doc:"where gRPC is served, to the gateway"`
	HTTPAddr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:8110" doc:"where health and metrics are served"`

	PaymentAddr  string `env:"PAYMENT_ADDR" envDefault:"127.0.0.1:9130" doc:"the payment service's gRPC addresses: host:port, several with commas"`
	ShippingAddr string `env:"SHIPPING_ADDR" envDefault:"127.0.0.1:9150" doc:"the shipping service's gRPC addresses: host:port, several with commas"`

	KeyLifetime time.Duration `env:"KEY_LIFETIME" envDefault:"24h" doc:"how long an answer is kept and repeated byte for byte"`
	DueRate     int           `env:"DUE_RATE" envDefault:"200" doc:"most orders a second that are looked after because a deadline has passed, also after an outage; an operator can lift it for a while"`
	Strict      bool          `env:"STRICT" doc:"do not start while there are unfinished orders whose saga is not defined in this release; without it they are left alone"`

	VerifyEvery time.Duration `env:"VERIFY_EVERY" envDefault:"5m" doc:"how long after one proof of effects the next begins, over all services; 0 makes none"`

	ClientRetries time.Duration `env:"CLIENT_RETRIES" envDefault:"23h" doc:"how long clients may repeat a request; the key must live longer"`
}

// WithDefaults answers c with its defaults in the place of zero values, for a Config that was not read from an environment. The
// service's own addresses stay empty: that is a free port.
func (c Config) WithDefaults() Config {
	or(&c.PaymentAddr, "127.0.0.1:9130")
	or(&c.ShippingAddr, "127.0.0.1:9150")
	or(&c.KeyLifetime, idempotency.DefaultLifetime)
	or(&c.ClientRetries, 23*time.Hour)
	or(&c.DueRate, saga.DefaultDueRate)
	or(&c.VerifyEvery, verify.DefaultEvery)
	return c
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate checks what no single setting can.
func (c *Config) Validate() error {
	if c.KeyLifetime < c.ClientRetries {
		return fmt.Errorf("%w: %s and %s", ErrLifetime, c.KeyLifetime, c.ClientRetries)
	}
	return nil
}
