package messaging_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

// replicated is a stream that outlives the loss of any one server.
var replicated = messaging.Stream{Name: "EVENTS", Subjects: []string{"evt.>"}, MaxAge: time.Hour, Replicas: 3}

// load is some publishers that publish events without a pause, each those of its own aggregate, one after another, and
// each until it is acknowledged.
type load struct {
	stop      context.CancelFunc
	publisher sync.WaitGroup
	acked     atomic.Int64
	refused   atomic.Int64 // publishes that failed, and were repeated

	mu       sync.Mutex
	messages map[uuid.UUID]messaging.Message // those acknowledged, by id
}

func startLoad(t *testing.T, c *messaging.Conn, publishers int) *load {
	t.Helper()
	// Not the test's own context: what is under way when the load is stopped is still published until it is acknowledged.
	ctx, cancel := context.WithCancel(context.Background())
	stop, cancelStop := context.WithCancel(ctx)
	l := &load{stop: cancelStop, messages: make(map[uuid.UUID]messaging.Message)}
	for range publishers {
		aggregate := uuid.New()
		l.publisher.Go(func() {
			for seq := int64(1); stop.Err() == nil; seq++ {
				l.publish(ctx, c, event(aggregate, seq))
			}
		})
	}
	t.Cleanup(func() {
		cancelStop()
		cancel()
		l.publisher.Wait()
	})
	return l
}

func event(aggregate uuid.UUID, seq int64) messaging.Message {
	id := keys.NewMessageID()
	return messaging.Message{
		ID: id, Kind: messaging.Event, Subject: "evt.order.created", AggregateID: aggregate, AggregateSeq: seq,
		CreatedAt: keys.MessageTime(id), Payload: []byte("x"),
	}
}

// publish publishes a message until it is acknowledged.
func (l *load) publish(ctx context.Context, c *messaging.Conn, m messaging.Message) {
	for ctx.Err() == nil {
		if _, err := c.Publish(ctx, &m).Wait(ctx); err != nil {
			l.refused.Add(1)
			select {
			case <-time.After(10 * time.Millisecond): // a leader is being elected, or a connection made
			case <-ctx.Done():
			}
			continue
		}
		l.mu.Lock()
		l.messages[m.ID] = m
		l.mu.Unlock()
		l.acked.Add(1)
		return
	}
}

// more waits until so many more messages are acknowledged.
func (l *load) more(t *testing.T, n int64, while string) {
	t.Helper()
	want := l.acked.Load() + n
	eventually(t, fmt.Sprintf("%d more messages are acknowledged %s", n, while), func() bool { return l.acked.Load() >= want })
}

// end stops the load and gives what was acknowledged.
func (l *load) end() map[uuid.UUID]messaging.Message {
	l.stop()
	l.publisher.Wait()
	return l.messages
}

// reader is a consumer that remembers the ids of what it got.
type reader struct {
	mu  sync.Mutex
	ids map[uuid.UUID]bool
}

func startReader(t *testing.T, c *messaging.Conn) *reader {
	t.Helper()
	r := &reader{ids: make(map[uuid.UUID]bool)}
	// What was delivered over a connection that broke is delivered again after AckWait.
	cfg := messaging.ConsumerConfig{Stream: replicated.Name, Name: "reader", AckWait: 2 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = c.Consume(ctx, ctx, cfg, func(_ context.Context, batch []messaging.Delivery) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for i := range batch {
				r.ids[batch[i].ID] = true
				_ = batch[i].Ack() // the connection may be gone, on purpose
			}
		})
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func (r *reader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ids)
}

