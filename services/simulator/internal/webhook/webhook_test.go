package webhook_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/throughline/throughline/services/simulator/internal/webhook"
)

func sign(webhook.Event, string, time.Time) http.Header { return http.Header{} }

func TestOff(t *testing.T) {
	t.Parallel()
	s := webhook.NewSender("", "", sign, slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	if err := s.Send(webhook.Event{}, webhook.Options{}); !errors.Is(err, webhook.ErrOff) {
		t.Errorf("got %v, want %v", err, webhook.ErrOff)
	}
}

func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	s := webhook.NewSender("http://127.0.0.1:1", "", sign, slog.New(slog.DiscardHandler))
	later := webhook.Options{Delay: time.Hour, Times: webhook.MaxWaiting}
	if err := s.Send(webhook.Event{}, later); err != nil {
		t.Fatalf("up to the bound: %v", err)
	}
	if err := s.Send(webhook.Event{}, webhook.Options{}); !errors.Is(err, webhook.ErrFull) {
		t.Errorf("one more: got %v, want %v", err, webhook.ErrFull)
	}
	s.Close() // must not wait the hour
	if err := s.Send(webhook.Event{}, webhook.Options{}); !errors.Is(err, webhook.ErrFull) {
		t.Errorf("after Close: got %v, want %v", err, webhook.ErrFull)
	}
}

func TestCloseEndsADeliveryUnderWay(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	s := webhook.NewSender(server.URL, "", sign, slog.New(slog.DiscardHandler))
	if err := s.Send(webhook.Event{ID: "e"}, webhook.Options{}); err != nil {
		t.Fatal(err)
	}
	<-arrived
	s.Close() // a delivery that ignored it would wait for release, which comes after
	if e, ok := s.Last("", ""); !ok || e.ID != "e" {
		t.Errorf("last: got %+v, %t", e, ok)
	}
}
