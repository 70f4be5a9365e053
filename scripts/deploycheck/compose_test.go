package deploycheck

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// deploy is the folder that is checked, from this package's folder, where go test runs it.
const deploy = "../../deploy"

// variables reads the names that env.example asks for. None may have a value there.
func variables(t *testing.T) []string {
	t.Helper()
	f, err := os.Open(filepath.Join(deploy, "env.example"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			name, value, ok := strings.Cut(line, "=")
			if !ok || value != "" {
				t.Errorf("env.example: got line %q, want NAME= without a value", line)
			}
			names = append(names, name)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

// load reads compose.yaml with the given environment and nothing from the machine's own.
func load(t *testing.T, env []string, options ...cli.ProjectOptionsFn) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(deploy, "compose.yaml")}, append(options, cli.WithEnv(env))...)
	if err != nil {
		t.Fatal(err)
	}
	return o.LoadProject(t.Context())
}

func filled(t *testing.T) []string {
	t.Helper()
	var env []string
	for _, name := range variables(t) {
		env = append(env, name+"=given"+strings.ToLower(strings.ReplaceAll(name, "_", "")))
	}
	return env
}

func project(t *testing.T) *types.Project {
	t.Helper()
	p, err := load(t, filled(t))
	if err != nil {
		t.Fatalf("loading compose.yaml: %v", err)
	}
	return p
}

// ours are the services that are built from this repository.
var ours = []string{"carrier-simulator", "console", "gateway", "order", "payment", "payment-simulator", "shipping"}

func TestComposeHasTheWholeSystem(t *testing.T) {
	t.Parallel()
	p := project(t)
	want := slices.Sorted(slices.Values(append([]string{"jaeger", "nats", "postgres"}, ours...)))
	if got := slices.Sorted(maps.Keys(p.Services)); !slices.Equal(got, want) {
		t.Errorf("services: got %v, want %v", got, want)
	}
	for _, name := range ours {
		s := p.Services[name]
		if s.Build == nil || s.Build.Args["SERVICE"] == nil || *s.Build.Args["SERVICE"] != name {
			t.Errorf("%s: is not built with SERVICE=%s", name, name)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: got read_only %t, cap_drop %v, security_opt %v, want a container that may do nothing", name, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
	}
}

func TestComposeServices(t *testing.T) {
	t.Parallel()
	for name, s := range project(t).Services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := s.HealthCheck
			if h == nil || h.Disable || len(h.Test) < 2 || h.Interval == nil || h.Timeout == nil || h.StartPeriod == nil || h.Retries == nil {
				t.Errorf("health check: got %+v, want a test with interval, timeout, start_period and retries", h)
			}
			// The images have no shell, so the string form could not run.
			if h != nil && slices.Contains(ours, name) && !slices.Equal(h.Test, []string{"CMD", "/service", "healthcheck"}) {
				t.Errorf("health check: got %q, want the program itself", h.Test)
			}
			if s.Restart == "" {
				t.Error("restart: got none, want a policy")
			}
			if len(s.DependsOn) > 0 {
				t.Errorf("depends_on: got %v, want none: services start in any order", s.DependsOn)
			}
			if s.Privileged || s.NetworkMode == "host" || s.Pid == "host" {
				t.Error("has privileges of the machine")
			}
			for _, port := range s.Ports {
				if port.HostIP != "127.0.0.1" {
					t.Errorf("port %s: got address %q, want 127.0.0.1", port.Published, port.HostIP)
				}
			}
			if s.Build == nil && !pinned(s.Image) {
				t.Errorf("image: got %q, want an exact version", s.Image)
			}
		})
	}
}

var version = regexp.MustCompile(`^\d+\.\d+`)

// pinned says whether an image has a tag of at least two numbers, or a digest.
func pinned(image string) bool {
	if strings.Contains(image, "@sha256:") {
		return true
	}
	_, tag, ok := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return ok && version.MatchString(tag)
}

func TestPinned(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]bool{
		"postgres": false, "postgres:latest": false, "postgres:17": false, "postgres:17.6-bookworm": true,
		"localhost:5000/nats": false, "localhost:5000/nats:2.15.2": true, "nats@sha256:00": true,
	} {
		if got := pinned(image); got != want {
			t.Errorf("pinned(%q): got %t, want %t", image, got, want)
		}
	}
}

