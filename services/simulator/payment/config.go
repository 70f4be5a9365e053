package payment

import (
	"flag"
	"io"
	"log/slog"
	"time"

	"github.com/throughline/throughline/services/simulator/internal/settings"
)

// Defaults of Config.
const (
	DefaultAddress     = "127.0.0.1:8090"
	DefaultKeyLifetime = 24 * time.Hour
	DefaultSearchLag   = time.Second
	DefaultRefundDelay = 2 * time.Second
)

// Config of a Server. The zero value works: it keeps its ledger in memory and
// sends no webhooks.
type Config struct {
	Address string // for Run; default DefaultAddress
	DataDir string // folder of the ledger; "" keeps it in memory

	WebhookURL    string // "" sends none
	WebhookSecret string // whsec_…, as the receiver has it

	APIKey      string        // the one key accepted; "" accepts any
	KeyLifetime time.Duration // of idempotency keys; 0 means DefaultKeyLifetime
	SearchLag   time.Duration // 0 means DefaultSearchLag, below 0 none
	RefundDelay time.Duration // until a pending refund settles; 0 means DefaultRefundDelay
	Calls       int           // calls kept in the ledger; 0 means 200,000

	Now    func() time.Time // default time.Now; for tests of key lifetimes
	Logger *slog.Logger     // default slog.Default()
}

// EnvPrefix is what the program's environment variables begin with.
const EnvPrefix = "PAYMENT_SIMULATOR"

// ParseConfig reads the program's flags and environment: --address,
// --data-dir, --webhook-url, --webhook-secret, --api-key, --key-lifetime,
// --search-lag, --refund-delay, or PAYMENT_SIMULATOR_ADDRESS and so on. The flag wins.
func ParseConfig(args, env []string, usage io.Writer) (Config, error) {
	var c Config
	err := settings.Parse(EnvPrefix, args, env, usage, func(fs *flag.FlagSet) {
		fs.StringVar(&c.Address, "address", DefaultAddress, "address to listen on")
		fs.StringVar(&c.DataDir, "data-dir", "", "folder of the ledger; empty keeps it in memory")
		fs.StringVar(&c.WebhookURL, "webhook-url", "", "where webhooks go; empty sends none")
		fs.StringVar(&c.WebhookSecret, "webhook-secret", "", "secret that signs webhooks")
		fs.StringVar(&c.APIKey, "api-key", "", "the API key accepted; empty accepts any")
		fs.DurationVar(&c.KeyLifetime, "key-lifetime", DefaultKeyLifetime, "lifetime of idempotency keys")
		fs.DurationVar(&c.SearchLag, "search-lag", DefaultSearchLag, "time until an intent can be found by search; below 0 none")
		fs.DurationVar(&c.RefundDelay, "refund-delay", DefaultRefundDelay, "time until a pending refund settles")
	})
	return c, err
}

func (c Config) withDefaults() Config {
	if c.Address == "" {
		c.Address = DefaultAddress
	}
	if c.KeyLifetime <= 0 {
		c.KeyLifetime = DefaultKeyLifetime
	}
	if c.SearchLag == 0 {
		c.SearchLag = DefaultSearchLag
	}
	if c.RefundDelay <= 0 {
		c.RefundDelay = DefaultRefundDelay
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
		slog.Bool("api_key_set", c.APIKey != ""), slog.Duration("key_lifetime", c.KeyLifetime),
		slog.Duration("search_lag", c.SearchLag), slog.Duration("refund_delay", c.RefundDelay),
	)
}
