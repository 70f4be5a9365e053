package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// AckFloor tells since when a consumer has left nothing unacknowledged: the time at which its stream stored the oldest message
// that the consumer was to get and has not acknowledged, or now, by the broker, if there is none. It is an error if the stream
// or the consumer is not there, and wraps [ErrUnavailable] if the broker is not.
func (c *Conn) AckFloor(ctx context.Context, stream, consumer string) (time.Time, error) {
	s := c.Session()
	if !s.Connected {
		return time.Time{}, fmt.Errorf("%w: not connected", ErrUnavailable)
	}
	handle, err := s.link.js.Consumer(ctx, stream, consumer)
	if err != nil {
		return time.Time{}, fmt.Errorf("asking for consumer %s: %w", consumer, err)
	}
	info := handle.CachedInfo()
	if info.NumPending == 0 && info.NumAckPending == 0 {
		return info.TimeStamp, nil
	}
	messages, err := s.link.js.Stream(ctx, stream)
	if err != nil {
		return time.Time{}, fmt.Errorf("asking for stream %s: %w", stream, err)
	}
	floor := info.TimeStamp
	filters := info.Config.FilterSubjects
	if info.Config.FilterSubject != "" {
		filters = []string{info.Config.FilterSubject}
	}
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, subject := range filters {
		m, err := messages.GetMsg(ctx, info.AckFloor.Stream+1, jetstream.WithGetMsgSubject(subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // acknowledged or dropped since
		case err != nil:
			return time.Time{}, fmt.Errorf("asking stream %s for its oldest message of %s: %w", stream, subject, err)
		case m.Time.Before(floor):
			floor = m.Time
		}
	}
	return floor, nil
}
