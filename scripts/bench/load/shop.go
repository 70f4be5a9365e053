package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
)

// Confirmed is the subject of the event that an order ends with.
const Confirmed = messaging.EventPrefix + "order.confirmed"

// body is an order of two books.
const body = `{"currency":"EUR","lines":[{"sku":"BOOK-1","quantity":1,"unit_price":1250},{"sku":"BOOK-2","quantity":2,"unit_price":999}],` +
	`"ship_to":{"name":"A. Buyer","line1":"1 High St","city":"Berlin","postal_code":"10115","country":"DE"},` +
	`"payment_method":"pm_card_visa"}`

// Shop is a client of the gateway that learns from the events when its orders are confirmed. It talks HTTP by hand over
// connections that stay open, so that the client takes as little of the machine from what is measured as it can.
type Shop struct {
	client, apiKey, addr string
	nc                   *nats.Conn
	consume              jetstream.ConsumeContext
	// prefix tells the keys of this shop from those of others.
	prefix string

	mu      sync.Mutex
	last    int64
	waiting map[string]chan struct{} // by order id
	idle    []*conn
}

// conn is one connection to the gateway.
type conn struct {
	net.Conn
	in   *bufio.Reader
	used time.Time // when it was last used
}

// maxIdle is how long a connection may lie idle. The gateway closes those that do so for 90 s.
const maxIdle = 30 * time.Second

// NewShop makes a shop of the system whose gateway and broker are there.
func NewShop(ctx context.Context, gateway, broker, client, apiKey string) (*Shop, error) {
	s := &Shop{
		client: client, apiKey: apiKey, addr: strings.TrimPrefix(gateway, "http://"),
		prefix: strconv.FormatUint(rand.Uint64(), 36), waiting: make(map[string]chan struct{}),
	}
	var err error
	if s.nc, err = nats.Connect(broker); err != nil {
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	js, err := jetstream.New(s.nc)
	if err != nil {
		return nil, fmt.Errorf("opening JetStream: %w", err)
	}
	name, err := js.StreamNameBySubject(ctx, Confirmed)
	if err != nil {
		return nil, fmt.Errorf("finding the stream of events: %w", err)
	}
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{Confirmed}, HeadersOnly: true, DeliverPolicy: jetstream.DeliverNewPolicy,
	})
	if err != nil {
		return nil, fmt.Errorf("consuming events: %w", err)
	}
	if s.consume, err = consumer.Consume(s.confirmed); err != nil {
		return nil, fmt.Errorf("consuming events: %w", err)
	}
	return s, nil
}

// Close closes all connections.
func (s *Shop) Close() {
	s.consume.Stop()
	s.nc.Close()
	for _, c := range s.idle {
		_ = c.Close()
	}
}

func (s *Shop) confirmed(m jetstream.Msg) {
	id := m.Headers().Get(messaging.HeaderOrderID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if done := s.waiting[id]; done != nil {
		delete(s.waiting, id)
		close(done)
	}
}

// Next gives the key of the next order, and its id.
func (s *Shop) Next() (key string, id uuid.UUID) {
	s.mu.Lock()
	s.last++
	n := s.last
	s.mu.Unlock()
	key = fmt.Sprintf("bench-%s-%09d", s.prefix, n)
	return key, keys.OrderID(s.client, key)
}

// Do implements [Doer].
func (s *Shop) Do(ctx context.Context, placed func()) error {
	key, id := s.Next()
	return s.Place(ctx, key, id, placed)
}

// Place places an order under a key and waits until it is confirmed.
func (s *Shop) Place(ctx context.Context, key string, id uuid.UUID, placed func()) error {
	done := make(chan struct{})
	s.mu.Lock()
	s.waiting[id.String()] = done
	s.mu.Unlock()
	if err := s.post(ctx, key); err != nil {
		return err
	}
	placed()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for order %s to be confirmed: %w", id, ctx.Err())
	}
}

func (s *Shop) post(ctx context.Context, key string) (err error) {
	c, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = c.Close()
			return
		}
		c.used = time.Now()
		s.mu.Lock()
		s.idle = append(s.idle, c)
		s.mu.Unlock()
	}()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return fmt.Errorf("placing an order: %w", err)
		}
	}
	request := "POST /v1/orders HTTP/1.1\r\nHost: " + s.addr + "\r\nAuthorization: Bearer " + s.apiKey + "\r\nIdempotency-Key: \"" + key +
		"\"\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	if _, err := io.WriteString(c, request); err != nil {
		return fmt.Errorf("placing an order: %w", err)
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return fmt.Errorf("placing an order: %w", err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("placing an order: %w", err)
	}
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("placing an order: got status %d, want 201: %s", resp.StatusCode, answer)
	}
	return nil
}

// dialTimeout bounds the making of a connection on loopback.
const dialTimeout = 5 * time.Second

func (s *Shop) take(ctx context.Context) (*conn, error) {
	if c := s.kept(); c != nil {
		return c, nil
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	c, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	return &conn{Conn: c, in: bufio.NewReader(c)}, nil
}

// kept gives the connection that was used last, if that is not too long ago; those before it were used still earlier.
func (s *Shop) kept() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return nil
	}
	c := s.idle[n-1]
	if time.Since(c.used) < maxIdle {
		s.idle = s.idle[:n-1]
		return c
	}
	for _, old := range s.idle {
		_ = old.Close()
	}
	s.idle = nil
	return nil
}
