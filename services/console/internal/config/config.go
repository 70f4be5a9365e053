// Package config is the console's settings.
package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// minCredential is how long what opens the console must be: 16 random letters and digits cannot be guessed at the rate at which
// logging in may be tried, nor by anybody who has a copy of the settings' masked form.
const minCredential = 16

// The settings that are refused.
var (
	ErrCredential     = fmt.Errorf("THROUGHLINE_CONSOLE_CREDENTIAL must have at least %d characters: it opens the console to whoever knows it", minCredential)
	ErrSameCredential = errors.New("THROUGHLINE_CONSOLE_CREDENTIAL must not be THROUGHLINE_OPERATOR_CREDENTIAL: people are told the one, and the other never leaves the services")
	ErrURL            = errors.New("must be an absolute http or https URL without query")
)

// Config is what the console can be told.
type Config struct {
	HTTPAddr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:8095" doc:"where the page, health and metrics are served"`

	OrderAddr    string `env:"ORDER_ADDR" envDefault:"127.0.0.1:9110" doc:"the order service's gRPC addresses: host:port, several with commas"`
	PaymentAddr  string `env:"PAYMENT_ADDR" envDefault:"127.0.0.1:9130" doc:"the payment service's gRPC addresses"`
	ShippingAddr string `env:"SHIPPING_ADDR" envDefault:"127.0.0.1:9150" doc:"the shipping service's gRPC addresses"`
	NATSURL      string `env:"NATS_URL" prefix:"none" envDefault:"nats://127.0.0.1:4222" doc:"the NATS servers, several with commas, whose events move the live list"`

	OperatorCredential string `env:"OPERATOR_CREDENTIAL" secret:"true" doc:"what the console shows the services"`
	ConsoleCredential  string `env:"CONSOLE_CREDENTIAL" secret:"true" doc:"what people show the console; at least 16 characters"`

	PublicURL string `env:"PUBLIC_URL" doc:"where browsers find the console, if something stands in front of it; with https, cookies are for https only"`
	JaegerURL string `env:"JAEGER_URL" doc:"where browsers find Jaeger; without it traces are named, not linked"`

	Grace time.Duration `env:"GRACE" envDefault:"20s" doc:"time for requests in hand at shutdown"`

	LogFormat    string `env:"LOG_FORMAT" envDefault:"json" doc:"json or text"`
	LogLevel     string `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Instance     string `env:"INSTANCE" doc:"tells the instances of the console apart in logs and traces"`
	OTLPEndpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" prefix:"none" doc:"where traces go over gRPC; none when empty"`
}

// WithDefaults answers c with its defaults in the place of zero values, for a Config that was not read from an environment.
func (c Config) WithDefaults() Config {
	for at, value := range map[*string]string{
		&c.HTTPAddr: "127.0.0.1:8095", &c.OrderAddr: "127.0.0.1:9110", &c.PaymentAddr: "127.0.0.1:9130", &c.ShippingAddr: "127.0.0.1:9150",
		&c.NATSURL: "nats://127.0.0.1:4222", &c.LogFormat: "json", &c.LogLevel: "info",
	} {
		if *at == "" {
			*at = value
		}
	}
	return c
}

// Validate checks what no single setting can.
func (c *Config) Validate() error {
	if len(c.ConsoleCredential) < minCredential {
		return ErrCredential
	}
	if c.ConsoleCredential == c.OperatorCredential {
		return ErrSameCredential
	}
	for name, value := range map[string]string{"THROUGHLINE_PUBLIC_URL": c.PublicURL, "THROUGHLINE_JAEGER_URL": c.JaegerURL} {
		if value == "" {
			continue
		}
		u, err := url.Parse(value)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return fmt.Errorf("%s: %w", name, ErrURL)
		}
	}
	return nil
}

// Secure tells whether browsers reach the console over https.
func (c *Config) Secure() bool { return strings.HasPrefix(c.PublicURL, "https://") }
