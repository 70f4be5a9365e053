package config_test

import (
	"errors"
	"testing"

	pkgconfig "github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/services/console/internal/config"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	const long = "THROUGHLINE_CONSOLE_CREDENTIAL=0123456789abcdef"
	for name, tt := range map[string]struct {
		environ []string
		want    error
	}{
		"credential":                {[]string{long}, nil},
		"none":                      {nil, config.ErrCredential},
		"short":                     {[]string{"THROUGHLINE_CONSOLE_CREDENTIAL=0123456789abcde"}, config.ErrCredential},
		"that of the services":      {[]string{long, "THROUGHLINE_OPERATOR_CREDENTIAL=0123456789abcdef"}, config.ErrSameCredential},
		"https":                     {[]string{long, "THROUGHLINE_PUBLIC_URL=https://console.example"}, nil},
		"no URL":                    {[]string{long, "THROUGHLINE_PUBLIC_URL=console.example"}, config.ErrURL},
		"a script in the place":     {[]string{long, "THROUGHLINE_JAEGER_URL=javascript:alert(1)"}, config.ErrURL},
		"a password in the address": {[]string{long, "THROUGHLINE_JAEGER_URL=http://a:b@jaeger"}, config.ErrURL},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := pkgconfig.Load[config.Config](pkgconfig.Prefix, tt.environ); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
	c := config.Config{PublicURL: "https://console.example"}
	if !c.Secure() {
		t.Error("https: got cookies for http, too, want them for https only")
	}
}
