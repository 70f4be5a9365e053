package carrier

import (
	"flag"
	"io"
	"log/slog"
	"time"

	"github.com/throughline/throughline/services/simulator/internal/settings"
)

// DefaultAddress is where the program listens.
const DefaultAddress = "127.0.0.1:8091"

// Config of a Server. The zero value works: it keeps its ledger in memory,
// accepts everybody and sends no webhooks.
type Config struct {
	Address string // for Run; default DefaultAddress
	DataDir string // folder of the ledger; "" keeps it in memory

	WebhookURL    string // "" sends none
	WebhookSecret string // whsec_ and base64, as the receiver has it

	APIKey string // bearer token that callers must give; "" asks for none
	Calls  int    // calls kept in the ledger; 0 means 200,000

	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default slog.Default()
}

// EnvPrefix is what the program's environment variables begin with.
const EnvPrefix = "CARRIER_SIMULATOR"

// ParseConfig reads the program's flags and environment: --address,
// --data-dir, --webhook-url, --webhook-secret, --api-key, or
// CARRIER_SIMULATOR_ADDRESS and so on. The flag wins.
func ParseConfig(args, env []string, usage io.Writer) (Config, error) {
	var c Config
	err := settings.Parse(EnvPrefix, args, env, usage, func(fs *flag.FlagSet) {
		fs.StringVar(&c.Address, "address", DefaultAddress, "address to listen on")
		fs.StringVar(&c.DataDir, "data-dir", "", "folder of the ledger; empty keeps it in memory")
		fs.StringVar(&c.WebhookURL, "webhook-url", "", "where webhooks go; empty sends none")
		fs.StringVar(&c.WebhookSecret, "webhook-secret", "", "secret that signs webhooks")
		fs.StringVar(&c.APIKey, "api-key", "", "bearer token asked for; empty asks for none")
	})
	return c, err
}

func (c Config) withDefaults() Config {
	if c.Address == "" {
		c.Address = DefaultAddress
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// LogValue masks the secrets.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("address", c.Address), slog.String("data_dir", c.DataDir),
		slog.String("webhook_url", c.WebhookURL), slog.Bool("webhook_secret_set", c.WebhookSecret != ""),
		slog.Bool("api_key_set", c.APIKey != ""),
	)
}
