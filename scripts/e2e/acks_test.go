package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// ackProxy stands before the broker and passes everything on, but for acknowledgements of publishes that it is told to lose.
type ackProxy struct {
	broker   string // its address
	listener net.Listener

	mu    sync.Mutex
	lose  map[string]*atomic.Int64 // how many more to lose, by the name that the client gives itself
	conns map[net.Conn]bool
	done  bool
}

func newAckProxy(t *testing.T, broker string) *ackProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &ackProxy{broker: strings.TrimPrefix(broker, "nats://"), listener: l, lose: make(map[string]*atomic.Int64), conns: make(map[net.Conn]bool)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.done = true
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		serving.Wait()
	})
	return p
}

// URL is where the proxy listens.
func (p *ackProxy) URL() string { return "nats://" + p.listener.Addr().String() }

// drop loses the next n acknowledgements to clients whose names contain a text, and gives how many are left to lose.
func (p *ackProxy) drop(client string, n int64) *atomic.Int64 {
	left := &atomic.Int64{}
	left.Store(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose[client] = left
	return left
}

// keep remembers a connection, so that it is closed at the end; false if that has come.
func (p *ackProxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *ackProxy) forget(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *ackProxy) serve(client net.Conn) {
	defer p.forget(client)
	if !p.keep(client) {
		return
	}
	server, err := net.Dial("tcp", p.broker)
	if err != nil {
		return
	}
	defer p.forget(server)
	if !p.keep(server) {
		return
	}
	var name atomic.Pointer[string]
	var both sync.WaitGroup
	both.Go(func() {
		defer server.Close()
		r := bufio.NewReader(client)
		// The first thing that a client says is who it is.
		line, err := r.ReadBytes('\n')
		var hello struct{ Name string }
		if said, ok := bytes.CutPrefix(line, []byte("CONNECT ")); ok && json.Unmarshal(said, &hello) == nil {
			name.Store(&hello.Name)
		}
		if _, failed := server.Write(line); err != nil || failed != nil {
			return
		}
		_, _ = io.Copy(server, r)
	})
	both.Go(func() {
		defer client.Close()
		_ = p.pass(client, bufio.NewReader(server), &name)
	})
	both.Wait()
}

// pass copies what the broker says, message by message.
func (p *ackProxy) pass(client io.Writer, broker *bufio.Reader, name *atomic.Pointer[string]) error {
	for {
		said, err := broker.ReadBytes('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(said, []byte("MSG ")) || bytes.HasPrefix(said, []byte("HMSG ")) {
			fields := strings.Fields(string(said))
			size, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return errors.New("the broker said a message without its size")
			}
			payload := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(broker, payload); err != nil {
				return err
			}
			if bytes.HasPrefix(payload, []byte(`{"stream":"`)) && p.loses(name.Load()) {
				continue
			}
			said = append(said, payload...)
		}
		if _, err := client.Write(said); err != nil {
			return err
		}
	}
}

func (p *ackProxy) loses(name *string) bool {
	if name == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for client, left := range p.lose {
		if strings.Contains(*name, client) && left.Load() > 0 {
			left.Add(-1)
			return true
		}
	}
	return false
}
