package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	pkgconfig "github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/services/payment/internal/config"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := pkgconfig.Load[config.Config](pkgconfig.Prefix, nil)
	if err != nil {
		t.Fatalf("loading from an empty environment: %v", err)
	}
	if err := cfg.Validate(); err != nil {
		t.Errorf("the defaults disagree: %v", err)
	}
	if got := cfg.WithDefaults(); got != cfg {
		t.Errorf("defaults of code and environment differ: got %+v, want %+v", got, cfg)
	}
}

func TestDisagreement(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*config.Config)
		want   []string
	}{
		"timeout and lease":     {func(c *config.Config) { c.ProviderTimeout = 7 * time.Second }, []string{"PROVIDER_TIMEOUT", "STEP_LEASE"}},
		"keys live too long":    {func(c *config.Config) { c.ProviderKeyLifetime = 25 * time.Hour }, []string{"PROVIDER_KEY_LIFETIME", "24h"}},
		"customers live longer": {func(c *config.Config) { c.CustomerTime = 23 * time.Hour }, []string{"CUSTOMER_TIME", "PROVIDER_KEY_LIFETIME"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Config{}.WithDefaults()
			tt.change(&cfg)
			err := cfg.Validate()
			if !errors.Is(err, config.ErrDisagree) {
				t.Fatalf("got %v, want %v", err, config.ErrDisagree)
			}
			for _, name := range tt.want {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("error: got %q, want it to name %s", err, name)
				}
			}
		})
	}
}

func TestReturnURL(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]error{
		"": nil, "https://shop.example/orders/{order_id}?back": nil, "http://localhost:3000/": nil,
		"shop.example/back": config.ErrReturnURL, "javascript:alert(1)": config.ErrReturnURL, "https:///back": config.ErrReturnURL, "https://a b/": config.ErrReturnURL,
	} {
		cfg := config.Config{ReturnURL: value}.WithDefaults()
		if err := cfg.Validate(); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", value, err, want)
		}
	}
}
