package config_test

import (
	"errors"
	"testing"

	pkgconfig "github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/services/order/internal/config"
)

// What is read from an empty environment is what a zero value with its defaults is, but for the addresses to listen on.
func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := pkgconfig.Load[config.Config](pkgconfig.Prefix, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{Config: got.Config, GRPCAddr: "127.0.0.1:9110", HTTPAddr: "127.0.0.1:8110"}.WithDefaults()
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"23h": nil, "22h": config.ErrLifetime} {
		_, err := pkgconfig.Load[config.Config](pkgconfig.Prefix, []string{"THROUGHLINE_KEY_LIFETIME=" + name})
		if !errors.Is(err, want) {
			t.Errorf("got error %v for %s, want %v", err, name, want)
		}
	}
}
