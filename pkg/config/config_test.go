package config_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/config"
)

type pool struct {
	Max int `env:"MAX" envDefault:"8" doc:"greatest number of connections"`
}

type service struct {
	HTTPAddr    string            `env:"HTTP_ADDR" envDefault:"127.0.0.1:8080" doc:"where HTTP is served"`
	DatabaseURL string            `env:"DATABASE_URL" prefix:"none" doc:"the service's own database"`
	Credential  string            `env:"CREDENTIAL" secret:"true" doc:"what services show each other"`
	PIN         int               `env:"PIN" secret:"true"`
	Grace       time.Duration     `env:"GRACE" envDefault:"20s" doc:"time for the work in hand"`
	Level       slog.Level        `env:"LOG_LEVEL" doc:"least level that is logged | debug, info, …"`
	Ratio       float64           `env:"RATIO" envDefault:"0.5"`
	Embedded    bool              `env:"EMBEDDED"`
	Peers       []string          `env:"PEERS"`
	Keys        map[string]string `env:"API_KEYS" secret:"true"`
	Pool        pool              `envPrefix:"POOL_"`
	Inner       struct {
		Limit uint16 `env:"LIMIT"`
	}
	Derived string // no setting
	_       string
}

func TestLoad(t *testing.T) {
	t.Parallel()
	defaults := service{HTTPAddr: "127.0.0.1:8080", Grace: 20 * time.Second, Ratio: 0.5, Pool: pool{Max: 8}}
	for _, tc := range []struct {
		name    string
		environ []string
		change  func(*service)
	}{
		{"nothing set", nil, func(*service) {}},
		{"others ignored", []string{"PATH=/bin", "HTTP_ADDR=x", "POOL_MAX=9", "MAX=9", "=C:=x", "broken"}, func(*service) {}},
		{"empty is not set", []string{"THROUGHLINE_GRACE=", "THROUGHLINE_HTTP_ADDR="}, func(*service) {}},
		{"string", []string{"THROUGHLINE_HTTP_ADDR=:1"}, func(s *service) { s.HTTPAddr = ":1" }},
		{"last one holds", []string{"THROUGHLINE_HTTP_ADDR=:1", "THROUGHLINE_HTTP_ADDR=:2"}, func(s *service) { s.HTTPAddr = ":2" }},
		{"value with equal signs", []string{"DATABASE_URL=postgres://u:p@h/d?a=b"}, func(s *service) { s.DatabaseURL = "postgres://u:p@h/d?a=b" }},
		{"types", []string{"THROUGHLINE_GRACE=1m", "THROUGHLINE_LOG_LEVEL=debug", "THROUGHLINE_RATIO=1", "THROUGHLINE_EMBEDDED=1", "THROUGHLINE_PEERS=a,b", "THROUGHLINE_API_KEYS=c:k"},
			func(s *service) {
				s.Grace, s.Level, s.Ratio, s.Embedded, s.Peers, s.Keys = time.Minute, slog.LevelDebug, 1, true, []string{"a", "b"}, map[string]string{"c": "k"}
			}},
		{"nested", []string{"THROUGHLINE_POOL_MAX=3", "THROUGHLINE_LIMIT=7"}, func(s *service) { s.Pool.Max, s.Inner.Limit = 3, 7 }},
		{"fault points are known", []string{"THROUGHLINE_FAULT_POINTS=x"}, func(*service) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := defaults
			tc.change(&want)
			got, err := config.Load[service](config.Prefix, tc.environ)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, nearest string
	}{
		{"THROUGHLINE_HTTP_ADR", "THROUGHLINE_HTTP_ADDR"},
		{"THROUGHLINE_GRACE_PERIOD", "THROUGHLINE_GRACE"},
		{"THROUGHLINE_POOLMAX", "THROUGHLINE_POOL_MAX"},
		{"THROUGHLINE_DATABASE_URL", "DATABASE_URL"},
		{"THROUGHLINE_PAYMENT_ADR", "THROUGHLINE_PAYMENT_ADDR"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Load[service](config.Prefix, []string{tc.name + "="}, config.Known("THROUGHLINE_PAYMENT_ADDR"))
			var unknown *config.UnknownError
			if !errors.Is(err, config.ErrUnknown) || !errors.As(err, &unknown) {
				t.Fatalf("got %v, want %v", err, config.ErrUnknown)
			}
			if unknown.Nearest != tc.nearest || unknown.Name != tc.name {
				t.Errorf("got %+v, want %s for %s", unknown, tc.nearest, tc.name)
			}
			if !reflect.DeepEqual(got, service{}) {
				t.Errorf("got %+v beside the error, want the zero value", got)
			}
		})
	}
}

