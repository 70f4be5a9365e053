package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DuplicateWindow is how long a stream remembers message ids. It only saves bandwidth: the inbox is what makes repeats
// harmless, so it need not cover any outage.
const DuplicateWindow = 30 * time.Second

// Stream is a JetStream stream of ours.
type Stream struct {
	Name     string
	Subjects []string
	// WorkQueue streams hold commands and replies until they are acknowledged. The others hold events by age.
	WorkQueue bool
	// MaxAge bounds how long a message stays. 0 means without limit, which only a work queue may have.
	MaxAge time.Duration
	// MaxBytes bounds the stream's size; -1 and 0 mean without limit. A full stream refuses new messages: the publisher
	// gets an error and its outbox row waits.
	MaxBytes int64
	Replicas int
}

// EnsureStreams waits for the broker, creates the streams that are missing and brings the others to the given settings. It
// may run on any number of instances at once. Call it again after each reconnect: a broker that comes back may have lost
// its streams.
func (c *Conn) EnsureStreams(ctx context.Context, streams ...Stream) error {
	session, err := c.awaitSession(ctx)
	if err != nil {
		return fmt.Errorf("ensuring streams: %w", err)
	}
	for _, s := range streams {
		if _, err := session.link.js.CreateOrUpdateStream(ctx, s.config()); err != nil {
			return fmt.Errorf("ensuring stream %s: %w", s.Name, err)
		}
	}
	return nil
}

func (s Stream) config() jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name:        s.Name,
		Subjects:    s.Subjects,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		MaxAge:      s.MaxAge,
		MaxBytes:    s.MaxBytes,
		Duplicates:  DuplicateWindow,
		Storage:     jetstream.FileStorage,
		Replicas:    max(s.Replicas, 1),
		AllowDirect: true, // reading single messages, for people and tests, need not go through the leader
	}
	if s.WorkQueue {
		cfg.Retention = jetstream.WorkQueuePolicy
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = -1
	}
	return cfg
}

// isMissing tells whether an error says that the stream or the consumer is not there (any more).
func isMissing(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrConsumerDoesNotExist) || errors.Is(err, jetstream.ErrStreamNotFound)
}
