package inbox_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// patience is how long a test waits for what must happen. It is only used up by tests that fail.
const patience = 30 * time.Second

const consumerName = "payment"

var commands = messaging.Stream{Name: "COMMANDS", Subjects: []string{"cmd.>"}, WorkQueue: true}

func newURL(tb testing.TB) string {
	tb.Helper()
	dbURL := pgtest.URL(tb, inbox.Migrations())
	exec(tb, pgtest.Open(tb, dbURL), `CREATE TABLE effect (message_id uuid NOT NULL, by text NOT NULL DEFAULT '')`)
	return dbURL
}

func exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := pool.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

func count(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), sql, args...).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// apply is what a consumer does: it records the effect of what it has not seen, and marks it, in one transaction. check says
// what is wrong with a message; it may be nil.
func apply(pool *pgxpool.Pool, check func(messaging.Delivery) error) inbox.Apply {
	return func(ctx context.Context, batch []messaging.Delivery) error {
		ids, seen := make([]uuid.UUID, len(batch)), make(map[uuid.UUID]bool)
		for i, d := range batch {
			ids[i] = d.ID
		}
		var read pgx.Batch
		inbox.QueueSeen(&read, consumerName, ids, seen)
		if err := pool.SendBatch(ctx, &read).Close(); err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		var write pgx.Batch
		var marks []uuid.UUID
		for _, d := range batch {
			if seen[d.ID] {
				continue
			}
			if check != nil {
				if err := check(d); err != nil {
					return err
				}
			}
			write.Queue(`INSERT INTO effect (message_id) VALUES ($1)`, d.ID)
			marks = append(marks, d.ID)
		}
		inbox.QueueMarks(&write, consumerName, marks)
		return postgres.SendAtomic(ctx, pool, &write)
	}
}

func command() messaging.Message {
	id := keys.NewMessageID()
	return messaging.Message{
		ID: id, Kind: messaging.Command, Subject: "cmd.payment.authorize_payment", Type: "test.v1.Authorize", AggregateID: uuid.New(),
		StepKey: uuid.New(), CreatedAt: keys.MessageTime(id), Payload: []byte("payload"),
	}
}

func deliveries(messages ...messaging.Message) []messaging.Delivery {
	batch := make([]messaging.Delivery, len(messages))
	for i, m := range messages {
		batch[i] = messaging.NewDelivery(m, 1)
	}
	return batch
}

// broker is a connection to a server of its own, with the stream of commands.
func broker(tb testing.TB) *messaging.Conn {
	tb.Helper()
	conn, err := messaging.Connect(messaging.Config{URL: messagingtest.New(tb).URL()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := conn.EnsureStreams(ctx, commands); err != nil {
		tb.Fatal(err)
	}
	return conn
}

func publish(tb testing.TB, conn *messaging.Conn, messages ...messaging.Message) {
	tb.Helper()
	for _, m := range messages {
		if _, err := conn.Publish(tb.Context(), &m).Wait(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
}

// publishCopy publishes a message once more, so that the stream does not take it for a repeat.
func publishCopy(tb testing.TB, conn *messaging.Conn, m messaging.Message) {
	tb.Helper()
	d := messaging.NewDelivery(m, 1)
	msg := &nats.Msg{Subject: m.Subject, Header: d.Headers(), Data: m.Payload}
	msg.Header.Set(nats.MsgIdHdr, uuid.NewString())
	if _, err := conn.JetStream().PublishMsg(tb.Context(), msg); err != nil {
		tb.Fatal(err)
	}
}

// consume runs a processor until the end of the test.
func consume(tb testing.TB, conn *messaging.Conn, p *inbox.Processor) {
	tb.Helper()
	consumeWith(tb, conn, p.Handle)
}

func consumeWith(tb testing.TB, conn *messaging.Conn, handle messaging.Handler) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = conn.Consume(ctx, ctx, messaging.ConsumerConfig{Stream: commands.Name, Name: consumerName}, handle)
	})
	tb.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// waiting gives the number of messages that are not acknowledged: a work queue drops those that are.
func waiting(tb testing.TB, conn *messaging.Conn) int {
	tb.Helper()
	s, err := conn.JetStream().Stream(tb.Context(), commands.Name)
	if err != nil {
		tb.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// eventually waits until a condition holds, or fails.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			tb.Fatalf("waited %s until %s", patience, what)
		}
	}
}

// proxy stands between a pool and its server, so that a test can take the database away.
type proxy struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	away  bool
	lose  []byte // the answer to the next message that contains this is lost, and the connection with it
	conns map[net.Conn]struct{}
}

// newProxy gives a proxy to the server of a connection URL, and a pool that goes through it.
func newProxy(tb testing.TB, serverURL string) (*proxy, *pgxpool.Pool) {
	tb.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{server: u.Host, conns: make(map[net.Conn]struct{})}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := p.listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(client) })
		}
	})
	tb.Cleanup(func() {
		_ = p.listener.Close()
		p.setAway(true)
		serving.Wait()
	})
	return p, pgtest.Open(tb, u.String())
}

// setAway cuts all connections and lets none in, or lets them in again.
func (p *proxy) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// loseAnswerTo loses the next answer to a message that contains text.
func (p *proxy) loseAnswerTo(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = []byte(text)
}

// lost tells whether loseAnswerTo has happened.
func (p *proxy) lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lose == nil
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.away {
		p.mu.Unlock()
		return
	}
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.mu.Unlock()

	doomed := make(chan struct{})
	var copying sync.WaitGroup
	copying.Go(func() {
		defer server.Close()
		pass(server, client, func(piece []byte) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.lose != nil && bytes.Contains(piece, p.lose) {
				p.lose = nil
				close(doomed)
			}
			return true
		})
	})
	copying.Go(func() {
		defer client.Close()
		pass(client, server, func([]byte) bool {
			select {
			case <-doomed:
				return false
			default:
				return true
			}
		})
	})
	copying.Wait()
}

// pass copies pieces for as long as wanted.
func pass(dst io.Writer, src io.Reader, wanted func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && !wanted(buf[:n]) || err != nil {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}