func TestComposeNeedsEverySecret(t *testing.T) {
	t.Parallel()
	env := filled(t)
	for i, name := range variables(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := load(t, slices.Delete(slices.Clone(env), i, i+1)); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("loading without it: got error %v, want one that names %s", err, name)
			}
		})
	}
}

func TestComposeHoldsNoSecret(t *testing.T) {
	t.Parallel()
	p, err := load(t, nil, cli.WithInterpolation(false))
	if err != nil {
		t.Fatalf("loading compose.yaml without interpolation: %v", err)
	}
	for name, s := range p.Services {
		for key, value := range s.Environment {
			if value == nil {
				t.Errorf("%s: %s is taken from the environment unseen: write ${%s:?}", name, key, key)
			} else if secret := literalSecret(key, *value); secret != "" {
				t.Errorf("%s: %s", name, secret)
			}
		}
	}
}

var (
	secretName = regexp.MustCompile(`(?i)(password|passwd|secret|token|credential|keys?)$`)
	required   = regexp.MustCompile(`^\$\{[A-Z_]+:\?\}$`)
	userinfo   = regexp.MustCompile(`://([^/@]*)@`)
)

// literalSecret says what is wrong with a setting that carries a secret in any form but ${NAME:?}.
func literalSecret(key, value string) string {
	if secretName.MatchString(key) && !required.MatchString(value) {
		return fmt.Sprintf("%s is not ${…:?}", key)
	}
	if m := userinfo.FindStringSubmatch(value); m != nil {
		password := m[1] // a token alone, unless a user's name stands before it
		if user, rest, ok := strings.Cut(m[1], ":"); ok && !strings.HasPrefix(user, "$") {
			password = rest
		}
		if !required.MatchString(password) {
			return fmt.Sprintf("the URL in %s has a password that is not ${…:?}", key)
		}
	}
	return ""
}

func TestLiteralSecret(t *testing.T) {
	t.Parallel()
	tests := []struct {
		key, value string
		found      bool
	}{
		{"POSTGRES_PASSWORD", "postgres", true},
		{"POSTGRES_PASSWORD", "${POSTGRES_PASSWORD:-postgres}", true},
		{"POSTGRES_PASSWORD", "${POSTGRES_PASSWORD:?}", false},
		{"THROUGHLINE_API_KEYS", "a=b", true},
		{"DATABASE_URL", "postgres://order:order@postgres/order", true},
		{"DATABASE_URL", "postgres://order:${P:?}@postgres/order", false},
		{"NATS_URL", "nats://token@nats:4222", true},
		{"NATS_URL", "nats://${NATS_TOKEN:?}@nats:4222", false},
		{"THROUGHLINE_GRPC_ADDR", "0.0.0.0:9090", false},
	}
	for _, tt := range tests {
		if got := literalSecret(tt.key, tt.value); (got != "") != tt.found {
			t.Errorf("literalSecret(%q, %q): got %q, want found %t", tt.key, tt.value, got, tt.found)
		}
	}
}

// TestAddressesMeet checks that what one service dials is what another listens on.
func TestAddressesMeet(t *testing.T) {
	t.Parallel()
	p := project(t)
	setting := func(service, key string) string {
		if v := p.Services[service].Environment[key]; v != nil {
			return *v
		}
		return ""
	}
	tests := []struct{ from, key, to, listens string }{
		{"gateway", "THROUGHLINE_ORDER_ADDR", "order", setting("order", "THROUGHLINE_GRPC_ADDR")},
		{"order", "THROUGHLINE_PAYMENT_ADDR", "payment", setting("payment", "THROUGHLINE_GRPC_ADDR")},
		{"order", "THROUGHLINE_SHIPPING_ADDR", "shipping", setting("shipping", "THROUGHLINE_GRPC_ADDR")},
		{"payment", "THROUGHLINE_PROVIDER_URL", "payment-simulator", p.Services["payment-simulator"].Command[1]},
		{"shipping", "THROUGHLINE_CARRIER_URL", "carrier-simulator", p.Services["carrier-simulator"].Command[1]},
	}
	for _, tt := range tests {
		got := strings.TrimPrefix(setting(tt.from, tt.key), "http://")
		port, ok := strings.CutPrefix(tt.listens, "0.0.0.0:")
		if want := tt.to + ":" + port; !ok || got != want {
			t.Errorf("%s of %s: got %q, want %q, where %s listens (%q)", tt.key, tt.from, got, want, tt.to, tt.listens)
		}
	}
}
