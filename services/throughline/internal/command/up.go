package command

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/throughline/internal/stack"
)

// envPrefix begins the environment variables that stand for the flags of up: THROUGHLINE_UP_HTTP for --http.
const envPrefix = "THROUGHLINE_UP_"

func upCommand(environ []string) *cobra.Command {
	o := stack.Defaults()
	inJSON := false
	cmd := describe(&cobra.Command{
		Use:   "up",
		Short: "Run the whole system on this machine until Ctrl-C",
		Long: `Run the whole system on this machine until Ctrl-C: Postgres, JetStream, simulators of the payment provider and the
carrier, and the services. State is kept in the data folder; the next start continues with it.

Each flag can be given in the environment, too: THROUGHLINE_UP_HTTP=9000 is --http 9000. With ORDER_DATABASE_URL,
PAYMENT_DATABASE_URL, SHIPPING_DATABASE_URL and NATS_URL set, real servers are used instead of embedded ones; with
THROUGHLINE_PROVIDER_URL and THROUGHLINE_CARRIER_URL, a real provider and carrier, whose webhooks are taken if
THROUGHLINE_PROVIDER_WEBHOOK_SECRET and THROUGHLINE_CARRIER_WEBHOOK_SECRET say how they are signed. On real servers there are no
clients at first: "throughline clients add" gives one an API key. THROUGHLINE_KEY_LIFETIME, THROUGHLINE_CLIENT_RETRIES, THROUGHLINE_CLIENT_RATE
and THROUGHLINE_CLIENT_BURST are passed on to the services.`,
		Args: cobra.NoArgs,
	}, `{"event":"starting"}, then {"event":"up", …} with every address, the credentials and the folders, then {"event":"stopped"}`,
		ending{0, "it was stopped by a signal"})
	f := cmd.Flags()
	f.BoolVar(&inJSON, "json", false, "print JSON, one object a line; what takes time is said on standard error")
	f.StringVar(&o.Data, "data", o.Data, "folder of all state")
	f.IntVar(&o.Instances, "instances", o.Instances, "how many of each service; instance i listens on its base port + i")
	f.BoolVar(&o.Separate, "separate", o.Separate, "run each service as a process of its own, and restart one that dies")
	f.BoolVar(&o.Webhooks, "webhooks", o.Webhooks, "let the simulators tell of changes; without it the services only ask")
	f.DurationVar(&o.CustomerTime, "customer-time", o.CustomerTime, "how long a customer may take to confirm a payment (default 15m)")
	f.BoolVar(&o.Strict, "strict", o.Strict, "do not start while there are unfinished orders whose saga this release does not define")
	f.StringVar(&o.LogLevel, "log-level", o.LogLevel, "debug, info, warn or error")
	mustBe(f, "data")
	mustComplete(cmd, "log-level", choices("debug", "info", "warn", "error"))
	p := &o.Ports
	port(f, &p.GatewayHTTP, "http", "gateway's HTTP port")
	port(f, &p.GatewayGRPC, "grpc", "gateway's gRPC port")
	port(f, &p.Console, "console", "port of the operators' page")
	port(f, &p.Provider, "provider", "payment simulator's port")
	port(f, &p.Carrier, "carrier", "carrier simulator's port")
	port(f, &p.OrderGRPC, "order-grpc", "order service's gRPC port")
	port(f, &p.OrderHTTP, "order-http", "order service's health and metrics port")
	port(f, &p.PaymentGRPC, "payment-grpc", "payment service's gRPC port")
	port(f, &p.PaymentHTTP, "payment-http", "payment service's health and metrics port")
	port(f, &p.ShippingGRPC, "shipping-grpc", "shipping service's gRPC port")
	port(f, &p.ShippingHTTP, "shipping-http", "shipping service's health and metrics port")
	port(f, &p.PaymentWebhooks, "payment-webhooks", "payment service's port for the provider's webhooks")
	port(f, &p.ShippingWebhooks, "shipping-webhooks", "shipping service's port for the carrier's webhooks")
	port(f, &p.NATS, "nats", "JetStream's port")
	port(f, &p.Postgres, "postgres", "Postgres' port")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		env := environment(environ)
		if err := fromEnvironment(f, env); err != nil {
			return err
		}
		o.External = stack.External{
			OrderDatabase: env["ORDER_DATABASE_URL"], PaymentDatabase: env["PAYMENT_DATABASE_URL"], ShippingDatabase: env["SHIPPING_DATABASE_URL"],
			NATS: env["NATS_URL"], Provider: env["THROUGHLINE_PROVIDER_URL"], ProviderKey: env["THROUGHLINE_PROVIDER_KEY"],
			Carrier:               env["THROUGHLINE_CARRIER_URL"],
			ProviderWebhookSecret: env["THROUGHLINE_PROVIDER_WEBHOOK_SECRET"], CarrierWebhookSecret: env["THROUGHLINE_CARRIER_WEBHOOK_SECRET"],
		}
		o.APIKeys, o.ClientRate, o.ClientBurst = env["THROUGHLINE_API_KEYS"], env["THROUGHLINE_CLIENT_RATE"], env["THROUGHLINE_CLIENT_BURST"]
		o.KeyLifetime, o.ClientRetries = env["THROUGHLINE_KEY_LIFETIME"], env["THROUGHLINE_CLIENT_RETRIES"]
		o.VerifyEvery = env["THROUGHLINE_VERIFY_EVERY"]
		o.Operator, o.Console = env["THROUGHLINE_OPERATOR_CREDENTIAL"], env["THROUGHLINE_CONSOLE_CREDENTIAL"]
		o.JaegerURL = env["THROUGHLINE_JAEGER_URL"]
		o.Credential = env["THROUGHLINE_SERVICE_CREDENTIAL"]
		o.OTLPEndpoint = env["OTEL_EXPORTER_OTLP_ENDPOINT"]
		t := teller{out: cmd.OutOrStdout(), progress: cmd.OutOrStdout(), json: inJSON}
		if inJSON {
			t.progress = cmd.ErrOrStderr()
		}
		return up(cmd.Context(), o, t)
	}
	return cmd
}

