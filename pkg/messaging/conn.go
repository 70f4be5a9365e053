package messaging

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Defaults of [Config].
const (
	// DefaultPublishTimeout bounds the wait for one acknowledgement.
	DefaultPublishTimeout = 5 * time.Second
	// DefaultPublishWindow bounds the publishes that wait for their acknowledgement at one time. Between 256 and 4,000 the
	// rate of JetStream grows by a third; above it does not.
	DefaultPublishWindow = 4096

	reconnectWait = 250 * time.Millisecond
	dialTimeout   = 2 * time.Second
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
	// Meter tells how far behind consumers are; nil tells nobody.
	Meter metric.Meter
	// PublishTimeout and PublishWindow default to the constants above.
	PublishTimeout time.Duration
	PublishWindow  int
	// InProcess is a server that runs in this process, such as [natsserver.Server]: connections to it are pipes in memory, and URL is
	// only its name. nil connects to URL over the network. Everything else is the same.
	InProcess nats.InProcessConnProvider
	// Options are added to the connection's options, such as credentials or TLS.
	Options []nats.Option
}

// Session is one connection to the broker, from its beginning to its end; after it comes another. What is published in a
// session goes out over that very connection or not at all. So who has checked that a session is the right one for a
// message cannot be overtaken by a reconnect, however long his process is frozen between the check and the publish.
type Session struct {
	// Number counts the connections, from 1. Between two connections it is still that of the last.
	Number uint64
	// Connected tells whether the connection is up.
	Connected bool
	// Since is when the connection was made; of the last one, if there is none now.
	Since time.Time
	// Changed is closed as soon as this session is no longer the current one.
	Changed <-chan struct{}

	conn *Conn
	link *link // nil if there was no connection
}

// link is what a session goes over.
type link struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	closed chan struct{}
	server []attribute.KeyValue // on the spans of what goes over it
}

// Conn keeps a connection to the broker: when one ends it makes another, for ever. It never buffers what could not be sent.
type Conn struct {
	cfg    Config
	tracer trace.Tracer // nil makes no spans
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{} // closed when keep has returned

	// missing gets a value when the broker has said that a stream of ours is not there.
	missing chan struct{}

	mu      sync.Mutex // guards what follows; written by keep
	session Session
	changed chan struct{}

	lag lag
}

// Connect begins to connect. It returns at once, also while the broker is away: use [Conn.WaitConnected] to wait. The only
// error is one of the configuration. Close the connection with [Conn.Close].
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
	ctx, cancel := context.WithCancel(context.Background())
	c := &Conn{
		cfg: cfg, tracer: cfg.Tracer, log: cfg.Logger, cancel: cancel, done: make(chan struct{}), missing: make(chan struct{}, 1),
		changed: make(chan struct{}),
	}
	c.session = Session{Changed: c.changed, conn: c}
	opts := append(c.options(ctx), cfg.Options...)
	if err := check(cfg.URL, opts); err != nil {
		cancel()
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	if err := c.lag.observe(c, cfg.Meter); err != nil {
		c.log.Error("consumers are not measured", "error", err) // they work all the same
	}
	go c.keep(ctx, opts)
	return c, nil
}

func (c *Conn) options(ctx context.Context) []nats.Option {
	opts := []nats.Option{
		nats.Name(c.cfg.Name),
		// The client's own reconnect would carry a publish from one session into the next.
		nats.NoReconnect(),
		nats.SetCustomDialer(dialer{ctx}),
		nats.Timeout(dialTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsOut),
		// A broker that reads nothing any more must not hold the writers for the client's default of a minute.
		nats.FlusherTimeout(c.cfg.PublishTimeout),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			c.log.Warn("broker reported an error", "error", err)
		}),
	}
	if c.cfg.InProcess != nil {
		opts = append(opts, nats.InProcessServer(c.cfg.InProcess))
	}
	return opts
}

// check finds the mistakes that no waiting can mend.
func check(servers string, opts []nats.Option) error {
	o := nats.GetDefaultOptions()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return err
		}
	}
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		if u, err := url.Parse(server); err != nil {
			return fmt.Errorf("reading its URL: %w", err)
		} else if u.Host == "" {
			return fmt.Errorf("its URL %q names no host", u.Redacted())
		}
	}
	return nil
}

// dialer ends a dial when the Conn is closed.
type dialer struct{ ctx context.Context }

func (d dialer) Dial(network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(d.ctx, network, address)
}

