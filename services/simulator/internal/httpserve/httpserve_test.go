package httpserve_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/throughline/throughline/services/simulator/internal/httpserve"
)

// echo is a server that serves one thing and notes its end.
type echo struct {
	served chan string // gets the address
	closed bool
}

func (e *echo) Serve(ctx context.Context, ln net.Listener) error {
	e.served <- ln.Addr().String()
	return httpserve.Serve(ctx, ln, http.NotFoundHandler(), func() {}, slog.New(slog.DiscardHandler))
}

func (e *echo) Close() error {
	e.closed = true
	return nil
}

func TestRunUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	e := &echo{served: make(chan string, 1)}
	done := make(chan error, 1)
	go func() {
		done <- httpserve.Run(ctx, "127.0.0.1:0", func() (httpserve.Server, error) { return e, nil })
	}()
	address := <-e.served
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil || !e.closed {
		t.Errorf("got %v, closed %t; want nil, true", err, e.closed)
	}
}

func TestTakenPortIsNamed(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	opened := false
	err = httpserve.Run(t.Context(), ln.Addr().String(), func() (httpserve.Server, error) {
		opened = true
		return nil, errors.New("opened")
	})
	if err == nil || !strings.Contains(err.Error(), ln.Addr().String()) || opened {
		t.Errorf("got %v, opened %t; want an error that names %s", err, opened, ln.Addr())
	}
}

func TestFailedOpenIsReturned(t *testing.T) {
	t.Parallel()
	want := errors.New("no ledger")
	err := httpserve.Run(t.Context(), "127.0.0.1:0", func() (httpserve.Server, error) { return nil, want })
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
