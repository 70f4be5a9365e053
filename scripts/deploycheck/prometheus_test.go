package deploycheck

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestPrometheusReadsEveryService compares what Prometheus is told to read with the services that serve metrics: those with an address for HTTP.
func TestPrometheusReadsEveryService(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var cfg struct {
		ScrapeConfigs []struct {
			StaticConfigs []struct {
				Targets []string `json:"targets"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &cfg); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, s := range cfg.ScrapeConfigs {
		for _, c := range s.StaticConfigs {
			got = append(got, c.Targets...)
		}
	}
	for name, s := range project(t).Services {
		addr := s.Environment["THROUGHLINE_HTTP_ADDR"]
		if addr == nil {
			continue
		}
		_, port, err := net.SplitHostPort(*addr)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want = append(want, net.JoinHostPort(name, port))
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("targets: got %v, want %v", got, want)
	}
}
