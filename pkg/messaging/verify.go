package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Held is what a stream has acknowledged in a session.
type Held struct {
	Stream string
	// Sequence is the highest number that the stream gave.
	Sequence uint64
	// Since is when the first of it was sent, by the clock of this process.
	Since time.Time
}

// Verify is [Session.Probe] and, in a cluster, asks the leader of each stream, which may be another server than the one that the
// session is connected to: has it led the stream since before the first of what is held was sent, and is its last message not
// before what it acknowledged? Otherwise the stream may have been cut off or made again, and nothing that it acknowledged in
// this session can be counted on. The error then wraps [ErrForgotten]; it wraps [ErrUnavailable] when nobody answers.
//
// A server keeps no leader for a stream with one replica, so of such a stream in a cluster only its last message tells.
func (s Session) Verify(ctx context.Context, held []Held) error {
	if err := s.Probe(ctx); err != nil {
		return err
	}
	if s.link.nc.ConnectedClusterName() == "" {
		return nil // the server that has answered is the one that has the streams
	}
	ctx, cancel := context.WithTimeout(ctx, s.conn.cfg.PublishTimeout)
	defer cancel()
	for _, h := range held {
		stream, err := s.link.js.Stream(ctx, h.Stream)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("%w: stream %s is not there", ErrForgotten, h.Stream)
		case err != nil:
			return fmt.Errorf("%w: asking the leader of stream %s: %w", ErrUnavailable, h.Stream, err)
		}
		if err := h.keptBy(stream.CachedInfo()); err != nil {
			return err
		}
	}
	return nil
}

// keptBy compares with what the leader has just said. How long it has led is by its own clock alone, so clocks that differ do not
// matter; and since the answer took its time, a leader that was elected just before the first message may be doubted.
func (h Held) keptBy(info *jetstream.StreamInfo) error {
	if last := info.State.LastSeq; last < h.Sequence {
		return fmt.Errorf("%w: stream %s ends at %d, and had acknowledged %d", ErrForgotten, h.Stream, last, h.Sequence)
	}
	c := info.Cluster
	if c == nil || c.LeaderSince == nil {
		return nil
	}
	if led, ago := info.TimeStamp.Sub(*c.LeaderSince), time.Since(h.Since); led < ago {
		return fmt.Errorf("%w: stream %s is led by %s for %s, and had its messages %s ago", ErrForgotten, h.Stream, c.Leader, led, ago)
	}
	return nil
}
