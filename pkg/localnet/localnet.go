package localnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// bufferSize is what one direction of a connection holds, in bytes, before its writer waits: what gRPC's own buffers for
// writing hold, and a message of usual size.
const bufferSize = 32 << 10

// Network is the part of the network that is in this process. Nil is the ordinary network alone.
type Network struct {
	mu      sync.Mutex
	servers map[string]*joined // by address
}

// New makes a network without servers.
func New() *Network { return &Network{servers: make(map[string]*joined)} }

// Listen lets [Network.DialContext] reach a server by the address that l has, until what it returns is closed. That takes the place of l: it accepts
// both what is dialed here and what comes to l, and closes both. Its error is that of l, and one that passes, such as too many open files, ends
// nothing. Of servers with the same address the last one is reached.
func (n *Network) Listen(l net.Listener) net.Listener {
	if n == nil {
		return l
	}
	j := &joined{Listener: l, network: n, inside: bufconn.Listen(bufferSize), accepted: make(chan accepted), closed: make(chan struct{})}
	n.mu.Lock()
	n.servers[l.Addr().String()] = j
	n.mu.Unlock()
	go j.accept(j.inside)
	go j.accept(l)
	return j
}

// DialContext connects to the server of this process that listens at addr, a host and port as its listener tells them, or else over TCP.
func (n *Network) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	if server := n.server(addr); server != nil {
		conn, err := server.inside.DialContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("connecting to %s in this process: %w", addr, err)
		}
		return pipe{Conn: conn, local: client{}, remote: server.Addr()}, nil
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

func (n *Network) server(addr string) *joined {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers[addr]
}

// accepted is what one of the listeners' Accept gave.
type accepted struct {
	conn net.Conn
	err  error
}

// joined accepts from two listeners.
type joined struct {
	net.Listener // the network's; its address is that of both
	network      *Network
	inside       *bufconn.Listener
	accepted     chan accepted

	once   sync.Once
	closed chan struct{}
	err    error // why no more is accepted; written before closed is closed
}

// accept hands on what one of the listeners accepts, until it is closed or fails for good.
func (j *joined) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil && !passes(err) {
			// A server that nobody outside can reach must not go on as if it were there.
			_ = j.end(err)
			return
		}
		if err == nil && l == j.inside {
			conn = pipe{Conn: conn, local: j.Addr(), remote: client{}}
		}
		select {
		case j.accepted <- accepted{conn, err}:
		case <-j.closed:
			if err == nil {
				_ = conn.Close() // nobody takes it
			}
			return
		}
	}
}

// passes tells whether a listener can accept again after an error, such as too many open files. Servers wait a moment and try again.
func passes(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && t.Temporary()
}

// Accept implements net.Listener.
func (j *joined) Accept() (net.Conn, error) {
	select {
	case a := <-j.accepted:
		return a.conn, a.err
	case <-j.closed:
		return nil, j.err
	}
}

// Close implements net.Listener.
func (j *joined) Close() error { return j.end(net.ErrClosed) }

// end ends the accepting of both.
func (j *joined) end(why error) error {
	err := net.ErrClosed
	j.once.Do(func() {
		j.err = why
		addr := j.Addr().String()
		j.network.mu.Lock()
		if j.network.servers[addr] == j {
			delete(j.network.servers, addr)
		}
		j.network.mu.Unlock()
		close(j.closed)
		err = errors.Join(j.inside.Close(), j.Listener.Close())
	})
	return err
}

// pipe is one end of a connection in this process, with the addresses that it has for those who look.
type pipe struct {
	net.Conn
	local, remote net.Addr
}

func (p pipe) LocalAddr() net.Addr  { return p.local }
func (p pipe) RemoteAddr() net.Addr { return p.remote }

// client is the address of everybody who dials in this process.
type client struct{}

func (client) Network() string { return "pipe" }
func (client) String() string  { return "in-process" }
