package settings_test

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/throughline/throughline/services/simulator/internal/settings"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args, env []string
		want      string
		wantErr   string
	}{
		"default":             {want: "d"},
		"environment":         {env: []string{"X_DATA_DIR=e", "OTHER=1"}, want: "e"},
		"flag beats both":     {args: []string{"--data-dir", "f"}, env: []string{"X_DATA_DIR=e"}, want: "f"},
		"unknown environment": {env: []string{"X_DATADIR=e"}, wantErr: "unknown setting X_DATADIR"},
		"unknown flag":        {args: []string{"--nope"}, wantErr: "not defined"},
		"stray argument":      {args: []string{"nope"}, wantErr: `unexpected argument "nope"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got string
			err := settings.Parse("X", test.args, test.env, io.Discard, func(fs *flag.FlagSet) {
				fs.StringVar(&got, "data-dir", "d", "")
			})
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error: got %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}