// keep makes one session after another until ctx ends.
func (c *Conn) keep(ctx context.Context, opts []nats.Option) {
	defer close(c.done)
	told := false // of the outage
	for ctx.Err() == nil {
		l, err := c.dial(opts)
		switch {
		case err == nil:
			told = false
			c.begin(l)
			c.log.Info("connected to the broker", "server", l.nc.ConnectedUrlRedacted())
			select {
			case <-l.closed:
			case <-ctx.Done():
				l.nc.Close()
				<-l.closed
			}
			c.end()
			if ctx.Err() == nil {
				c.log.Warn("disconnected from the broker", "error", l.nc.LastError())
			}
		case !told && ctx.Err() == nil:
			told = true
			c.log.Warn("broker not reached, trying again until it is", "error", err)
		}
		// Half to one and a half of the wait, so that processes that lost their broker together do not return together.
		select {
		case <-time.After(reconnectWait/2 + rand.N(reconnectWait)):
		case <-ctx.Done():
		}
	}
}

func (c *Conn) dial(opts []nats.Option) (*link, error) {
	l := &link{closed: make(chan struct{})}
	var err error
	opts = append(slices.Clip(opts), nats.ClosedHandler(func(*nats.Conn) { close(l.closed) }))
	if l.nc, err = nats.Connect(c.cfg.URL, opts...); err != nil {
		return nil, err
	}
	l.server = serverOf(l.nc)
	l.js, err = jetstream.New(l.nc,
		jetstream.WithPublishAsyncTimeout(c.cfg.PublishTimeout),
		jetstream.WithPublishAsyncMaxPending(c.cfg.PublishWindow))
	if err != nil {
		l.nc.Close()
		return nil, err
	}
	return l, nil
}

// begin makes a new connection the current session.
func (c *Conn) begin(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(Session{Number: c.session.Number + 1, Connected: true, Since: time.Now(), conn: c, link: l})
}

// end marks the current session as over.
func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(Session{Number: c.session.Number, Since: c.session.Since, conn: c, link: c.session.link})
}

// turn replaces the current session. The caller holds the mutex.
func (c *Conn) turn(next Session) {
	close(c.changed)
	c.changed = make(chan struct{})
	next.Changed = c.changed
	c.session = next
}

// Session gives the current session.
func (c *Conn) Session() Session {
	c.mu.Lock()
	s := c.session
	c.mu.Unlock()
	// The client knows that its connection has broken before it says so.
	s.Connected = s.Connected && s.link.nc.IsConnected()
	return s
}

// WaitConnected waits until the connection is up, or ctx ends.
func (c *Conn) WaitConnected(ctx context.Context) error {
	_, err := c.awaitSession(ctx)
	return err
}

func (c *Conn) awaitSession(ctx context.Context) (Session, error) {
	for {
		s := c.Session()
		if s.Connected {
			return s, nil
		}
		select {
		case <-s.Changed:
		case <-ctx.Done():
			return s, fmt.Errorf("waiting for the broker: %w", context.Cause(ctx))
		}
	}
}

// Check tells what is wrong with the connection, for a readiness probe.
func (c *Conn) Check(ctx context.Context) error {
	s := c.Session()
	if !s.Connected {
		return fmt.Errorf("%w: not connected", ErrUnavailable)
	}
	if _, err := s.link.js.AccountInfo(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// JetStream gives the client of the current connection, for administration; nil before the first. It ends with
// that connection. Publishing through it bypasses the rules of this package.
func (c *Conn) JetStream() jetstream.JetStream {
	s := c.Session()
	if s.link == nil {
		return nil
	}
	return s.link.js
}

// Missing gives a value when the broker has said that a stream is not there, although it was ensured: somebody deleted it.
// Whoever keeps the streams ensures them again, and then calls [Conn.Renew].
func (c *Conn) Missing() <-chan struct{} { return c.missing }

func (c *Conn) noteMissing() {
	select {
	case c.missing <- struct{}{}:
	default:
	}
}

// Renew ends the current session, and lets another begin: whoever counts on what the broker acknowledged in this session
// must not any more.
func (c *Conn) Renew() {
	if s := c.Session(); s.link != nil {
		s.link.nc.Close()
	}
}

// Close ends the connection. What waits for an acknowledgement fails.
func (c *Conn) Close() {
	c.lag.end()
	c.cancel()
	<-c.done
}

// Probe asks the broker for a sign of life, over the session's connection, and waits for it. Since a connection keeps the
// order of what it carries, the broker has then dealt with all that was published before in the session.
func (s Session) Probe(ctx context.Context) error {
	if s.link == nil {
		return fmt.Errorf("%w: not connected", ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, s.conn.cfg.PublishTimeout)
	defer cancel()
	if err := s.link.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Tracer is the tracer of the connection's spans; nil if there is none.
func (c *Conn) Tracer() trace.Tracer { return c.tracer }
