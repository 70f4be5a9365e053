package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/jsonpb"
)

const (
	// keepAlive is how often something is sent where nothing happens: below the time after which proxies take a connection for dead.
	keepAlive = 15 * time.Second
	// maxStream bounds one answer, so that a caller that is gone without a word does not hold a place for ever. Callers come again by
	// themselves, with the last id that they have seen.
	maxStream = 10 * time.Minute
)

// eventsRoute is not in http.yaml: grpc-gateway has no server-sent events. It is in the OpenAPI document all the same.
func eventsRoute() route {
	return route{method: http.MethodGet, pattern: "/v1/orders/{order_id}/events", rpc: orderv1.OrderService_GetTimeline_FullMethodName}
}

// events serves the timeline of an order as server-sent events (the WHATWG's HTML standard, section 9.2), until the order has ended. The id
// of an event is its position: who comes again with it in Last-Event-ID goes on behind it. When there is nothing more to tell the answer
// is 204, which makes browsers stop asking.
func (h *Handler) events(w *statusWriter, r *http.Request, order string) {
	ctx, err := h.api.Admit(r.Context(), eventsRoute().rpc, grpcapi.Headers{
		Authorization: r.Header.Values("Authorization"), IdempotencyKey: r.Header.Values("Idempotency-Key"),
	})
	if err == nil {
		err = checkQuery(r.URL.RawQuery, nil)
	}
	var after int64
	if err == nil {
		after, err = lastEvent(r.Header.Values("Last-Event-ID"))
	}
	if err != nil {
		writeError(w, r, h.logger, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxStream)
	defer cancel()
	s := stream{w: w, control: http.NewResponseController(w), head: r.Method == http.MethodHead}
	err = h.api.Follow(ctx, order, after, keepAlive, s.tell)
	if err != nil && !w.wrote && !errors.Is(err, errEnough) {
		writeError(w, r, h.logger, err)
	}
	// A stream that has begun ends without a word: its caller comes again, and is then told what is wrong.
}

// lastEvent reads the position behind which a caller goes on.
func lastEvent(values []string) (int64, error) {
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || n < 0 || len(values) > 1 {
		return 0, grpcx.Error(grpcx.RequestInvalid, "the request is invalid",
			grpcx.WithViolations(grpcx.Violation{Path: "Last-Event-ID", Detail: "is not the id of one of our events"}))
	}
	return n, nil
}

// errEnough ends a stream that needs no body.
var errEnough = errors.New("nothing more is to be sent")

type stream struct {
	w       *statusWriter
	control *http.ResponseController
	head    bool
}

func (s *stream) tell(resp *orderv1.GetTimelineResponse) error {
	if !s.w.wrote {
		h := s.w.Header()
		h.Set("Cache-Control", "no-store")
		if len(resp.GetEntries()) == 0 && grpcapi.Ended(resp.GetStatus()) {
			s.w.WriteHeader(http.StatusNoContent)
			return errEnough
		}
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no") // what proxies that collect answers look at
		s.w.WriteHeader(http.StatusOK)
		if s.head {
			return errEnough
		}
	}
	// The server's own limit is for whole answers.
	if err := s.control.SetWriteDeadline(time.Now().Add(writeMargin)); err != nil {
		return fmt.Errorf("bounding a write: %w", err)
	}
	if len(resp.GetEntries()) == 0 {
		if _, err := s.w.Write([]byte(": nothing new\n\n")); err != nil {
			return err
		}
	}
	for _, e := range resp.GetEntries() {
		data, err := jsonpb.Marshal(e)
		if err != nil {
			return fmt.Errorf("rendering an event: %w", err)
		}
		if _, err := fmt.Fprintf(s.w, "id: %d\nevent: %s\ndata: %s\n\n", e.GetPosition(), e.GetEvent(), data); err != nil {
			return err
		}
	}
	return s.control.Flush()
}