func up(ctx context.Context, o stack.Options, t teller) error {
	lifecycle.SpareCollector()
	stop, work, release := lifecycle.Signals(ctx)
	defer release()
	logFile, err := openLog(o.Data)
	if err != nil {
		return err
	}
	defer logFile.Close()
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.LogLevel)); err != nil {
		return fmt.Errorf("reading --log-level: %w", err)
	}
	if o.Logger, err = telemetry.NewLogger(logFile, "text", level, "", ""); err != nil {
		return err
	}
	o.Progress = t.progress
	t.starting()
	if err := stack.Run(stop, work, o, func(s *stack.Stack) { t.up(s, logFile.Name()) }); err != nil {
		return err
	}
	return t.stopped()
}

func openLog(data string) (*os.File, error) {
	path := filepath.Join(data, "log", "throughline.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("creating the log folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return f, nil
}

// portValue is a flag that takes a port, as a number or at the end of an address of this machine.
type portValue struct{ at *int }

func port(f *pflag.FlagSet, at *int, name, usage string) { f.Var(portValue{at}, name, usage) }

func (p portValue) String() string {
	if p.at == nil {
		return ""
	}
	return strconv.Itoa(*p.at)
}

func (p portValue) Type() string { return "port" }

func (p portValue) Set(s string) error {
	if host, number, err := net.SplitHostPort(s); err == nil {
		if ip := net.ParseIP(host); host != "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("%q is not on the loopback interface; this runs a system for development", s)
		}
		s = number
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is no port; give a number from 1 to 65535", s)
	}
	*p.at = n
	return nil
}

func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return env
}

// fromEnvironment sets the flags that were not given from their variables, and refuses variables that stand for no flag.
func fromEnvironment(f *pflag.FlagSet, env map[string]string) error {
	for name, value := range env {
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, envPrefix), "_", "-"))
		known := f.Lookup(flag)
		if known == nil {
			return fmt.Errorf("%s stands for the flag --%s, which there is not", name, flag)
		}
		if known.Changed {
			continue
		}
		if err := f.Set(flag, value); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
	}
	return nil
}
