package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

var (
	// ErrPortTaken says that the port asked for is in use.
	ErrPortTaken = errors.New("port is taken")

	// ErrNotReady says that the server did not accept connections in time.
	ErrNotReady = errors.New("NATS server did not become ready")
)

// DefaultSyncInterval is how often JetStream flushes to disk by default. Publishing is almost as fast as with the
// server's own default of two minutes, and what a power failure can take back is bounded by a quarter of a second.
const DefaultSyncInterval = 250 * time.Millisecond

// readyTimeout bounds the start, most of which is reading the streams in StoreDir.
const readyTimeout = 30 * time.Second

// Config says where and how the server runs. Only StoreDir is required.
type Config struct {
	// Host is the address to listen on; empty means 127.0.0.1.
	Host string

	// Port is the port to listen on; 0 takes a free one.
	Port int

	// StoreDir keeps the streams. One server at a time may use it.
	StoreDir string

	// SyncInterval is how often written messages are flushed to disk; 0 means [DefaultSyncInterval].
	SyncInterval time.Duration

	// MaxPayload bounds a message in bytes; 0 means the server's default of 1 MiB.
	MaxPayload int32

	// ServerName is shown in monitoring; by default the server invents one at each start. In a cluster it must be unique
	// and stay the same, since streams are placed on servers by their names.
	ServerName string

	// Cluster makes the server a member of a cluster; the zero value makes it one alone. See [StartCluster].
	Cluster Cluster

	// Logger receives what the server logs; nil discards it.
	Logger *slog.Logger
}

// Server is a running server.
type Server struct {
	cfg Config // with the port that was taken
	srv *server.Server
}

// Start runs the server and returns once it accepts connections and JetStream is ready; a member of a cluster may still
// have to find the others. The error wraps [ErrPortTaken] and names the address when the port is in use. The caller calls
// [Server.Shutdown].
func Start(cfg Config) (*Server, error) {
	if cfg.StoreDir == "" {
		return nil, errors.New("starting NATS: no store folder given")
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.SyncInterval == 0 {
		cfg.SyncInterval = DefaultSyncInterval
	}
	// The server itself only logs that it cannot listen, and then never becomes ready.
	port, err := probePort(cfg.Host, cfg.Port)
	if err != nil {
		return nil, fmt.Errorf("starting NATS: %w", err)
	}
	opts := &server.Options{
		ServerName:   cfg.ServerName,
		Host:         cfg.Host,
		Port:         port,
		JetStream:    true,
		StoreDir:     cfg.StoreDir,
		SyncInterval: cfg.SyncInterval,
		MaxPayload:   cfg.MaxPayload,
		NoSigs:       true,
	}
	if err := cfg.Cluster.apply(opts); err != nil {
		return nil, fmt.Errorf("starting NATS: %w", err)
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("starting NATS: %w", err)
	}
	log := newLogAdapter(cfg.Logger)
	srv.SetLogger(log, false, false)
	go srv.Start()
	s := &Server{cfg: cfg, srv: srv}
	if err := s.waitReady(log); err != nil {
		s.Shutdown()
		return nil, fmt.Errorf("starting NATS on %s with store %s: %w", address(cfg.Host, cfg.Port), cfg.StoreDir, err)
	}
	return s, nil
}

// waitReady returns when the server accepts connections, and notes the port that it has taken.
func (s *Server) waitReady(log *logAdapter) error {
	const poll = 50 * time.Millisecond // how soon a failure is noticed; the server itself looks more often
	for deadline := time.Now().Add(readyTimeout); !s.srv.ReadyForConnections(poll); {
		select {
		case <-log.failed:
			return fmt.Errorf("%w: %s", ErrNotReady, log.fatal)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w in %s", ErrNotReady, readyTimeout)
		}
	}
	addr, ok := s.srv.Addr().(*net.TCPAddr)
	if !ok || !s.srv.JetStreamEnabled() {
		return fmt.Errorf("%w: it listens on %v, with JetStream: %v", ErrNotReady, s.srv.Addr(), s.srv.JetStreamEnabled())
	}
	s.cfg.Port = addr.Port
	return nil
}

// URL returns the address for clients.
func (s *Server) URL() string { return "nats://" + address(s.cfg.Host, s.cfg.Port) }

// InProcessConn makes a connection that does not leave the process. A client that asks for connections here, with
// nats.InProcessServer, saves the system calls of the network, and waking another process, for each message. It fails once the
// server was shut down.
func (s *Server) InProcessConn() (net.Conn, error) { return s.srv.InProcessConn() }

// Config returns the configuration with the port that the server has taken, so that another one can be started in its
// place.
func (s *Server) Config() Config { return s.cfg }

// Shutdown stops the server and waits until it has: connections are closed and streams are on disk. It may be called
// twice.
func (s *Server) Shutdown() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// probePort returns the port to give to the server: the one wanted, when it is free, or the one that means "any".
func probePort(host string, port int) (int, error) {
	if port == 0 {
		return server.RANDOM_PORT, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", address(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return 0, fmt.Errorf("%w: %s", ErrPortTaken, address(host, port))
	}
	if err != nil {
		return 0, fmt.Errorf("listening on %s: %w", address(host, port), err)
	}
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("probing %s: %w", address(host, port), err)
	}
	return port, nil
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