// cluster is three servers and a connection of a person who looks after them.
type cluster struct {
	servers []*natsserver.Server
	nc      *nats.Conn
	js      jetstream.JetStream
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{servers: messagingtest.NewCluster(t, 3)}
	var err error
	c.nc, err = nats.Connect(natsserver.URLs(c.servers), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(c.nc.Close)
	if c.js, err = jetstream.New(c.nc); err != nil {
		t.Fatalf("opening JetStream: %v", err)
	}
	return c
}

// connect connects to all servers of the cluster.
func (c *cluster) connect(t *testing.T) *messaging.Conn {
	t.Helper()
	return connect(t, c.servers[0], func(cfg *messaging.Config) {
		cfg.URL = natsserver.URLs(c.servers)
		cfg.PublishTimeout = time.Second // what is sent to a server that is going down is not answered
	})
}

// info asks for the state of the stream; nil when nobody answers.
func (c *cluster) info(t *testing.T) *jetstream.StreamInfo {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	s, err := c.js.Stream(ctx, replicated.Name)
	if err != nil {
		return nil
	}
	return s.CachedInfo()
}

// leader waits until the stream has a leader other than the one given, and gives its name.
func (c *cluster) leader(t *testing.T, other string) string {
	t.Helper()
	var leader string
	eventually(t, "the stream has a leader other than "+other, func() bool {
		if info := c.info(t); info != nil && info.Cluster != nil {
			leader = info.Cluster.Leader
		}
		return leader != "" && leader != other
	})
	return leader
}

// whole waits until all replicas have all messages.
func (c *cluster) whole(t *testing.T) {
	t.Helper()
	eventually(t, "all replicas are current", func() bool {
		info := c.info(t)
		if info == nil || info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != len(c.servers)-1 {
			return false
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline {
				return false
			}
		}
		return true
	})
}

// moveLeader makes the stream's leader hand over to another, and waits until it has.
func (c *cluster) moveLeader(t *testing.T) {
	t.Helper()
	was := c.leader(t, "")
	// It refuses while the others are behind, and does not answer when it has just lost its office.
	eventually(t, "the stream has a leader other than "+was, func() bool {
		if info := c.info(t); info != nil && info.Cluster != nil && info.Cluster.Leader != "" && info.Cluster.Leader != was {
			return true
		}
		_, _ = c.nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+replicated.Name, nil, time.Second)
		return false
	})
}

func (c *cluster) index(t *testing.T, name string) int {
	t.Helper()
	for i, s := range c.servers {
		if s.Config().ServerName == name {
			return i
		}
	}
	t.Fatalf("no server is named %q", name)
	return -1
}

func TestThreeReplicasLoseNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	conn := c.connect(t)
	ensure(t, conn, replicated)
	r := startReader(t, c.connect(t))
	l := startLoad(t, conn, 4)
	const some = 100
	l.more(t, some, "with all servers")

	for range 2 {
		c.moveLeader(t)
		l.more(t, some, "after the leader moved")
	}
	// Each server goes away once, the leader first.
	first := c.index(t, c.leader(t, ""))
	for n := range c.servers {
		i := (first + n) % len(c.servers)
		name := c.servers[i].Config().ServerName
		messagingtest.Stop(t, c.servers[i])
		l.more(t, some, "without "+name)
		c.moveLeader(t)
		l.more(t, some, "after the leader moved while "+name+" was away")
		c.servers[i] = messagingtest.Restart(t, c.servers[i])
		c.whole(t)
		l.more(t, some, "with "+name+" back")
	}
	acked := l.end()
	t.Logf("%d messages acknowledged, %d publishes repeated", len(acked), l.refused.Load())

	stored := c.stored(t)
	for id, m := range acked {
		if _, ok := stored[id]; !ok {
			t.Errorf("message %d of %s was acknowledged and is not in the stream", m.AggregateSeq, m.AggregateID)
		}
	}
	eventually(t, "the consumer has had all that is stored", func() bool { return r.count() == len(stored) })
}

// stored reads the whole stream, and checks that first sights are in sequence.
func (c *cluster) stored(t *testing.T) map[uuid.UUID]bool {
	t.Helper()
	c.whole(t)
	var consumer jetstream.Consumer
	eventually(t, "the stream can be read", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a request may meet a server that does not answer yet
		defer cancel()
		var err error
		consumer, err = c.js.OrderedConsumer(ctx, replicated.Name, jetstream.OrderedConsumerConfig{})
		return err == nil
	})
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatalf("reading the stream: %v", err)
	}
	defer messages.Stop()
	ids, last := make(map[uuid.UUID]bool), make(map[uuid.UUID]int64)
	for pending := uint64(1); pending > 0; {
		raw, err := messages.Next(jetstream.NextMaxWait(patience))
		if err != nil {
			t.Fatalf("reading the stream after %d messages: %v", len(ids), err)
		}
		meta, err := raw.Metadata()
		if err != nil {
			t.Fatalf("reading the stream: %v", err)
		}
		pending = meta.NumPending
		m, err := messaging.Parse(raw.Subject(), raw.Headers(), raw.Data())
		if err != nil {
			t.Fatal(err)
		}
		if ids[m.ID] {
			continue
		}
		ids[m.ID] = true
		if got, want := m.AggregateSeq, last[m.AggregateID]+1; got != want {
			t.Errorf("first sights of %s: got %d after %d, want %d", m.AggregateID, got, want-1, want)
		}
		last[m.AggregateID] = m.AggregateSeq
	}
	return ids
}
