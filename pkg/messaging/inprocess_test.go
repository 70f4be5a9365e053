package messaging_test

import (
	"testing"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
)

// TestInProcess names a port that nobody listens on: the server is reached without the network, and what holds for a session holds.
func TestInProcess(t *testing.T) {
	t.Parallel()
	s := messagingtest.New(t)
	c := connect(t, s, func(cfg *messaging.Config) { cfg.URL, cfg.InProcess = "nats://127.0.0.1:1", s })
	ensure(t, c, commands)
	k := consume(t, c, payments, nil)
	var sent []messaging.Message
	for range 100 {
		m := command()
		publish(t, c, m)
		sent = append(sent, m)
	}
	for i, d := range k.next(t, len(sent)) {
		if d.ID != sent[i].ID {
			t.Fatalf("message %d: got id %s, want %s", i, d.ID, sent[i].ID)
		}
	}
	session := c.Session()
	if err := session.Probe(within(t)); err != nil {
		t.Errorf("probing: %v", err)
	}
	messagingtest.Stop(t, s)
	receive(t, "the end of the session", session.Changed)
	if got := c.Session(); got.Connected {
		t.Error("got a connected session after the end of the server")
	}
	if conn, err := s.InProcessConn(); err == nil {
		_ = conn.Close()
		t.Error("connecting to a server that has ended: got no error")
	}
}
