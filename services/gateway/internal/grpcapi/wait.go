package grpcapi

import (
	"context"
	"time"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
)

const (
	// MaxWait is how long GetOrder waits for an order's end at most; who asks for more gets this much. The order service has the same
	// limit.
	MaxWait = 20 * time.Second
	// maxWaits bounds the calls that wait at one time. Each holds one of the 1000 streams of a connection to the order service, and those
	// that place orders must find room beside them.
	maxWaits = 500
)

// GetOrder answers with the order as it is now, or as it is at its end if the caller waits for that.
func (s *Server) GetOrder(ctx context.Context, req *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
	c, err := callerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if ctx, err = withOrder(ctx, req.GetOrderId()); err != nil {
		return nil, err
	}
	wait := min(MaxWait, time.Duration(req.GetWaitSeconds())*time.Second)
	if wait <= 0 || !s.enterWait() {
		return forward(ctx, s, c, "GetOrder", withoutWait(req), s.orders.GetOrder)
	}
	defer func() { <-s.waits }()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
			cancel()
		case <-waiting.Done():
		}
	}()
	resp, err := forwardWithin(waiting, s, s.timeout+wait, c, "GetOrder", req, s.orders.GetOrder)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		// This gateway stops. Its caller gets the order as it is, and may wait on at another one.
		return forward(ctx, s, c, "GetOrder", withoutWait(req), s.orders.GetOrder)
	}
	if a := AnswerFrom(ctx); a != nil {
		a.Waited = wait
	}
	return resp, err
}

// withoutWait keeps a negative wait, which the order service refuses.
func withoutWait(req *orderv1.GetOrderRequest) *orderv1.GetOrderRequest {
	return &orderv1.GetOrderRequest{OrderId: req.GetOrderId(), WaitSeconds: min(0, req.GetWaitSeconds())}
}

func (s *Server) enterWait() bool {
	select {
	case <-s.stopping:
		return false
	default:
	}
	select {
	case s.waits <- struct{}{}:
		return true
	default:
		return false
	}
}

// StopWaiting answers all calls that wait for an order's end, now and from now on, with the order as it is. It may be called again.
func (s *Server) StopWaiting() { s.stopOnce.Do(func() { close(s.stopping) }) }
