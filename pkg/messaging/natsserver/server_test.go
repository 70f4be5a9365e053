package natsserver_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

func start(t *testing.T, cfg natsserver.Config) *natsserver.Server {
	t.Helper()
	if cfg.StoreDir == "" {
		cfg.StoreDir = t.TempDir()
	}
	s, err := natsserver.Start(cfg)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t *testing.T, s *natsserver.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("opening JetStream: %v", err)
	}
	return nc, js
}

func TestStart(t *testing.T) {
	t.Parallel()
	s := start(t, natsserver.Config{ServerName: "throughline", MaxPayload: 4096})
	nc, js := connect(t, s)
	if got, want := nc.ConnectedServerName(), "throughline"; got != want {
		t.Errorf("server name: got %q, want %q", got, want)
	}
	if got, want := nc.MaxPayload(), int64(4096); got != want {
		t.Errorf("max payload: got %d, want %d", got, want)
	}
	if _, err := js.AccountInfo(t.Context()); err != nil {
		t.Errorf("JetStream: %v", err)
	}
	if !strings.HasPrefix(s.URL(), "nats://127.0.0.1:") {
		t.Errorf("url: got %s, want a loopback address", s.URL())
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	s := start(t, natsserver.Config{})
	nc, _ := connect(t, s)
	closed := make(chan struct{})
	nc.SetDisconnectErrHandler(func(*nats.Conn, error) { close(closed) })
	s.Shutdown()
	s.Shutdown() // no harm
	<-closed
	l, err := net.Listen("tcp", strings.TrimPrefix(s.URL(), "nats://")) // the port is free when Shutdown returns
	if err != nil {
		t.Fatalf("listening on the port of a stopped server: %v", err)
	}
	_ = l.Close()
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatalf("writing: %v", err)
	}
	cases := []struct {
		name string
		cfg  natsserver.Config
		want error // nil: any
		text string
	}{
		{"port taken", natsserver.Config{StoreDir: t.TempDir(), Port: taken.Addr().(*net.TCPAddr).Port}, natsserver.ErrPortTaken, taken.Addr().String()},
		{"no store folder", natsserver.Config{}, nil, "store folder"},
		{"store folder is a file", natsserver.Config{StoreDir: file}, natsserver.ErrNotReady, file},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := natsserver.Start(c.cfg)
			if err == nil {
				s.Shutdown()
				t.Fatal("Start: got nil, want an error")
			}
			if (c.want != nil && !errors.Is(err, c.want)) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Start: got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	s := start(t, natsserver.Config{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	s.Shutdown()
	if got := out.String(); !strings.Contains(got, "nats server: Server is ready") {
		t.Errorf("log: got %q, want the server's lines", got)
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
