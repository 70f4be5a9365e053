package grpcx_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

func TestErrorsCrossTheWire(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, grpcx.ServerConfig{}, func(context.Context, *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
		return nil, fmt.Errorf("looking: %w", grpcx.Error(grpcx.KeyInProgress, "still running",
			grpcx.WithMetadata("orderId", "o-1"), grpcx.WithRetryAfter(1500*time.Millisecond),
			grpcx.WithViolations(grpcx.Violation{Path: "lines[0].sku", Detail: "is empty"}, grpcx.Violation{Path: "note", Detail: "is long"})))
	})
	err := get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr}))
	if got := status.Code(err); got != codes.Aborted {
		t.Errorf("code: got %v, want %v", got, codes.Aborted)
	}
	if got := grpcx.ReasonOf(err); got != grpcx.KeyInProgress {
		t.Errorf("reason: got %q, want %q", got, grpcx.KeyInProgress)
	}
	if got := grpcx.Metadata(err)["orderId"]; got != "o-1" {
		t.Errorf("metadata orderId: got %q, want o-1", got)
	}
	if got, ok := grpcx.RetryDelay(err); !ok || got != 1500*time.Millisecond {
		t.Errorf("retry delay: got %v, %v, want 1.5s", got, ok)
	}
	want := []grpcx.Violation{{Path: "lines[0].sku", Detail: "is empty"}, {Path: "note", Detail: "is long"}}
	if got := grpcx.Violations(err); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("violations: got %v, want %v", got, want)
	}
}

func TestUnplannedErrorsAreHidden(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		fail   func(context.Context) error
		code   codes.Code
		reason grpcx.Reason
		logged bool
	}{
		{"plain error", func(context.Context) error { return errors.New("dsn=hunter2") }, codes.Internal, grpcx.Internal, true},
		{"foreign status", func(context.Context) error { return status.Error(codes.DataLoss, "hunter2") }, codes.Internal, grpcx.Internal, true},
		{"panic", func(context.Context) error { panic("hunter2") }, codes.Internal, grpcx.Internal, true},
		{"own deadline", func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("hunter2: %w", ctx.Err()) },
			codes.DeadlineExceeded, grpcx.Deadline, false},
		{"a neighbour away", func(context.Context) error { return status.Error(codes.Unavailable, "hunter2") },
			codes.Unavailable, grpcx.Unavailable, false},
		{"not served", func(context.Context) error { return status.Error(codes.Unimplemented, "hunter2") },
			codes.Unimplemented, grpcx.NotImplemented, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var log syncBuffer
			c := grpcx.ServerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxDuration: 100 * time.Millisecond}
			_, addr := serve(t, c, func(ctx context.Context, _ *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
				return nil, tt.fail(ctx)
			})
			err := get(t.Context(), dial(t, grpcx.ClientConfig{Addr: addr}))
			if status.Code(err) != tt.code || grpcx.ReasonOf(err) != tt.reason {
				t.Errorf("got %v %q, want %v %q", status.Code(err), grpcx.ReasonOf(err), tt.code, tt.reason)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the caller was told %q", err)
			}
			if got := strings.Contains(log.String(), "hunter2"); got != tt.logged {
				t.Errorf("logged: got %v, want %v: %s", got, tt.logged, log.String())
			}
		})
	}
}

func TestReasonsAreDistinct(t *testing.T) {
	t.Parallel()
	titles := map[string]grpcx.Reason{}
	for _, r := range grpcx.Reasons() {
		m := r.Meaning()
		if other, taken := titles[m.Title]; taken {
			t.Errorf("%s and %s have the title %q", r, other, m.Title)
		}
		titles[m.Title] = r
		if m.Status < 400 || m.Code == codes.OK {
			t.Errorf("%s: got status %d and code %v, want an error", r, m.Status, m.Code)
		}
		if got := grpcx.ReasonOf(grpcx.Error(r, "x")); got != r {
			t.Errorf("ReasonOf(Error(%s)): got %q", r, got)
		}
		if (r == grpcx.Internal) != (m.Status == 500) {
			t.Errorf("%s: status %d, and only INTERNAL may have 500", r, m.Status)
		}
	}
	if got, want := grpcx.KeyNotPrintable.ProblemType(), "https://throughline.dev/problems/key-not-printable"; got != want {
		t.Errorf("ProblemType: got %q, want %q", got, want)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}
