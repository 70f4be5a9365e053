package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"
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
	// Enter, if not nil, is called when a message has arrived, before the batch that begins with it is put together, and leave when
	// the handler has returned. What arrives in between is in the batch. See postgres.Gate.
	Enter func(ctx context.Context) (leave func())
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

	// Duplicate is set by who deals with the delivery and finds that its message was dealt with before; see [Delivery.Repeat].
	Duplicate bool

	raw      jetstream.Msg
	consumer string
	arrived  time.Time         // in this process
	received trace.SpanContext // of the receipt, once there is one
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
// AckWait. The slice is used again after the call has returned.
type Handler func(ctx context.Context, batch []Delivery)

// Consume calls handle with batches until stop ends, one call at a time. It never waits for a batch to fill. After stop
// it fetches nothing more, hands over what it has fetched, and returns when the last call has returned; handle gets the
// context work, which the caller ends only to cut the work in hand short.
//
// A consumer that is missing, or is deleted while running, is created again; so it is after each reconnect. A stream
// that is missing and a broker that is away are waited for. The error is always the cause of stop.
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
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			c.noteMissing()
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

// consumeOnce consumes in one session. It always returns an error.
func (c *Conn) consumeOnce(stop, work context.Context, cfg ConsumerConfig, handle Handler) error {
	session, err := c.awaitSession(stop)
	if err != nil {
		return err
	}
	consumer, err := session.link.js.CreateOrUpdateConsumer(stop, cfg.Stream, jetstream.ConsumerConfig{
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
	defer c.lag.add(cfg.Name, consumer)()
	p := &pump{
		cfg: cfg, consumer: consumer, link: session.link, handle: handle,
		arrived: make(chan arrival, cfg.Batch), failed: make(chan error, 1), over: make(chan struct{}),
		batch: make([]Delivery, 0, cfg.Batch),
	}
	return p.run(stop, work)
}

// pump moves messages from a subscription into batches. The channel between them holds one batch; the subscription blocks
// when it is full, and then stops pulling.
type pump struct {
	cfg      ConsumerConfig
	consumer jetstream.Consumer
	link     *link
	handle   Handler
	arrived  chan arrival  // written by the subscription, read by run
	failed   chan error    // written by the subscription: there is nothing to consume any more
	over     chan struct{} // closed when run has returned, so that the subscription does not wait for it
	batch    []Delivery
}

// arrival is a message and when it came.
type arrival struct {
	jetstream.Msg
	at time.Time
}

func (p *pump) run(stop, work context.Context) error {
	defer close(p.over)
	sub, err := p.consumer.Consume(
		func(m jetstream.Msg) {
			select {
			case p.arrived <- arrival{m, time.Now()}:
			case <-p.over:
			}
		},
		jetstream.PullMaxMessages(p.cfg.Batch),
		jetstream.PullExpiry(pullExpiry),
		jetstream.PullHeartbeat(pullHeartbeat),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { p.observe(work, err) }))
	if err != nil {
		return fmt.Errorf("consuming %s: %w", p.cfg.Name, err)
	}
	defer sub.Stop()
	for {
		select {
		case m := <-p.arrived:
			p.flush(work, m)
		case err := <-p.failed:
			p.rest(work, sub)
			return err
		case <-p.link.closed:
			// What has arrived cannot be acknowledged any more, and will be delivered again.
			return fmt.Errorf("%w: the connection has ended", ErrUnavailable)
		case <-stop.Done():
			p.rest(work, sub)
			return context.Cause(stop)
		}
	}
}

// observe looks at what the subscription reports. All but the end of the consumer passes by itself.
func (p *pump) observe(ctx context.Context, err error) {
	switch {
	case isMissing(err), errors.Is(err, jetstream.ErrBadRequest):
		p.fail(err)
	case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, nats.ErrNoResponders):
		// The server need not say that the consumer, or its stream, is gone: silence is asked about.
		go func() {
			ctx, cancel := context.WithTimeout(ctx, pullHeartbeat)
			defer cancel()
			if _, err := p.consumer.Info(ctx); isMissing(err) {
				p.fail(err)
			}
		}()
	}
}

func (p *pump) fail(err error) {
	select {
	case p.failed <- err:
	default:
	}
}

// flush hands over a batch that begins with first: what is here, without waiting for more.
func (p *pump) flush(work context.Context, first arrival) {
	if p.cfg.Enter != nil {
		defer p.cfg.Enter(work)()
	}
	p.batch = append(p.batch[:0], p.delivery(first))
	for len(p.batch) < p.cfg.Batch {
		select {
		case m := <-p.arrived:
			p.batch = append(p.batch, p.delivery(m))
			continue
		default:
		}
		break
	}
	p.handle(work, p.batch)
}

// rest hands over what has been fetched already, and fetches nothing more.
func (p *pump) rest(work context.Context, sub jetstream.ConsumeContext) {
	sub.Drain()
	drained := sub.Closed()
	for {
		select {
		case m := <-p.arrived:
			p.flush(work, m)
			continue
		case <-p.link.closed:
			return
		case <-work.Done():
			return
		case <-drained:
		}
		select {
		case m := <-p.arrived:
			p.flush(work, m)
		default:
			return
		}
	}
}

func (p *pump) delivery(m arrival) Delivery {
	msg, err := Parse(m.Subject(), m.Headers(), m.Data())
	d := Delivery{Message: msg, Malformed: err, raw: m.Msg, consumer: p.cfg.Name, arrived: m.at}
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
