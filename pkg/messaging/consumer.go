package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
)

// Defaults of [ConsumerConfig].
const (
	// DefaultBatch is the most messages that one call of a handler gets. Above a hundred the cost of the commit is
	// spread thin enough, and a failing batch is still quick to split.
	DefaultBatch = 100
	// DefaultAckWait is when the broker delivers a message again that was not acknowledged. It is far above the time of
	// a batch, which does nothing but one database transaction.
	DefaultAckWait = 30 * time.Second

	pullExpiry    = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	retryWait     = 250 * time.Millisecond
	retryWaitMax  = 5 * time.Second
)

// ConsumerConfig describes a durable pull consumer.
type ConsumerConfig struct {
	Stream string
	// Name is the durable name. All instances of a service share it, and with it the work.
	Name string
	// Filter lists the subjects; empty means all of the stream.
	Filter []string
	// AckWait must be longer than a batch takes. 0 means DefaultAckWait.
	AckWait time.Duration
	// Batch bounds how many messages one call of the handler gets. 0 means DefaultBatch.
	Batch int
}

// Delivery is one message as it arrived.
type Delivery struct {
	Message
	// Malformed says why the message could not be read; Message then holds what could be.
	Malformed error
	// Attempt is 1 at the first delivery.
	Attempt uint64
	// StreamSequence is the message's place in its stream.
	StreamSequence uint64
	// StoredAt is when the stream stored the message.
	StoredAt time.Time

	raw jetstream.Msg
}

// Ack tells the broker that the message is dealt with. A lost ack leads to another delivery, which the inbox absorbs;
// so an error here is of no interest to the caller and is only logged by the broker's client.
func (d *Delivery) Ack() error {
	if d.raw == nil {
		return nil
	}
	return d.raw.Ack()
}

// Nak asks for another delivery after a delay, which must grow from attempt to attempt.
func (d *Delivery) Nak(delay time.Duration) error {
	if d.raw == nil {
		return nil
	}
	return d.raw.NakWithDelay(delay)
}

// NewDelivery makes a delivery that did not come from the broker, such as the replay of a dead letter. Its Ack and Nak
// do nothing.
func NewDelivery(m Message, attempt uint64) Delivery {
	return Delivery{Message: m, Attempt: attempt, StoredAt: m.CreatedAt}
}

// Handler deals with a batch: at least one message, at most the configured number, in the order of their arrival. It
// acknowledges each message itself, after its own commit. A message that it leaves alone is delivered again after
// AckWait.
type Handler func(ctx context.Context, batch []Delivery)

// Consume calls handle with batches until stop ends, one call at a time. It never waits for a batch to fill. After stop
// it fetches nothing more, hands over what it has fetched, and returns when the last call has returned; handle gets the
// context work, which the caller ends only to cut the work in hand short.
//
// A consumer that is missing, or is deleted while running, is created again. A broker that is away is waited for. So
// the only error is a stop.
func (c *Conn) Consume(stop, work context.Context, cfg ConsumerConfig, handle Handler) error {
	if cfg.Batch <= 0 {
		cfg.Batch = DefaultBatch
	}
	if cfg.AckWait <= 0 {
		cfg.AckWait = DefaultAckWait
	}
	log := c.log.With("stream", cfg.Stream, "consumer", cfg.Name)
	wait := retryWait
	for stop.Err() == nil {
		began := time.Now()
		err := c.consumeOnce(stop, work, cfg, handle)
		if stop.Err() != nil {
			break
		}
		if time.Since(began) > retryWaitMax {
			wait = retryWait
		}
		log.Warn("consuming ended, starting again", "error", err, "in", wait)
		select {
		case <-time.After(wait):
		case <-stop.Done():
		}
		wait = min(2*wait, retryWaitMax)
	}
	return context.Cause(stop)
}

func (c *Conn) consumeOnce(stop, work context.Context, cfg ConsumerConfig, handle Handler) error {
	if err := c.WaitConnected(stop); err != nil {
		return err
	}
	consumer, err := c.js.CreateOrUpdateConsumer(stop, cfg.Stream, jetstream.ConsumerConfig{
		Durable:        cfg.Name,
		FilterSubjects: cfg.Filter,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        cfg.AckWait,
		MaxDeliver:     -1, // the handler decides when to give up, never the broker
		MaxAckPending:  -1,
		DeliverPolicy:  jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return fmt.Errorf("creating consumer %s: %w", cfg.Name, err)
	}
	return c.pump(stop, work, cfg, consumer, handle)
}

// pump moves messages from the subscription into batches. The channel between them holds one batch; the subscription
// blocks when it is full, and then stops pulling.
func (c *Conn) pump(stop, work context.Context, cfg ConsumerConfig, consumer jetstream.Consumer, handle Handler) error {
	arrived := make(chan jetstream.Msg, cfg.Batch)
	failed := make(chan error, 1)
	report := func(err error) {
		select {
		case failed <- err:
		default:
		}
	}
	sub, err := consumer.Consume(
		func(m jetstream.Msg) {
			select {
			case arrived <- m:
			case <-work.Done():
			}
		},
		jetstream.PullMaxMessages(cfg.Batch),
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			switch {
			case isMissing(err), errors.Is(err, jetstream.ErrConnectionClosed):
				report(err)
			case errors.Is(err, jetstream.ErrNoHeartbeat):
				// The server says nothing when the consumer is gone: silence is asked about.
				go func() {
					ctx, cancel := context.WithTimeout(work, pullHeartbeat)
					defer cancel()
					if _, err := consumer.Info(ctx); isMissing(err) {
						report(err)
					}
				}()
			}
		}))
	if err != nil {
		return fmt.Errorf("consuming %s: %w", cfg.Name, err)
	}
	batch := make([]Delivery, 0, cfg.Batch)
	flush := func(first jetstream.Msg) {
		batch = append(batch[:0], delivery(first))
		for len(batch) < cfg.Batch {
			select {
			case m := <-arrived:
				batch = append(batch, delivery(m))
				continue
			default:
			}
			break
		}
		handle(work, batch)
	}
	var cause error
	for cause == nil {
		select {
		case m := <-arrived:
			flush(m)
		case cause = <-failed:
		case <-stop.Done():
			cause = context.Cause(stop)
		}
	}
	// Drain hands over what is already here; the subscription closes when that is done.
	sub.Drain()
	closed := sub.Closed()
	for {
		select {
		case m := <-arrived:
			flush(m)
			continue
		case <-work.Done():
			sub.Stop()
			return cause
		case <-closed:
		}
		select {
		case m := <-arrived:
			flush(m)
		default:
			return cause
		}
	}
}

func delivery(m jetstream.Msg) Delivery {
	msg, err := Parse(m.Subject(), m.Headers(), m.Data())
	d := Delivery{Message: msg, Malformed: err, raw: m}
	if meta, err := m.Metadata(); err == nil {
		d.Attempt, d.StreamSequence, d.StoredAt = meta.NumDelivered, meta.Sequence.Stream, meta.Timestamp
	}
	return d
}

// Headers gives the message's headers as they arrived.
func (d *Delivery) Headers() map[string][]string {
	if d.raw == nil {
		return d.toNATS().Header
	}
	return d.raw.Headers()
}

// DeadLetterID identifies the delivery among dead letters: the message id or, where that could not be read, an id derived
// from the message's place in its stream.
func (d *Delivery) DeadLetterID() uuid.UUID {
	if d.ID != uuid.Nil {
		return d.ID
	}
	place := fmt.Sprintf("%s/%d/%d", d.Subject, d.StreamSequence, d.StoredAt.UnixNano())
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(place))
}
