package app_test

import (
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/throughline/throughline/proto/openapi"
	"github.com/throughline/throughline/services/gateway/internal/app"
	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/internal/grpcx"
)

func TestOperations(t *testing.T) {
	t.Parallel()
	e := start(t)
	if a := e.do("GET", "/healthz", "", "Authorization", ""); a.status != 200 {
		t.Errorf("/healthz: got %d %s, want 200", a.status, a.body)
	}
	if a := e.do("GET", "/readyz", ""); a.status != 200 || !strings.Contains(a.body, `"order","ok":true`) {
		t.Errorf("/readyz: got %d %s, want 200", a.status, a.body)
	}
	if a := e.do("GET", "/openapi.yaml", ""); a.status != 200 || a.body != string(openapi.YAML) {
		t.Errorf("/openapi.yaml: got %d and %d bytes, want 200 and %d", a.status, len(a.body), len(openapi.YAML))
	}
	if a := e.do("GET", "/docs", "", "Authorization", ""); a.status != 200 || a.body != string(openapi.HTML) ||
		!strings.HasPrefix(a.header.Get("Content-Security-Policy"), "default-src 'none'") || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("/docs: got %d %v and %d bytes, want 200 and %d", a.status, a.header, len(a.body), len(openapi.HTML))
	}
	e.created(e.create("k", r0), false)
	const series = `http_server_request_duration_seconds_count{http_request_method="POST",http_response_status_code="201",http_route="/v1/orders"`
	if a := e.do("GET", "/metrics", ""); a.status != 200 || !strings.Contains(a.body, series) {
		t.Errorf("/metrics: got %d, want 200 with %s\n%s", a.status, series, grep(a.body, "http_server_request_duration_seconds_count"))
	}
	e.order.Health.Shutdown() // as an order service that drains
	a := e.raw("GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	var report struct {
		Ready  bool
		Checks []struct {
			Name string
			OK   bool
		}
	}
	if err := json.Unmarshal([]byte(a.body), &report); err != nil || a.status != 503 || report.Ready {
		t.Errorf("/readyz without an order service: got %d %s, want 503", a.status, a.body)
	}
	if a := e.do("GET", "/healthz", ""); a.status != 200 {
		t.Errorf("/healthz without an order service: got %d, want 200", a.status)
	}
}

func grep(text, part string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	e := start(t)
	cfg := config.Config{HTTPAddr: "127.0.0.1:0", GRPCAddr: l.Addr().String(), OrderAddr: "127.0.0.1:1", ServiceCredential: credential}
	if _, err := app.New(t.Context(), cfg, app.Network{}, e.tel, discard()); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("New: got %v, want an error that names %s", err, l.Addr())
	}
	cfg.ServiceCredential = ""
	if _, err := app.New(t.Context(), cfg, app.Network{}, e.tel, discard()); !errors.Is(err, grpcx.ErrNoCredential) {
		t.Errorf("New without a credential: got %v, want ErrNoCredential", err)
	}
}