func TestKnown(t *testing.T) {
	t.Parallel()
	type other struct {
		Addr string `env:"PAYMENT_ADDR"`
	}
	environ := []string{"THROUGHLINE_PAYMENT_ADDR=x", "THROUGHLINE_ORDER_ADDR=y"}
	_, err := config.Load[service](config.Prefix, environ, config.Known("THROUGHLINE_ORDER_ADDR"), config.KnownTo[other](config.Prefix))
	if err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Load[service](config.Prefix, []string{
		"THROUGHLINE_GRACE=soon", "THROUGHLINE_PIN=s3cret", "THROUGHLINE_POOL_MAX=many", "THROUGHLINE_TYPO=1", "THROUGHLINE_ODD=1",
	})
	if !errors.Is(err, config.ErrValue) || !errors.Is(err, config.ErrUnknown) {
		t.Fatalf("got %v, want both %v and %v", err, config.ErrValue, config.ErrUnknown)
	}
	for _, want := range []string{"THROUGHLINE_GRACE, want a value of type duration", "soon", "THROUGHLINE_PIN, want a value of type integer", "THROUGHLINE_POOL_MAX", "many", "THROUGHLINE_TYPO", "THROUGHLINE_ODD"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got the secret in %v", err)
	}
}

type checked struct {
	Lease time.Duration `env:"LEASE" envDefault:"30s"`
	Call  time.Duration `env:"CALL" envDefault:"10s"`
}

var errBudget = errors.New("THROUGHLINE_CALL must be shorter than THROUGHLINE_LEASE")

func (c *checked) Validate() error {
	if c.Call >= c.Lease {
		return errBudget
	}
	return nil
}

func TestValidate(t *testing.T) {
	t.Parallel()
	if _, err := config.Load[checked](config.Prefix, nil); err != nil {
		t.Errorf("defaults: got %v, want nil", err)
	}
	if _, err := config.Load[checked](config.Prefix, []string{"THROUGHLINE_CALL=30s"}); !errors.Is(err, errBudget) {
		t.Errorf("got %v, want %v", err, errBudget)
	}
}

