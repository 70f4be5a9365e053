package natsserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster says with which other servers a server forms a cluster. [StartCluster] fills it in; a member that was stopped is
// started again with its own [Server.Config].
type Cluster struct {
	// Name is the same for all members.
	Name string

	// Port is where the others reach this one, on [Config.Host]. That connection is not authenticated: keep it on
	// loopback.
	Port int

	// Members are the addresses, as host:port, where all members reach each other, this one included.
	Members []string
}

// apply sets the server's options for the cluster.
func (c Cluster) apply(opts *server.Options) error {
	if c.Port == 0 && c.Name == "" && len(c.Members) == 0 {
		return nil
	}
	if c.Port <= 0 || c.Name == "" || len(c.Members) == 0 || opts.ServerName == "" {
		return errors.New("a member of a cluster needs a server name, and the cluster's name, port and members")
	}
	// NoAdvertise: a client is given the servers that it may use, and learns no others on the way.
	opts.Cluster = server.ClusterOpts{Name: c.Name, Host: opts.Host, Port: c.Port, NoAdvertise: true}
	for _, m := range c.Members {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats-route", Host: m})
	}
	return nil
}

// clusterTries bounds the starts of a cluster. Its ports are chosen before the servers listen on them, because every server
// has to know those of all; in between, somebody else may take one.
const clusterTries = 3

// StartCluster runs n servers that form a cluster, and returns once they have found each other and elected a leader, so
// that streams with up to n replicas can be created. Names are made from cfg.ServerName ("nats" by default) and a number
// from 1, and each server has a folder of that name in cfg.StoreDir; all ports are free ones. The caller shuts each
// server down.
//
// With fewer than half of the servers running, JetStream answers nothing.
func StartCluster(cfg Config, n int) ([]*Server, error) {
	switch {
	case cfg.StoreDir == "":
		return nil, errors.New("starting a NATS cluster: no store folder given")
	case cfg.Port != 0:
		return nil, errors.New("starting a NATS cluster: a port is given, but every server needs one of its own")
	case n < 2:
		return nil, fmt.Errorf("starting a NATS cluster: %d servers are none", n)
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.ServerName == "" {
		cfg.ServerName = "nats"
	}
	var err error
	for range clusterTries {
		var servers []*Server
		if servers, err = startMembers(cfg, n); err == nil {
			return servers, nil
		}
		if !errors.Is(err, ErrNotReady) {
			break
		}
	}
	return nil, fmt.Errorf("starting a NATS cluster of %d: %w", n, err)
}

func startMembers(cfg Config, n int) (servers []*Server, err error) {
	defer func() {
		if err != nil {
			for _, s := range servers {
				s.Shutdown()
			}
			servers = nil
		}
	}()
	ports, err := freePorts(cfg.Host, n)
	if err != nil {
		return nil, err
	}
	cluster := Cluster{Name: cfg.ServerName + "-cluster"}
	for _, p := range ports {
		cluster.Members = append(cluster.Members, address(cfg.Host, p))
	}
	for i, p := range ports {
		member := cfg
		member.ServerName = fmt.Sprintf("%s-%d", cfg.ServerName, i+1)
		member.StoreDir = filepath.Join(cfg.StoreDir, member.ServerName)
		member.Cluster = cluster
		member.Cluster.Port = p
		s, err := Start(member)
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	return servers, waitFormed(servers)
}

// waitFormed waits until the servers have a leader that sees all of them.
func waitFormed(servers []*Server) error {
	formed := func() bool {
		return slices.ContainsFunc(servers, func(s *Server) bool { return len(s.srv.JetStreamClusterPeers()) == len(servers) }) &&
			!slices.ContainsFunc(servers, func(s *Server) bool { return !s.srv.JetStreamIsCurrent() })
	}
	const poll = 20 * time.Millisecond // the server has no signal for it
	tick := time.NewTicker(poll)
	defer tick.Stop()
	deadline := time.After(readyTimeout)
	for !formed() {
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("%w: no leader that sees all servers in %s", ErrNotReady, readyTimeout)
		}
	}
	return nil
}

// freePorts finds n ports that are free at this moment.
func freePorts(host string, n int) ([]int, error) {
	var ports []int
	var lc net.ListenConfig
	for range n {
		l, err := lc.Listen(context.Background(), "tcp", address(host, 0))
		if err != nil {
			return nil, fmt.Errorf("looking for free ports on %s: %w", host, err)
		}
		defer l.Close() // all at the end, or one would be found twice
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("looking for free ports on %s: got the address %v", host, l.Addr())
		}
		ports = append(ports, addr.Port)
	}
	return ports, nil
}

// URLs gives the addresses of servers as one list for clients.
func URLs(servers []*Server) string {
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = s.URL()
	}
	return strings.Join(urls, ",")
}
