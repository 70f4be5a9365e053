package grpcapi

import (
	"context"
	"time"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	// followInterval is what an entry may be told late: unnoticed by people, and one question a second for each who follows.
	followInterval = time.Second
	// busyRetry is when somebody may try again who found too many following.
	busyRetry = 5 * time.Second
)

// Follow gives the timeline of an order as it grows, from behind a position on: tell is called with each answer that has something new,
// and with one without entries whenever idle has passed. It ends with nil when the order has ended and all is told, or when this gateway
// stops, and with the error of a call or of tell. The first call tells errors before anything was given.
func (s *Server) Follow(ctx context.Context, orderID string, after int64, idle time.Duration, tell func(*orderv1.GetTimelineResponse) error) error {
	if !s.enterWait() {
		return grpcx.Error(grpcx.Unavailable, "too many calls follow orders now", grpcx.WithRetryAfter(busyRetry))
	}
	defer func() { <-s.waits }()
	said := time.Now()
	for first := true; ; first = false {
		resp, err := s.GetTimeline(ctx, &orderv1.GetTimelineRequest{OrderId: orderID, After: after})
		if err != nil {
			return err
		}
		ended := Ended(resp.GetStatus())
		if n := len(resp.GetEntries()); n > 0 || first || time.Since(said) >= idle {
			if n > 0 {
				after = resp.GetEntries()[n-1].GetPosition()
			}
			said = time.Now()
			if err := tell(resp); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		timer := time.NewTimer(followInterval)
		select {
		case <-timer.C:
		case <-s.stopping:
			timer.Stop()
			return nil // its caller goes on at another one
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// Ended tells whether nothing more happens to an order.
func Ended(s orderv1.OrderStatus) bool {
	switch s {
	case orderv1.OrderStatus_ORDER_STATUS_CONFIRMED, orderv1.OrderStatus_ORDER_STATUS_FAILED, orderv1.OrderStatus_ORDER_STATUS_CANCELLED:
		return true
	default:
		return false
	}
}
