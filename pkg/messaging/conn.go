package messaging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/trace"
)

// Defaults of [Config].
const (
	// DefaultPublishTimeout bounds the wait for one acknowledgement.
	DefaultPublishTimeout = 5 * time.Second
	// DefaultPublishWindow bounds the publishes that wait for their acknowledgement at one time. Between 256 and 4,000 the
	// rate of JetStream grows by a third; above it does not.
	DefaultPublishWindow = 4096

	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = 100 * time.Millisecond
	// A frozen broker is noticed after two pings without an answer.
	pingInterval = 5 * time.Second
	pingsOut     = 2
)

// Config says how to reach the broker.
type Config struct {
	// URL lists the servers, separated by commas.
	URL string
	// Name shows in the server's list of connections.
	Name   string
	Logger *slog.Logger
	// Tracer makes the spans of publishing and consuming; nil makes none.
	Tracer trace.Tracer
	// PublishTimeout and PublishWindow default to the constants above.
	PublishTimeout time.Duration
	PublishWindow  int
	// Options are added to the connection's options, such as credentials or TLS.
	Options []nats.Option
}

// Session tells one stretch of an unbroken connection from the next.
type Session struct {
	// Number grows with every disconnect.
	Number uint64
	// Connected tells whether the connection is up.
	Connected bool
	// Changed is closed as soon as this session is no longer the current one.
	Changed <-chan struct{}
}

// Conn is a connection to the broker. It reconnects for ever, and never buffers what could not be sent.
type Conn struct {
	cfg    Config
	nc     *nats.Conn
	js     jetstream.JetStream
	tracer trace.Tracer
	traced bool // there is a tracer
	log    *slog.Logger

	mu      sync.Mutex // guards what follows; written by the connection's callbacks
	session Session
	changed chan struct{}
}

// Connect opens a connection. It returns at once, also while the broker is away: use [Conn.WaitConnected] to wait.
// Close the connection with [Conn.Close].
func Connect(cfg Config) (*Conn, error) {
	if cfg.PublishTimeout <= 0 {
		cfg.PublishTimeout = DefaultPublishTimeout
	}
	if cfg.PublishWindow <= 0 {
		cfg.PublishWindow = DefaultPublishWindow
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Conn{cfg: cfg, tracer: cfg.Tracer, traced: cfg.Tracer != nil, log: cfg.Logger, changed: make(chan struct{})}
	c.session = Session{Changed: c.changed}
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1), // an old message must never overtake what was published again after the reconnect
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOut),
		nats.ConnectHandler(func(*nats.Conn) { c.turn(true, nil) }),
		nats.ReconnectHandler(func(*nats.Conn) { c.turn(true, nil) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.turn(false, err) }),
		nats.ClosedHandler(func(*nats.Conn) { c.turn(false, nil) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			c.log.Warn("broker reported an error", "error", err)
		}),
	}
	nc, err := nats.Connect(cfg.URL, append(opts, cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	js, err := jetstream.New(nc,
		jetstream.WithPublishAsyncTimeout(cfg.PublishTimeout),
		jetstream.WithPublishAsyncMaxPending(cfg.PublishWindow))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("opening JetStream: %w", err)
	}
	c.nc, c.js = nc, js
	return c, nil
}

// turn starts a new session.
func (c *Conn) turn(connected bool, cause error) {
	c.mu.Lock()
	if c.session.Connected == connected {
		c.mu.Unlock()
		return
	}
	close(c.changed)
	c.changed = make(chan struct{})
	number := c.session.Number
	if !connected {
		number++
	}
	c.session = Session{Number: number, Connected: connected, Changed: c.changed}
	c.mu.Unlock()
	if connected {
		c.log.Info("connected to the broker", "server", c.nc.ConnectedUrlRedacted())
	} else {
		c.log.Warn("disconnected from the broker", "error", cause)
	}
}

// Session gives the current session.
func (c *Conn) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// WaitConnected waits until the connection is up, or ctx ends.
func (c *Conn) WaitConnected(ctx context.Context) error {
	for {
		s := c.Session()
		if s.Connected {
			return nil
		}
		select {
		case <-s.Changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the broker: %w", context.Cause(ctx))
		}
	}
}

// Check tells what is wrong with the connection, for a readiness probe.
func (c *Conn) Check(ctx context.Context) error {
	if !c.Session().Connected {
		return fmt.Errorf("%w: not connected", ErrUnavailable)
	}
	if _, err := c.js.AccountInfo(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// JetStream gives the underlying client, for administration. Publishing through it bypasses the rules of this package.
func (c *Conn) JetStream() jetstream.JetStream { return c.js }

// Close ends the connection. What waits for an acknowledgement fails.
func (c *Conn) Close() { c.nc.Close() }

// classify gives publish errors their class.
func classify(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject),
		errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return fmt.Errorf("%w: %w", ErrNeverAccepted, err)
	case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %w", ErrNeverAccepted, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

// Probe asks the broker for a sign of life and waits for it.
func (c *Conn) Probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.PublishTimeout)
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}
