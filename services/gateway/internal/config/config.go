// Package config is the gateway's settings.
package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
	"github.com/throughline/throughline/services/internal/service"
)

// ErrDevelopmentKey says that a key which everybody knows was given to a gateway that serves for real.
var ErrDevelopmentKey = errors.New("THROUGHLINE_API_KEYS has a development key, which is for the embedded system only")

// DevelopmentClients are the clients of an embedded system. Their keys are printed in the documents.
const DevelopmentClients = "storefront=tl_dev_storefront,marketplace=tl_dev_marketplace"

// developmentPrefix begins every development key.
const developmentPrefix = "tl_dev_"

// Config is what the gateway can be told. Every field works with its zero value or default.
type Config struct {
	HTTPAddr  string `env:"HTTP_ADDR" envDefault:"127.0.0.1:8080" doc:"where the public HTTP API, health and metrics are served"`
	GRPCAddr  string `env:"GRPC_ADDR" envDefault:"127.0.0.1:9090" doc:"where the public gRPC API is served"`
	OrderAddr string `env:"ORDER_ADDR" envDefault:"127.0.0.1:9110" doc:"the order service's gRPC addresses: host:port, several with commas"`

	ServiceCredential string `env:"SERVICE_CREDENTIAL" secret:"true" doc:"what the gateway shows to the order service"`
	APIKeys           string `env:"API_KEYS" secret:"true" doc:"who may call beside the clients that the order service knows: client=key,client=key"`
	Embedded          bool   `env:"EMBEDDED" doc:"set by the embedded system only: development clients exist"`

	ClientRate  float64 `env:"CLIENT_RATE" envDefault:"2000" doc:"how many calls a second a client may make of one gateway in the long run; negative is no limit"`
	ClientBurst int     `env:"CLIENT_BURST" envDefault:"4000" doc:"how many calls a client may make of one gateway at once"`

	CallTimeout time.Duration `env:"CALL_TIMEOUT" envDefault:"10s" doc:"how long a call to the order service may take, repeats included"`
	Grace       time.Duration `env:"GRACE" envDefault:"20s" doc:"time for calls in hand at shutdown"`

	LogFormat string `env:"LOG_FORMAT" envDefault:"json" doc:"json or text"`
	LogLevel  string `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Instance  string `env:"INSTANCE" doc:"tells the instances of the gateway apart in logs and traces"`

	service.Reporting
}

// WithDefaults answers c with its defaults in the place of zero values, for a Config that was not read from an environment.
func (c Config) WithDefaults() Config {
	for at, value := range map[*string]string{
		&c.HTTPAddr: "127.0.0.1:8080", &c.GRPCAddr: "127.0.0.1:9090", &c.OrderAddr: "127.0.0.1:9110",
		&c.LogFormat: "json", &c.LogLevel: "info",
	} {
		if *at == "" {
			*at = value
		}
	}
	if c.ClientRate == 0 {
		c.ClientRate = grpcapi.DefaultRate
	}
	if c.ClientBurst <= 0 {
		c.ClientBurst = grpcapi.DefaultBurst
	}
	if c.CallTimeout <= 0 {
		c.CallTimeout = grpcapi.DefaultTimeout
	}
	return c
}

// Validate checks what no single setting can.
func (c *Config) Validate() error {
	if !c.Embedded {
		// Whether the list can be read at all is Clients' to say.
		for item := range strings.SplitSeq(c.APIKeys, ",") {
			if _, key, _ := strings.Cut(item, "="); strings.HasPrefix(strings.TrimSpace(key), developmentPrefix) {
				return ErrDevelopmentKey
			}
		}
	}
	if _, err := c.Clients(); err != nil {
		return fmt.Errorf("reading THROUGHLINE_API_KEYS: %w", err)
	}
	return nil
}

// Clients answers who may call: those of API_KEYS, and in an embedded system the development clients.
func (c *Config) Clients() (*grpcapi.KeyList, error) {
	list := c.APIKeys
	if c.Embedded {
		// Once only, where the list names them too.
		for item := range strings.SplitSeq(DevelopmentClients, ",") {
			if !strings.Contains(","+list+",", ","+item+",") {
				list += "," + item
			}
		}
	}
	return grpcapi.ParseKeyList(list)
}
