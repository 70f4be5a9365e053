package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Config is what every service can be told. A service's own configuration embeds it, and has its addresses beside it, since
// their defaults differ.
type Config struct {
	DatabaseURL string `env:"DATABASE_URL" prefix:"none" doc:"the service's own database; what is missing comes from the PG* variables"`
	NATSURL     string `env:"NATS_URL" prefix:"none" envDefault:"nats://127.0.0.1:4222" doc:"the NATS servers, several with commas"`

	ServiceCredential string `env:"SERVICE_CREDENTIAL" secret:"true" doc:"what services show each other"`

	OperatorCredential string `env:"OPERATOR_CREDENTIAL" secret:"true" doc:"what operators show; nobody can be one when it is empty"`

	InboxTTL        time.Duration `env:"INBOX_TTL" envDefault:"504h" doc:"how long a consumer knows what it has dealt with; nothing older may arrive"`
	OutboxRetention time.Duration `env:"OUTBOX_RETENTION" envDefault:"168h" doc:"how long it is kept what was sent, and can be sent again"`
	StreamReplicas  int           `env:"STREAM_REPLICAS" envDefault:"1" doc:"copies of each stream: 3 in a cluster of at least three servers"`

	// On two cores more connections only wait for each other: while four wait for their commits to reach the disk, four work.
	DatabaseConns int32         `env:"DATABASE_CONNS" envDefault:"8" doc:"most connections to the database"`
	Grace         time.Duration `env:"GRACE" envDefault:"20s" doc:"time for the work in hand at shutdown"`

	LogFormat string `env:"LOG_FORMAT" envDefault:"json" doc:"json or text"`
	LogLevel  string `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	Instance  string `env:"INSTANCE" doc:"tells the instances of the service apart in logs, traces and leases"`
	Reporting
}

// Reporting is what every service can be told of its traces and metrics. The names are those of OpenTelemetry.
type Reporting struct {
	OTLPEndpoint    string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" prefix:"none" doc:"where traces go over gRPC; none when empty"`
	MetricsExporter string `env:"OTEL_METRICS_EXPORTER" prefix:"none" doc:"prometheus, also when empty, serves metrics; otlp sends them to the endpoint as well"`
	Sampler         string `env:"OTEL_TRACES_SAMPLER" prefix:"none" doc:"which traces are recorded: parentbased_always_on, also when empty, parentbased_always_off or parentbased_traceidratio"`
	SamplerArg      string `env:"OTEL_TRACES_SAMPLER_ARG" prefix:"none" doc:"the part of all traces that parentbased_traceidratio records: 0 to 1"`
}

// Setup makes a service's telemetry. edge is for one where outsiders come in: see [telemetry.SampleAtEdge].
func (r Reporting) Setup(ctx context.Context, name, instance string, edge bool, log *slog.Logger) (*telemetry.Telemetry, error) {
	ratio, err := telemetry.ParseRatio(r.Sampler, r.SamplerArg)
	if err != nil {
		return nil, fmt.Errorf("setting up telemetry: %w", err)
	}
	c := telemetry.Config{
		ServiceName: name, Instance: instance, OTLPEndpoint: r.OTLPEndpoint, Sampler: telemetry.SampleRatio(ratio), Logger: log,
	}
	if edge {
		c.Sampler = telemetry.SampleAtEdge(ratio)
	}
	switch r.MetricsExporter {
	case "", "prometheus":
	case "otlp":
		c.OTLPMetrics = true
	default:
		return nil, fmt.Errorf("%w: %q", errMetricsExporter, r.MetricsExporter)
	}
	tel, err := telemetry.Setup(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("setting up telemetry: %w", err)
	}
	return tel, nil
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
	if c.InboxTTL <= 0 {
		c.InboxTTL = inbox.DefaultTTL
	}
	if c.OutboxRetention <= 0 {
		c.OutboxRetention = outbox.DefaultRetention
	}
	if c.StreamReplicas <= 0 {
		c.StreamReplicas = 1
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
