package grpcapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/throughline/throughline/services/internal/grpcx"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	away := status.Error(codes.Unavailable, "away")
	told := grpcx.Error(grpcx.Unavailable, "away", grpcx.WithRetryAfter(time.Second))
	slow := status.Error(codes.DeadlineExceeded, "slow")
	tests := []struct {
		name    string
		answers []error // the last one repeats
		want    error
		calls   int
	}{
		{"at once", []error{nil}, nil, 1},
		{"after two", []error{away, away, nil}, nil, 3},
		{"never", []error{away}, away, maxAttempts},
		{"told when to come back", []error{told}, told, 1},
		{"a deadline may have done it", []error{slow}, slow, 1},
		{"another failure behind", []error{away, slow}, slow, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			var pauses []time.Duration
			_, err := retry(t.Context(), func(_ context.Context, d time.Duration) error {
				pauses = append(pauses, d)
				return nil
			}, func() (int, error) {
				calls++
				return calls, tt.answers[min(calls, len(tt.answers))-1]
			})
			if !errors.Is(err, tt.want) || calls != tt.calls {
				t.Errorf("got %v after %d calls, want %v after %d", err, calls, tt.want, tt.calls)
			}
			if len(pauses) != calls-1 {
				t.Errorf("got %d pauses, want one before each repeat: %d", len(pauses), calls-1)
			}
			for i, at := 0, firstPause; i < len(pauses); i, at = i+1, time.Duration(float64(at)*pauseFactor) {
				if pauses[i] < at/2 || pauses[i] > at {
					t.Errorf("pause %d: got %v, want %v to %v", i, pauses[i], at/2, at)
				}
			}
		})
	}
}

func TestRetryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	away := status.Error(codes.Unavailable, "away")
	calls := 0
	_, err := retry(ctx, pause, func() (int, error) { calls++; cancel(); return 0, away })
	if !errors.Is(err, away) || calls != 1 {
		t.Errorf("got %v after %d calls, want the last answer after 1", err, calls)
	}
}

// A way in that does not ask who calls gets nothing.
func TestMethodsNeedAdmission(t *testing.T) {
	t.Parallel()
	s := New(Config{Clients: &KeyList{}})
	for name, call := range map[string]func() error{
		"CreateOrder":       func() error { _, err := s.CreateOrder(t.Context(), nil); return err },
		"GetOrder":          func() error { _, err := s.GetOrder(t.Context(), nil); return err },
		"ListOrders":        func() error { _, err := s.ListOrders(t.Context(), nil); return err },
		"CancelOrder":       func() error { _, err := s.CancelOrder(t.Context(), nil); return err },
		"GetTimeline":       func() error { _, err := s.GetTimeline(t.Context(), nil); return err },
		"GetIdempotencyKey": func() error { _, err := s.GetIdempotencyKey(t.Context(), nil); return err },
	} {
		if err := call(); grpcx.ReasonOf(err) != grpcx.Internal {
			t.Errorf("%s without admission: got %v, want INTERNAL", name, err)
		}
	}
	if _, err := s.Admit(t.Context(), "/throughline.order.v1.OrderService/New", Headers{}); grpcx.ReasonOf(err) != grpcx.NotImplemented {
		t.Errorf("Admit of a method without a rule: got %v, want NOT_IMPLEMENTED", err)
	}
}
