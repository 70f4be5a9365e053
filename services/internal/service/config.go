package service

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/throughline/throughline/pkg/telemetry"
)

// Config is what every service can be told. A service's own configuration embeds it, and has its addresses beside it, since
// their defaults differ.
type Config struct {
	DatabaseURL string `env:"DATABASE_URL" prefix:"none" doc:"the service's own database; what is missing comes from the PG* variables"`
	NATSURL     string `env:"NATS_URL" prefix:"none" envDefault:"nats://127.0.0.1:4222" doc:"the NATS servers, several with commas"`

	ServiceCredential string `env:"SERVICE_CREDENTIAL" secret:"true" doc:"what services show each other"`

	OperatorCredential string `env:"OPERATOR_CREDENTIAL" secret:"true" doc:"what operators show; nobody can be one when it is empty"`

	// On two cores more connections only wait for each other: while four wait for their commits to reach the disk, four work.
	DatabaseConns int32         `env:"DATABASE_CONNS" envDefault:"8" doc:"most connections to the database"`
	Grace         time.Duration `env:"GRACE" envDefault:"20s" doc:"time for the work in hand at shutdown"`

	LogFormat    string `env:"LOG_FORMAT" envDefault:"json" doc:"json or text"`
	LogLevel     string `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Instance     string `env:"INSTANCE" doc:"tells the instances of the service apart in logs, traces and leases"`
	OTLPEndpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" prefix:"none" doc:"where traces go over gRPC; none when empty"`
}

// defaults of a Config that was not read from an environment.
func (c Config) withDefaults() Config {
	if c.NATSURL == "" {
		c.NATSURL = "nats://127.0.0.1:4222"
	}
	if c.DatabaseConns <= 0 {
		c.DatabaseConns = 8
	}
	if c.LogFormat == "" {
		c.LogFormat = "json"
	}
	return c
}

func (c Config) newLogger(w io.Writer, name string) (*slog.Logger, error) {
	var level slog.Level
	if c.LogLevel != "" {
		if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
			return nil, fmt.Errorf("reading THROUGHLINE_LOG_LEVEL: %w", err)
		}
	}
	return telemetry.NewLogger(w, c.LogFormat, level, name, c.Instance)
}
