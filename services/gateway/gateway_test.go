package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/throughline/throughline/services/gateway"
	"github.com/throughline/throughline/services/internal/service"
)

func TestRunWith(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		cfg := gateway.Config{HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", OrderAddr: "127.0.0.1:1", ServiceCredential: "x"}
		ended <- gateway.RunWith(ctx, cfg, gateway.Options{
			Logger: slog.New(slog.DiscardHandler), Ready: func(at service.Addresses) { ready <- at.HTTP },
		})
	}()
	var addr string
	select {
	case addr = <-ready:
	case err := <-ended:
		t.Fatalf("RunWith ended: %v", err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/healthz", http.NoBody)
	if err != nil {
		t.Fatalf("making a request: %v", err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("GET /healthz: %v", err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("GET /healthz: got %d, want 200", resp.StatusCode)
	}
	// Its order service is not there.
	err = gateway.Run(t.Context(), []string{"gateway", "healthcheck"}, []string{"THROUGHLINE_HTTP_ADDR=" + addr})
	if !errors.Is(err, service.ErrNotReady) {
		t.Errorf("healthcheck: got %v, want ErrNotReady", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("RunWith: got %v, want none", err)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	if err := gateway.Run(t.Context(), []string{"gateway", "serve"}, nil); !errors.Is(err, service.ErrArguments) {
		t.Errorf("Run with an argument: got %v, want ErrArguments", err)
	}
	if err := gateway.Run(t.Context(), []string{"gateway"}, []string{"THROUGHLINE_HTTP_ADRR=x"}); err == nil {
		t.Error("Run with a misspelt setting: got no error")
	}
	cfg := gateway.Config{APIKeys: "storefront=tl_dev_storefront", ServiceCredential: "x"}
	if err := gateway.RunWith(t.Context(), cfg, gateway.Options{}); err == nil {
		t.Error("RunWith a development key: got no error")
	}
}
