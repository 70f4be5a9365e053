package postgres_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands between a pool and the server, counts round trips and breaks connections at chosen moments.
type proxy struct {
	listener net.Listener
	server   string
	delay    time.Duration // of each piece of an answer

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	cutAfter []byte        // see loseAnswerTo
	cut      chan struct{} // closed when it has happened
	frozen   atomic.Bool   // nothing passes, nothing is closed

	trips atomic.Int64
}

// newProxy returns a proxy to the server of a connection URL, and the URL that leads through it.
func newProxy(tb testing.TB, serverURL string) (*proxy, string) {
	tb.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		tb.Fatalf("parsing %s: %v", serverURL, err)
	}
	p := &proxy{server: u.Host, conns: make(map[net.Conn]struct{})}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		tb.Fatalf("listening: %v", err)
	}
	u.Host = p.listener.Addr().String()
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			client, err := p.listener.Accept()
			if err != nil {
				return
			}
			accepting.Go(func() { p.serve(client) })
		}
	})
	tb.Cleanup(func() {
		_ = p.listener.Close()
		p.closeAll()
		accepting.Wait()
	})
	return p, u.String()
}

// loseAnswerTo makes the proxy pass the next message that contains text on to the server, wait for the answer, and
// close the connection instead of passing the answer back. The channel is closed when that has happened.
func (p *proxy) loseAnswerTo(text string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter, p.cut = []byte(text), make(chan struct{})
	return p.cut
}

func (p *proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) track(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	p.track(client)
	p.track(server)

	var asked, doomed atomic.Bool // the client spoke last; the next answer is lost
	var done sync.WaitGroup
	done.Go(func() {
		defer server.Close()
		p.copy(server, client, func(piece []byte) bool {
			p.mu.Lock()
			if p.cutAfter != nil && bytes.Contains(piece, p.cutAfter) {
				p.cutAfter = nil
				doomed.Store(true)
			}
			p.mu.Unlock()
			if !asked.Swap(true) {
				p.trips.Add(1)
			}
			return true
		})
	})
	done.Go(func() {
		defer client.Close()
		p.copy(client, server, func([]byte) bool {
			asked.Store(false)
			if doomed.Load() {
				close(p.cut)
				return false
			}
			time.Sleep(p.delay)
			return true
		})
	})
	done.Wait()
}

// copy passes pieces on for as long as pass allows.
func (p *proxy) copy(dst io.Writer, src io.Reader, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && !p.frozen.Load() {
			if !pass(buf[:n]) {
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				return
			}
			return
		}
	}
}
