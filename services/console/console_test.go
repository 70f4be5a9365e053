package console_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/services/console"
	"github.com/throughline/throughline/services/internal/service"
)

const (
	credential = "a-credential-of-the-test"
	patience   = time.Minute
)

// start runs a console whose services and broker nobody runs, and gives its address and what ends it.
func start(t *testing.T, cfg console.Config) (addr string, stop func() error) {
	t.Helper()
	cfg.HTTPAddr, cfg.ConsoleCredential, cfg.OperatorCredential = "127.0.0.1:0", credential, "another"
	cfg.OrderAddr, cfg.PaymentAddr, cfg.ShippingAddr, cfg.NATSURL = "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "nats://127.0.0.1:1"
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ready, ended := make(chan service.Addresses, 1), make(chan error, 1)
	go func() {
		ended <- console.RunWith(ctx, cfg, console.Options{
			Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
			Ready:  func(a service.Addresses) { ready <- a },
		})
	}()
	select {
	case a := <-ready:
		return a.HTTP, func() error {
			cancel()
			return <-ended
		}
	case err := <-ended:
		t.Fatalf("console ended: %v", err)
	case <-time.After(patience):
		t.Fatal("console did not become ready")
	}
	return "", nil
}

// get gives an answer; its body is read to the end only where that comes by itself.
func get(t *testing.T, url string, credentials bool) (status int, body io.ReadCloser) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if credentials {
		req.SetBasicAuth("kim", credential)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.StatusCode, resp.Body
}

// The console is ready when all that it asks is away, since that is what somebody comes to see; and it stops at once, though somebody follows.
func TestRun(t *testing.T) {
	t.Parallel()
	addr, stop := start(t, console.Config{Grace: patience})
	if err := service.Healthcheck(t.Context(), addr); err != nil {
		t.Errorf("healthcheck: got %v, want it ready", err)
	}
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/": 303, "/login": 200} {
		if got, _ := get(t, "http://"+addr+path, false); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
	_, body := get(t, "http://"+addr+"/", true)
	page, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(page), "waiting for the broker") {
		t.Errorf("first page: got %s, %v, want it to say that no events come", page, err)
	}
	status, stream := get(t, "http://"+addr+"/live", true)
	if status != http.StatusOK {
		t.Fatalf("stream: got %d, want 200", status)
	}
	began := time.Now()
	if err := stop(); err != nil || time.Since(began) > patience/2 {
		t.Errorf("stopping: got %v after %s, want no error, long before the grace is over", err, time.Since(began))
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		t.Errorf("stream of a console that stops: got %v, want its ordinary end", err)
	}
}

// Over https the cookie is for this host and https alone.
func TestSecureCookie(t *testing.T) {
	t.Parallel()
	addr, stop := start(t, console.Config{PublicURL: "https://console.example"})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/login", strings.NewReader("name=kim&credential="+credential))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", "https://console.example") // what stands in front names another host to the console
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cookie := resp.Header.Get("Set-Cookie")
	if resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(cookie, "__Host-") || !strings.Contains(cookie, "; Secure") || resp.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("login: got %d with cookie %q and HSTS %q, want them for https", resp.StatusCode, cookie, resp.Header.Get("Strict-Transport-Security"))
	}
	if err := stop(); err != nil {
		t.Errorf("stopping: got %v, want no error", err)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	err := console.Run(t.Context(), []string{"console"}, []string{"THROUGHLINE_CONSOLE_CREDENTIAL=short"})
	if err == nil || !strings.Contains(err.Error(), "THROUGHLINE_CONSOLE_CREDENTIAL") {
		t.Errorf("a short credential: got %v, want it named", err)
	}
	if err := console.Run(t.Context(), []string{"console", "serve"}, nil); !errors.Is(err, service.ErrArguments) {
		t.Errorf("an argument that there is not: got %v, want %v", err, service.ErrArguments)
	}
}
