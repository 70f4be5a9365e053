package participant

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// proxy stands between a runner's pool and the database.
type proxy struct {
	server   string
	listener net.Listener

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]bool
	away  bool
	lose  []byte        // the answer to the next message that contains this is lost
	lost  chan struct{} // closed when that has happened
	tried chan struct{} // gets a value, if there is room, for each connection that is turned away
}

// newProxy gives a proxy to the server of a URL, and the URL that leads through it.
func newProxy(t *testing.T, serverURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{server: u.Host, listener: l, conns: make(map[net.Conn]bool), lost: make(chan struct{}), tried: make(chan struct{}, 1)}
	u.Host = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.setAway(true)
		serving.Wait()
	})
	return p, u.String()
}

// setAway cuts all connections and turns new ones away, or lets them through again.
func (p *proxy) setAway(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	if away {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// loseAnswerTo passes the next message that contains a text on to the server, and cuts the connection instead of passing
// the answer back.
func (p *proxy) loseAnswerTo(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = []byte(text)
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
		select {
		case p.tried <- struct{}{}:
		default:
		}
		return
	}
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	doomed := false // guarded by p.mu
	var copying sync.WaitGroup
	copying.Go(func() {
		defer server.Close()
		pass(server, client, func(piece []byte) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.lose != nil && bytes.Contains(piece, p.lose) {
				p.lose, doomed = nil, true
			}
			return true
		})
	})
	copying.Go(func() {
		defer client.Close()
		pass(client, server, func([]byte) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if doomed {
				close(p.lost)
			}
			return !doomed
		})
	})
	copying.Wait()
}

func pass(dst io.Writer, src io.Reader, allowed func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && !allowed(buf[:n]) {
			return
		}
		if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}
