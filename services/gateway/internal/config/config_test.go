package config_test

import (
	"errors"
	"strings"
	"testing"

	pkgconfig "github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	loaded, err := pkgconfig.Load[config.Config](pkgconfig.Prefix, nil)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	zero := config.Config{Grace: loaded.Grace}.WithDefaults()
	if loaded != zero {
		t.Errorf("defaults\n of the environment %+v\n of zero values     %+v", loaded, zero)
	}
}

func TestDevelopmentKeys(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		env  []string
		want error
		keys int
	}{
		{"none", nil, nil, 0},
		{"for real", []string{"THROUGHLINE_API_KEYS=shop=aaaaaaaaaaaaaaaa"}, nil, 1},
		{"for real with a development key", []string{"THROUGHLINE_API_KEYS=shop=aaaaaaaaaaaaaaaa, storefront=tl_dev_storefront"}, config.ErrDevelopmentKey, 0},
		{"under another name", []string{"THROUGHLINE_API_KEYS=shop= tl_dev_marketplace"}, config.ErrDevelopmentKey, 0},
		{"embedded", []string{"THROUGHLINE_EMBEDDED=1"}, nil, 2},
		{"embedded with others", []string{"THROUGHLINE_EMBEDDED=1", "THROUGHLINE_API_KEYS=shop=aaaaaaaaaaaaaaaa"}, nil, 3},
		{"embedded and named", []string{"THROUGHLINE_EMBEDDED=1", "THROUGHLINE_API_KEYS=" + config.DevelopmentClients}, nil, 2},
		{"not a list", []string{"THROUGHLINE_API_KEYS=hunter2"}, grpcapi.ErrAPIKeys, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := pkgconfig.Load[config.Config](pkgconfig.Prefix, tt.env)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Load: got %v, want %v", err, tt.want)
			}
			if err != nil {
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the error tells the key: %v", err)
				}
				return
			}
			clients, err := cfg.Clients()
			if err != nil || clients.Len() != tt.keys {
				t.Fatalf("Clients: got %v, %v, want %d keys", clients, err, tt.keys)
			}
			if _, err := clients.Authenticate(t.Context(), "tl_dev_storefront"); (err == nil) != cfg.Embedded {
				t.Errorf("the development key: got %v, want it to be known: %v", err, cfg.Embedded)
			}
		})
	}
}
