package messaging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// auditGap is how many messages of others may lie between two places for them to be read in one go.
	auditGap = 2000
	// auditFetch is how many headers are asked for at once.
	auditFetch = 500
)

// Takes tells whether the consumer's filter lets messages of a subject through.
func (c *ConsumerConfig) Takes(subject string) bool {
	return len(c.Filter) == 0 || slices.ContainsFunc(c.Filter, func(f string) bool { return matches(f, subject) })
}

// matches tells whether a filter with the wildcards "*" and ">" lets a subject through.
func matches(filter, subject string) bool {
	for {
		f, moreFilter, deeperFilter := strings.Cut(filter, ".")
		s, moreSubject, deeperSubject := strings.Cut(subject, ".")
		switch {
		case f == ">":
			return true
		case f != "*" && f != s, deeperFilter != deeperSubject:
			return false
		case !deeperFilter:
			return true
		}
		filter, subject = moreFilter, moreSubject
	}
}

// Progress is how far a consumer is.
type Progress struct {
	// Floor is the sequence up to which it has acknowledged all that it takes.
	Floor uint64
	// Last is the sequence of the last message of its stream.
	Last uint64
}

// ProgressOf tells how far a consumer is. Floor is of an earlier moment than Last. It is an error if the stream or the consumer is not there,
// and wraps [ErrUnavailable] if the broker is not.
func (c *Conn) ProgressOf(ctx context.Context, stream, consumer string) (Progress, error) {
	s := c.Session()
	if !s.Connected {
		return Progress{}, fmt.Errorf("%w: not connected", ErrUnavailable)
	}
	handle, err := s.link.js.Consumer(ctx, stream, consumer)
	if err != nil {
		return Progress{}, fmt.Errorf("asking for consumer %s: %w", consumer, err)
	}
	messages, err := s.link.js.Stream(ctx, stream)
	if err != nil {
		return Progress{}, fmt.Errorf("asking for stream %s: %w", stream, err)
	}
	return Progress{Floor: handle.CachedInfo().AckFloor.Stream, Last: messages.CachedInfo().State.LastSeq}, nil
}

// Place is where a stream has a message.
type Place struct {
	ID       uuid.UUID
	Sequence uint64
}

// MissingAt gives those of the places at which a stream does not have the message, with what is there instead. Places before the
// stream's first message are not looked at: what was there is too old. filter is a subject that all messages have in common. It reads
// headers only, and those of a stretch in one go. The stream must keep what was acknowledged.
func (c *Conn) MissingAt(ctx context.Context, stream, filter string, places []Place) (map[Place]string, error) {
	s := c.Session()
	if !s.Connected {
		return nil, fmt.Errorf("%w: not connected", ErrUnavailable)
	}
	handle, err := s.link.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("asking for stream %s: %w", stream, err)
	}
	state := handle.CachedInfo().State
	missing := make(map[Place]string)
	sorted := make([]Place, 0, len(places))
	for _, p := range places {
		switch {
		case p.Sequence < state.FirstSeq:
		case p.Sequence > state.LastSeq:
			missing[p] = fmt.Sprintf("the stream ends at %d", state.LastSeq)
		default:
			sorted = append(sorted, p)
		}
	}
	slices.SortFunc(sorted, func(a, b Place) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].Sequence-sorted[n-1].Sequence <= auditGap {
			n++
		}
		if err := compare(ctx, handle, filter, sorted[:n], missing); err != nil {
			return nil, fmt.Errorf("reading stream %s: %w", stream, err)
		}
		sorted = sorted[n:]
	}
	if len(missing) == 0 {
		return nil, nil
	}
	// What has become too old since is not missing.
	info, err := handle.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for stream %s: %w", stream, err)
	}
	for p := range missing {
		if p.Sequence < info.State.FirstSeq {
			delete(missing, p)
		}
	}
	return missing, nil
}

// compare reads a stretch of a stream and notes which places do not hold their message.
func compare(ctx context.Context, stream jetstream.Stream, filter string, places []Place, missing map[Place]string) error {
	last := places[len(places)-1].Sequence
	found := make(map[uint64]string, len(places))
	if len(places) > 1 {
		if err := readHeaders(ctx, stream, filter, places[0].Sequence, last, found); err != nil {
			return err
		}
	}
	// What was not seen may only not have been delivered in time: that it is not there is for the stream itself to say.
	for _, p := range places {
		if _, seen := found[p.Sequence]; seen {
			continue
		}
		m, err := stream.GetMsg(ctx, p.Sequence)
		switch {
		case err == nil:
			found[p.Sequence] = m.Header.Get(jetstream.MsgIDHeader)
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return err
		}
	}
	for _, p := range places {
		id, ok := found[p.Sequence]
		switch {
		case !ok:
			missing[p] = "there is no such message there"
		case id != p.ID.String():
			missing[p] = fmt.Sprintf("message %q is there", id)
		}
	}
	return nil
}

// readHeaders notes the ids of the messages from first to last.
func readHeaders(ctx context.Context, stream jetstream.Stream, filter string, first, last uint64, found map[uint64]string) error {
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
		FilterSubject: filter, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: pullExpiry,
	})
	if err != nil {
		return err
	}
	defer func() {
		// Also when ctx has ended; if it fails, the broker drops it by itself.
		_ = stream.DeleteConsumer(context.WithoutCancel(ctx), consumer.CachedInfo().Name)
	}()
	for at := first; at <= last; {
		batch, err := consumer.FetchNoWait(auditFetch)
		if err != nil {
			return err
		}
		n := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			n++
			at = meta.Sequence.Stream + 1
			found[meta.Sequence.Stream] = m.Headers().Get(jetstream.MsgIDHeader)
		}
		if err := batch.Error(); err != nil {
			return err
		}
		if n == 0 {
			return ctx.Err() // the rest of the stream is others'
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
