package e2e_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const metricsTable = "../../deploy/metrics.md"

// tableHead stands before the rows.
const tableHead = `# Metrics

What the services serve at /metrics, and send by OTLP where OTEL_METRICS_EXPORTER is otlp. Written by a test from what a running system serves, and compared
with it since; UPDATE_METRICS=1 writes it anew. No order, key or message is a label. Times are in seconds.

| name | type | labels | services | what it is |
| --- | --- | --- | --- | --- |
`

// row is what is known of one metric.
type row struct {
	kind, help       string
	labels, services map[string]bool
}

// checkMetrics compares what the services serve with the table, and looks for what must not be a label.
func checkMetrics(ctx context.Context, t *testing.T, w *world, stories []story) {
	t.Helper()
	rows := make(map[string]*row)
	w.probe(ctx, t, "console", "/healthz") // so that it has served something
	for service, port := range map[string]string{
		"gateway": "http", "order": "order-http", "payment": "payment-http", "shipping": "shipping-http", "console": "console",
	} {
		_, body := w.probe(ctx, t, port, "/metrics")
		for _, s := range stories {
			for _, secret := range []string{s.id, s.key} {
				if strings.Contains(body, secret) {
					t.Errorf("%s: the metrics have a label with %q", service, secret)
				}
			}
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(body))
		if err != nil {
			t.Fatalf("%s: %v", service, err)
		}
		for name, family := range families {
			note(rows, service, name, family)
		}
	}
	var table strings.Builder
	table.WriteString(tableHead)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s | %s |\n", name, r.kind, joined(r.labels), joined(r.services), r.help)
	}
	if os.Getenv("UPDATE_METRICS") != "" {
		if err := os.WriteFile(metricsTable, []byte(table.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(metricsTable)
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(table.String(), "\n"), strings.Split(string(committed), "\n")
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("served, and not in deploy/metrics.md: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("in deploy/metrics.md, and not served: %s", line)
		}
	}
}

func note(rows map[string]*row, service, name string, family *dto.MetricFamily) {
	if service == "order" && strings.HasPrefix(name, "rpc_client_") {
		return // it asks others only about steps that are overdue, which not every run has
	}
	r := rows[name]
	if r == nil {
		r = &row{kind: strings.ToLower(family.GetType().String()), help: family.GetHelp(), labels: make(map[string]bool), services: make(map[string]bool)}
		rows[name] = r
	}
	r.services[service] = true
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			// What went wrong with a call is only told of calls that went wrong.
			if l.GetName() != "error_type" {
				r.labels[l.GetName()] = true
			}
		}
	}
}

func joined(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }

// checkExemplars looks for measurements that lead to a trace.
func checkExemplars(ctx context.Context, t *testing.T, w *world) {
	t.Helper()
	for port, metric := range map[string]string{
		"order-http": "throughline_saga_duration_seconds_bucket", "payment-http": "throughline_step_attempt_duration_seconds_bucket",
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/metrics", w.Ports()[port]), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for line := range strings.Lines(string(body)) {
			found = found || strings.HasPrefix(line, metric) && strings.Contains(line, `trace_id="`)
		}
		if !found {
			t.Errorf("%s: no measurement of %s leads to a trace", port, metric)
		}
	}
}
