package messaging_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

func TestPublishIsAcknowledged(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	m := command()
	if got, want := publish(t, c, m), (messaging.Ack{Stream: "COMMANDS", Sequence: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := publish(t, c, m), (messaging.Ack{Stream: "COMMANDS", Sequence: 1, Duplicate: true}); got != want {
		t.Errorf("again: got %+v, want %+v", got, want)
	}
	if got, want := publish(t, c, command()), (messaging.Ack{Stream: "COMMANDS", Sequence: 2}); got != want {
		t.Errorf("another: got %+v, want %+v", got, want)
	}
}

func TestPublishErrors(t *testing.T) {
	t.Parallel()
	s, err := natsserver.Start(natsserver.Config{StoreDir: t.TempDir(), MaxPayload: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	c := connect(t, s)
	ensure(t, c, commands, messaging.Stream{Name: "SMALL", Subjects: []string{"evt.small"}, MaxBytes: 2000})
	large := strings.Repeat("x", 4096)
	tests := map[string]struct {
		change func(*messaging.Message)
		want   error
	}{
		"larger than the broker's maximum": {func(m *messaging.Message) { m.Payload = []byte(large) }, messaging.ErrNeverAccepted},
		"blank in the subject":             {func(m *messaging.Message) { m.Subject = "cmd.a b" }, messaging.ErrNeverAccepted},
		"no subject":                       {func(m *messaging.Message) { m.Subject = "" }, messaging.ErrNeverAccepted},
		"no stream takes the subject":      {func(m *messaging.Message) { m.Subject = "rpl.order.place-order" }, messaging.ErrUnavailable},
		"the stream is full":               {func(m *messaging.Message) { m.Subject, m.Payload = "evt.small", []byte(large[:1800]) }, messaging.ErrUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := command()
			tt.change(&m)
			_, err := c.Publish(within(t), &m).Wait(within(t))
			if !errors.Is(err, tt.want) {
				t.Errorf("got error %v, want one of %v", err, tt.want)
			}
		})
	}
}

func TestMessageAboveTheStreamsMaximum(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	cfg := jetstream.StreamConfig{Name: "SHORT", Subjects: []string{"cmd.>"}, MaxMsgSize: 1000}
	if _, err := c.JetStream().CreateStream(within(t), cfg); err != nil {
		t.Fatal(err)
	}
	m := command()
	m.Payload = make([]byte, 1000)
	if _, err := c.Publish(within(t), &m).Wait(within(t)); !errors.Is(err, messaging.ErrNeverAccepted) {
		t.Errorf("got error %v, want one of %v", err, messaging.ErrNeverAccepted)
	}
}

// What was checked for one session must not go out in the next, whatever happens in between.
func TestPublishBelongsToItsSession(t *testing.T) {
	t.Parallel()
	s := messagingtest.New(t)
	c := connect(t, s)
	ensure(t, c, commands)
	before := c.Session()
	if before.Number != 1 || !before.Connected {
		t.Fatalf("got session %d, connected %t, want 1, connected", before.Number, before.Connected)
	}
	messagingtest.Stop(t, s)
	receive(t, "the end of the session", before.Changed)

	away := c.Session()
	if away.Connected {
		t.Error("got a connected session while the broker is away")
	}
	m := command()
	for name, session := range map[string]messaging.Session{"the session before": before, "no session": away} {
		if _, err := session.Publish(t.Context(), &m).Wait(t.Context()); !errors.Is(err, messaging.ErrUnavailable) {
			t.Errorf("publishing in %s while the broker is away: got %v, want %v at once", name, err, messaging.ErrUnavailable)
		}
		if err := session.Probe(t.Context()); !errors.Is(err, messaging.ErrUnavailable) {
			t.Errorf("probing in %s while the broker is away: got %v, want %v", name, err, messaging.ErrUnavailable)
		}
	}
	if err := c.Check(t.Context()); !errors.Is(err, messaging.ErrUnavailable) {
		t.Errorf("checking while the broker is away: got %v, want %v", err, messaging.ErrUnavailable)
	}

	messagingtest.Restart(t, s)
	if err := c.WaitConnected(within(t)); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of the time between", away.Changed)
	if got := c.Session(); got.Number != 2 || !got.Connected {
		t.Errorf("got session %d, connected %t, want 2, connected", got.Number, got.Connected)
	}
	if _, err := before.Publish(t.Context(), &m).Wait(t.Context()); !errors.Is(err, messaging.ErrUnavailable) {
		t.Errorf("publishing in the session before, after the return: got %v, want %v", err, messaging.ErrUnavailable)
	}
	if got, want := publish(t, c, m), (messaging.Ack{Stream: "COMMANDS", Sequence: 1}); got != want {
		t.Errorf("publishing in the new session: got %+v, want %+v: the first that arrived", got, want)
	}
	if err := c.Session().Probe(within(t)); err != nil {
		t.Errorf("probing: %v", err)
	}
	if err := c.Check(within(t)); err != nil {
		t.Errorf("checking: %v", err)
	}
}

// A publish that waits for its acknowledgement learns at once that none will come.
func TestDisconnectFailsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	silent := make(chan net.Conn, 1)
	go func() { // a broker that greets, answers pings and acknowledges nothing
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte(`INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"headers":true,"proto":1}` + "\r\n"))
		buf, told := make([]byte, 4096), false
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if strings.Contains(string(buf[:n]), "PING") {
				_, _ = conn.Write([]byte("PONG\r\n"))
			}
			if !told && strings.Contains(string(buf[:n]), "HPUB") {
				told = true
				silent <- conn
			}
		}
	}()
	c, err := messaging.Connect(messaging.Config{URL: "nats://" + l.Addr().String(), PublishTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.WaitConnected(within(t)); err != nil {
		t.Fatal(err)
	}
	m := command()
	pending := c.Publish(t.Context(), &m)
	conn := receive(t, "the publish", silent)
	_ = l.Close()
	_ = conn.Close()
	if _, err := pending.Wait(within(t)); !errors.Is(err, messaging.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want %v at once", err, messaging.ErrUnavailable)
	}
}

func TestConnectRefusesConfiguration(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "nats://", "nats://%zz", "nats://127.0.0.1:4222,"} {
		if c, err := messaging.Connect(messaging.Config{URL: url}); err == nil {
			c.Close()
			t.Errorf("connecting to %q: got no error", url)
		}
	}
}

func TestConnectDoesNotWait(t *testing.T) {
	t.Parallel()
	s := messagingtest.New(t)
	messagingtest.Stop(t, s)
	c, err := messaging.Connect(messaging.Config{URL: s.URL()})
	if err != nil {
		t.Fatalf("connecting while the broker is away: %v", err)
	}
	defer c.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.WaitConnected(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with an ended context: got %v, want %v", err, context.Canceled)
	}
	m := command()
	if _, err := c.Publish(t.Context(), &m).Wait(t.Context()); !errors.Is(err, messaging.ErrUnavailable) {
		t.Errorf("publishing before the first session: got %v, want %v", err, messaging.ErrUnavailable)
	}
	messagingtest.Restart(t, s)
	if err := c.WaitConnected(within(t)); err != nil {
		t.Error(err)
	}
}

func TestEnsureStreamsByManyAtOnce(t *testing.T) {
	t.Parallel()
	s := messagingtest.New(t)
	first := connect(t, s)
	var g sync.WaitGroup
	for range 8 {
		c := connect(t, s)
		g.Go(func() {
			if err := c.EnsureStreams(t.Context(), commands, events); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	publish(t, first, command())

	changed := events
	changed.MaxAge = 2 * time.Hour
	ensure(t, first, commands, changed)
	for _, want := range []messaging.Stream{commands, changed} {
		stream, err := first.JetStream().Stream(within(t), want.Name)
		if err != nil {
			t.Fatal(err)
		}
		got := stream.CachedInfo().Config
		if (got.Retention == jetstream.WorkQueuePolicy) != want.WorkQueue || got.MaxAge != want.MaxAge ||
			got.Discard != jetstream.DiscardNew || got.MaxBytes != -1 || got.Duplicates != messaging.DuplicateWindow || got.Storage != jetstream.FileStorage {
			t.Errorf("got %+v, want the settings of %+v", got, want)
		}
	}
	if info, err := mustStream(t, first, commands.Name).Info(within(t)); err != nil || info.State.Msgs != 1 {
		t.Errorf("got %+v, %v, want the one message kept", info, err)
	}
}

func mustStream(t *testing.T, c *messaging.Conn, name string) jetstream.Stream {
	t.Helper()
	s, err := c.JetStream().Stream(within(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func BenchmarkPublish(b *testing.B) {
	c := connect(b, messagingtest.New(b))
	ensure(b, c, commands)
	window := make([]*messaging.Pending, 0, 256)
	for b.Loop() {
		m := command()
		window = append(window, c.Publish(b.Context(), &m))
		if len(window) == cap(window) {
			settle(b, window)
			window = window[:0]
		}
	}
	settle(b, window)
}

func settle(b *testing.B, window []*messaging.Pending) {
	for _, p := range window {
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