func TestEffective(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load[service](config.Prefix, []string{
		"DATABASE_URL=postgres://order:s3cret@db/order?sslmode=disable", "THROUGHLINE_CREDENTIAL=s3cret",
		"THROUGHLINE_API_KEYS=c:s3cret", "THROUGHLINE_PEERS=http://u:s3cret@a,b",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []any{cfg, &cfg} {
		got := map[string]string{}
		var order []string
		for _, a := range config.Effective(config.Prefix, in) {
			got[a.Key] = a.Value.String()
			order = append(order, a.Key)
		}
		for name, want := range map[string]string{
			"DATABASE_URL":           "postgres://order:***@db/order?sslmode=disable",
			"THROUGHLINE_CREDENTIAL": "***",
			"THROUGHLINE_PIN":        "",
			"THROUGHLINE_API_KEYS":   "***",
			"THROUGHLINE_PEERS":      "http://u:***@a,b",
			"THROUGHLINE_GRACE":      "20s",
			"THROUGHLINE_LOG_LEVEL":  "INFO",
			"THROUGHLINE_POOL_MAX":   "8",
		} {
			if got[name] != want {
				t.Errorf("got %s %q, want %q", name, got[name], want)
			}
		}
		if names := config.Names[service](config.Prefix); len(names) != len(order) || !slices.IsSorted(names) {
			t.Errorf("got names %v for settings %v", names, order)
		}
	}
}

func TestURLSecretsOutsideThePassword(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://h/d?user=u&password=s3cret": "postgres://h/d?user=u&password=***",
		"nats://token@h:4222":                   "nats://***@h:4222",
		"nats://a:s3cret@h,nats://b:s3cret@i":   "nats://a:***@h,nats://b:***@i",
		"postgres://u:s3%zz@cret@h":             "postgres://u:***@h",
		"postgres://u:s3/cret@h":                "***",
		"host=h password='s 3cret' user=u":      "host=h password=*** user=u",
		"mail@example.org":                      "mail@example.org",
		"http://h/p?q=1":                        "http://h/p?q=1",
		"127.0.0.1:8080":                        "127.0.0.1:8080",
	} {
		attrs := config.Effective("", service{DatabaseURL: in})
		if got := attrs[1].Value.String(); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
}

func TestDocumentation(t *testing.T) {
	t.Parallel()
	got := config.Documentation[service](config.Prefix)
	want := map[string][3]string{
		"THROUGHLINE_HTTP_ADDR": {"string", "127.0.0.1:8080", "where HTTP is served"},
		"DATABASE_URL":          {"string", "", "the service's own database"},
		"THROUGHLINE_GRACE":     {"duration", "20s", "time for the work in hand"},
		"THROUGHLINE_LOG_LEVEL": {"log level", "", "least level that is logged | debug, info, …"},
		"THROUGHLINE_RATIO":     {"number", "0.5", ""},
		"THROUGHLINE_EMBEDDED":  {"boolean", "", ""},
		"THROUGHLINE_PEERS":     {"list of string", "", ""},
		"THROUGHLINE_API_KEYS":  {"list of string:string", "", ""},
		"THROUGHLINE_POOL_MAX":  {"integer", "8", "greatest number of connections"},
		"THROUGHLINE_LIMIT":     {"integer", "", ""},
	}
	seen := 0
	for _, s := range got {
		if w, ok := want[s.Name]; ok {
			seen++
			if g := [3]string{s.Type, s.Default, s.Doc}; g != w {
				t.Errorf("%s: got %q, want %q", s.Name, g, w)
			}
		}
	}
	if seen != len(want) || len(got) != 12 {
		t.Errorf("got %d of %d settings and %d in all, want 12", seen, len(want), len(got))
	}
	if got[0].Name != "THROUGHLINE_HTTP_ADDR" {
		t.Errorf("got %s first, want the order of the fields", got[0].Name)
	}
	if md := config.Markdown(got); !strings.Contains(md, `logged \| debug`) || strings.Count(md, "\n") != 14 {
		t.Errorf("got table\n%s\nwant 14 lines with escaped bars", md)
	}
}

func Example() {
	type Config struct {
		HTTPAddr   string        `env:"HTTP_ADDR" envDefault:"127.0.0.1:8080" doc:"where HTTP is served"`
		NATSURL    string        `env:"NATS_URL" prefix:"none" envDefault:"nats://127.0.0.1:4222" doc:"the broker"`
		Credential string        `env:"CREDENTIAL" secret:"true" doc:"what services show each other"`
		Grace      time.Duration `env:"GRACE" envDefault:"20s" doc:"time for the work in hand"`
	}
	cfg, err := config.Load[Config](config.Prefix, []string{"THROUGHLINE_CREDENTIAL=s3cret", "THROUGHLINE_GRACE=5s"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range config.Effective(config.Prefix, cfg) {
		fmt.Println(a)
	}
	_, err = config.Load[Config](config.Prefix, []string{"THROUGHLINE_HTPADDR=:80"})
	fmt.Println(err)
	fmt.Fprint(os.Stdout, config.Markdown(config.Documentation[Config](config.Prefix)))
	// Output:
	// THROUGHLINE_HTTP_ADDR=127.0.0.1:8080
	// NATS_URL=nats://127.0.0.1:4222
	// THROUGHLINE_CREDENTIAL=***
	// THROUGHLINE_GRACE=5s
	// reading the environment: unknown setting THROUGHLINE_HTPADDR, did you mean THROUGHLINE_HTTP_ADDR?
	// | variable | type | default | meaning |
	// | --- | --- | --- | --- |
	// | `THROUGHLINE_HTTP_ADDR` | string | `127.0.0.1:8080` | where HTTP is served |
	// | `NATS_URL` | string | `nats://127.0.0.1:4222` | the broker |
	// | `THROUGHLINE_CREDENTIAL` | string |  | what services show each other (secret) |
	// | `THROUGHLINE_GRACE` | duration | `20s` | time for the work in hand |
}
