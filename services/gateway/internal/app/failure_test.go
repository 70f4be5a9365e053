package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/internal/grpcx"
)

func TestErrorsOfTheOrderService(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		err   error
		want  grpcx.Reason
		retry string
	}{
		{"invalid", grpcx.Error(grpcx.RequestInvalid, "wrong", grpcx.WithViolations(grpcx.Violation{Path: "ship_to.country", Detail: "is no country"})), grpcx.RequestInvalid, ""},
		{"in progress", grpcx.Error(grpcx.KeyInProgress, "wait", grpcx.WithRetryAfter(1200*time.Millisecond)), grpcx.KeyInProgress, "2"},
		{"in progress, no delay", grpcx.Error(grpcx.KeyInProgress, "wait"), grpcx.KeyInProgress, "1"},
		{"too late", grpcx.Error(grpcx.CancelTooLate, "gone"), grpcx.CancelTooLate, ""},
		{"forbidden", grpcx.Error(grpcx.Forbidden, "no"), grpcx.Forbidden, ""},
		{"its database is away", grpcx.Error(grpcx.Unavailable, "away", grpcx.WithRetryAfter(3*time.Second)), grpcx.Unavailable, "3"},
		{"too slow", grpcx.Error(grpcx.Deadline, "slow"), grpcx.Deadline, ""},
		{"our own credential", grpcx.Error(grpcx.Unauthenticated, "hunter2"), grpcx.Internal, ""},
		{"without a reason", status.Error(codes.DataLoss, "hunter2"), grpcx.Internal, ""},
		{"not an error of gRPC", errors.New("hunter2"), grpcx.Internal, ""},
		{"a word of a newer release", grpcx.Error("NEW_WORD", "hunter2"), grpcx.Internal, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := start(t)
			e.answerWith(func(context.Context, string) error { return tt.err })
			a := e.create("k", r0)
			e.refused(a, tt.want)
			if got := a.header.Get("Retry-After"); got != tt.retry {
				t.Errorf("Retry-After: got %q, want %q", got, tt.retry)
			}
			if a.header.Get("Location") != "" || a.header.Get("Idempotency-Replayed") != "" || strings.Contains(a.body, "hunter2") {
				t.Errorf("got %v %s", a.header, a.body)
			}
			if n := len(e.seen()); n != 1 {
				t.Errorf("got %d calls, want 1: only silence is worth a repeat", n)
			}
			if tt.want == grpcx.RequestInvalid {
				e.refused(a, tt.want, "ship_to.country")
			}
			e.answerWith(nil)
			e.created(e.create("k", r0), false)
		})
	}
}

// An order service that is away for a moment is called again with the same key; one that stays away is the client's to
// wait for.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	e := start(t)
	left := 2
	e.answerWith(func(context.Context, string) error {
		if left--; left >= 0 {
			return status.Error(codes.Unavailable, "going away")
		}
		return nil
	})
	e.created(e.create("blink", r0), false)
	calls := e.seen()
	if len(calls) != 3 {
		t.Errorf("got %d calls, want 3", len(calls))
	}
	for _, c := range calls {
		if got := c.md.Get(grpcx.MetadataIdempotencyKey); len(got) != 1 || got[0] != "blink" {
			t.Errorf("key of a repeat: got %v, want blink", got)
		}
	}
	e.order.Stop()
	a := e.create("gone", r0)
	e.refused(a, grpcx.Unavailable)
	if got := a.header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After: got %q, want 1", got)
	}
}

func TestTooSlow(t *testing.T) {
	t.Parallel()
	e := start(t, func(c *config.Config) { c.CallTimeout = 200 * time.Millisecond })
	e.answerWith(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
	e.refused(e.create("slow", r0), grpcx.Deadline)
	if n := len(e.seen()); n != 1 {
		t.Errorf("got %d calls, want 1", n)
	}
}

// A caller that hangs up does not undo what it asked for, and gets it when it comes back.
func TestHangingUp(t *testing.T) {
	t.Parallel()
	e := start(t)
	entered, release, ended := make(chan struct{}), make(chan struct{}), make(chan string, 2)
	e.answerWith(func(ctx context.Context, method string) error {
		entered <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
		}
		ended <- fmt.Sprintf("%s: %v", method, ctx.Err())
		return nil
	})
	ctx, hangUp := context.WithCancel(t.Context())
	r := e.request("POST", "/v1/orders", strings.NewReader(r0), "Idempotency-Key", "hang").WithContext(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := e.http.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-entered
	hangUp()
	<-gone

	// The call of a reader does end with its reader: that shows that the gateway has noticed a hang-up by then.
	ctx, hangUp = context.WithCancel(t.Context())
	read := e.request("GET", "/v1/orders", http.NoBody).WithContext(ctx)
	gone = make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := e.http.Do(read); err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-entered
	hangUp()
	<-gone
	if got, want := <-ended, "ListOrders: context canceled"; got != want {
		t.Fatalf("the first call to end: got %q, want %q", got, want)
	}
	close(release)
	if got, want := <-ended, "CreateOrder: <nil>"; got != want {
		t.Errorf("the call of a caller that hung up: got %q, want %q", got, want)
	}
	e.answerWith(nil)
	e.created(e.create("hang", r0), true)
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	e := start(t)
	entered, release := make(chan struct{}), make(chan struct{})
	e.answerWith(func(context.Context, string) error { close(entered); <-release; return nil })
	answered := make(chan answer, 1)
	go func() { answered <- e.create("last", r0) }()
	<-entered
	e.stop()
	close(release)
	e.created(<-answered, false)
	if err := <-e.ended; err != nil {
		t.Errorf("the gateway's end: got %v, want none", err)
	}
	if resp, err := e.http.Do(e.request("GET", "/healthz", http.NoBody)); err == nil {
		_ = resp.Body.Close()
		t.Errorf("after the end: got %d, want no connection", resp.StatusCode)
	}
}
