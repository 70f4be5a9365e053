package localnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/throughline/throughline/pkg/localnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// greet answers each connection with the address that it comes from, until the listener is closed, and tells why it ended.
func greet(l net.Listener) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			_, _ = io.WriteString(conn, conn.RemoteAddr().Network())
			_ = conn.Close()
		}
	}()
	return ended
}

func hear(t *testing.T, n *localnet.Network, addr string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := n.DialContext(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); got != addr {
		t.Errorf("got address %s, want %s", got, addr)
	}
	said, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

func TestServerIsReachedWithoutTheNetwork(t *testing.T) {
	t.Parallel()
	n := localnet.New()
	l := n.Listen(listen(t))
	ended := greet(l)
	addr := l.Addr().String()
	if got := hear(t, n, addr); got != "pipe" {
		t.Errorf("dialed in this process: got a connection by %s, want a pipe", got)
	}
	for name, other := range map[string]*localnet.Network{"another network": localnet.New(), "none": nil} {
		if got := hear(t, other, addr); got != "tcp" {
			t.Errorf("dialed in %s: got a connection by %s, want tcp", name, got)
		}
	}
	if err := l.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting ended with %v, want %v", err, net.ErrClosed)
	}
	if conn, err := n.DialContext(t.Context(), addr); err == nil {
		_ = conn.Close()
		t.Error("a closed server was reached")
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closing again: got %v, want %v", err, net.ErrClosed)
	}
}

// A server that starts again at the address that it had is reached, also when the one before is closed late.
func TestServerStartsAgain(t *testing.T) {
	t.Parallel()
	n := localnet.New()
	outer := listen(t)
	defer outer.Close()
	first := n.Listen(fixed{listen(t), outer.Addr()})
	second := n.Listen(fixed{listen(t), outer.Addr()})
	ended := greet(second)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if got := hear(t, n, outer.Addr().String()); got != "pipe" {
		t.Errorf("got a connection by %s, want a pipe", got)
	}
	_ = second.Close()
	<-ended
}

// When a server has stopped, its address belongs to whoever listens there next, in this process or outside.
func TestAddressIsGivenBack(t *testing.T) {
	t.Parallel()
	n := localnet.New()
	outside := listen(t)
	server := n.Listen(fixed{listen(t), outside.Addr()})
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	ended := greet(outside)
	if got := hear(t, n, outside.Addr().String()); got != "tcp" {
		t.Errorf("got a connection by %s, want tcp", got)
	}
	_ = outside.Close()
	<-ended
}

// fixed has an address of its own.
type fixed struct {
	net.Listener
	addr net.Addr
}

func (f fixed) Addr() net.Addr { return f.addr }

// The end of the network's listener is the end of both, with its error.
func TestListenerFails(t *testing.T) {
	t.Parallel()
	n := localnet.New()
	broken := errors.New("no more files")
	l := n.Listen(failing{listen(t), broken})
	if _, err := l.Accept(); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if conn, err := n.DialContext(t.Context(), l.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("a server that has failed was reached")
	}
}

// failing accepts nothing.
type failing struct {
	net.Listener
	err error
}

func (f failing) Accept() (net.Conn, error) { return nil, f.err }

// An error that passes is told to the server, who tries again, and ends nothing.
func TestErrorThatPasses(t *testing.T) {
	t.Parallel()
	n := localnet.New()
	l := n.Listen(&faltering{Listener: listen(t)})
	if conn, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("got %v, %v, want %v", conn, err, syscall.EMFILE)
	}
	ended := greet(l)
	addr := l.Addr().String()
	if got := hear(t, n, addr); got != "pipe" {
		t.Errorf("dialed in this process: got a connection by %s, want a pipe", got)
	}
	if got := hear(t, nil, addr); got != "tcp" {
		t.Errorf("dialed from outside: got a connection by %s, want tcp", got)
	}
	_ = l.Close()
	<-ended
}

// faltering has no file for its first connection.
type faltering struct {
	net.Listener
	once sync.Once
}

func (f *faltering) Accept() (conn net.Conn, err error) {
	f.once.Do(func() { err = &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE} })
	if err != nil {
		return nil, err
	}
	return f.Listener.Accept()
}

// A connection that nobody accepts any more ends.
func TestConnectionsEndWithTheServer(t *testing.T) {
	t.Parallel()
	n := localnet.New()
	l := n.Listen(listen(t))
	conn, err := n.DialContext(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = l.Close()
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("reading: %v, want an end", err)
	}
}

func TestNilIsTheNetwork(t *testing.T) {
	t.Parallel()
	var n *localnet.Network
	l := listen(t)
	defer l.Close()
	if got := n.Listen(l); got != l {
		t.Errorf("got %T, want the listener itself", got)
	}
}
