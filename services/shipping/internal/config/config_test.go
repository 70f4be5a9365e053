package config_test

import (
	"errors"
	"testing"
	"time"

	pkgconfig "github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/services/shipping/internal/config"
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
	cfg := config.Config{CarrierTimeout: 7 * time.Second}.WithDefaults()
	if err := cfg.Validate(); !errors.Is(err, config.ErrDisagree) {
		t.Errorf("a timeout of %s in a lease of %s: got %v, want %v", cfg.CarrierTimeout, cfg.StepLease, err, config.ErrDisagree)
	}
}
