package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/internal/topology"
)

const (
	// history is how far before the end of the stream a Feed begins: some hundred orders of all services' events.
	history = 3000
	// A stream that is missing, or a broker that refuses, is tried again after feedRetry, and then more rarely.
	feedRetry    = 500 * time.Millisecond
	feedRetryMax = 5 * time.Second
	// quiet is after which silence a Feed looks whether its stream is still the one that it reads.
	quiet = 3 * time.Second
)

var (
	errNoEvents = errors.New("waiting for the broker")
	errReplaced = errors.New("the stream was made again")
)

// Feed reads the order service's events, from a little before the end, and puts them on a Board. It leaves nothing behind at the broker.
type Feed struct {
	Conn   *messaging.Conn
	Board  *Board
	Logger *slog.Logger

	next uint64 // the place in the stream behind the last event that was noted; 0 before the first
}

// Run reads until stop ends. A broker that is away is waited for.
func (f *Feed) Run(stop context.Context) error {
	wait := feedRetry
	for stop.Err() == nil {
		began := time.Now()
		err := f.read(stop)
		if stop.Err() != nil {
			return nil //nolint:nilerr // it ended because it was told to
		}
		f.Board.setAway(err)
		if time.Since(began) > feedRetryMax {
			wait = feedRetry
		}
		f.Logger.WarnContext(stop, "reading events ended, starting again", telemetry.LogError, err, "in", wait)
		select {
		case <-time.After(wait):
		case <-stop.Done():
		}
		wait = min(2*wait, feedRetryMax)
	}
	return nil
}

// read reads in one connection. It always returns an error.
func (f *Feed) read(stop context.Context) error {
	if err := f.Conn.WaitConnected(stop); err != nil {
		return err
	}
	js := f.Conn.JetStream()
	stream, err := js.Stream(stop, topology.Events)
	if err != nil {
		return fmt.Errorf("looking for stream %s: %w", topology.Events, err)
	}
	last, created := stream.CachedInfo().State.LastSeq, stream.CachedInfo().Created
	if f.next == 0 || f.next > last+1 { // the beginning, or a stream that was made again
		f.Board.forget()
		f.next = max(last, history) - history + 1
	}
	// Headers and subject say all that is counted.
	consumer, err := js.OrderedConsumer(stop, topology.Events, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{messaging.EventPrefix + topology.Order + ".>"}, HeadersOnly: true,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.next,
	})
	if err != nil {
		return fmt.Errorf("reading stream %s: %w", topology.Events, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("reading stream %s: %w", topology.Events, err)
	}
	defer messages.Stop()
	f.Board.setAway(nil)
	for {
		m, err := next(stop, messages)
		if errors.Is(err, context.DeadlineExceeded) {
			// A stream that somebody deleted and a service made again counts from the beginning, and would be waited for in vain.
			now, err := stream.Info(stop)
			if err != nil {
				return fmt.Errorf("looking at stream %s: %w", topology.Events, err)
			}
			if !now.Created.Equal(created) {
				f.next = 0
				return fmt.Errorf("reading stream %s: %w", topology.Events, errReplaced)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("reading stream %s: %w", topology.Events, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("reading an event: %w", err)
		}
		f.Board.Note(factOf(m.Subject()), orderOf(m.Headers()), meta.Timestamp)
		f.next = meta.Sequence.Stream + 1
	}
}

// next waits for the next event; context.DeadlineExceeded says that there was none for a while.
func next(stop context.Context, messages jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(stop, quiet)
	defer cancel()
	return messages.Next(jetstream.NextContext(ctx))
}
