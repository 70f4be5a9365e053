package stack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"time"

	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgcluster"
	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/payment"
)

// providerKey is what the payment simulator accepts. It protects nothing: the simulator moves no money.
const providerKey = "sk_test_throughline"

// stopTimeout bounds the shutdown of Postgres, which checkpoints.
const stopTimeout = 30 * time.Second

// startTimeout bounds its start, which may recover from a crash or, the first time, install Postgres.
const startTimeout = 10 * time.Minute

// addPlatform adds what the services depend on to a group, and fills in where it is found.
func (s *Stack) addPlatform(g *lifecycle.Group, n *needs) error {
	o := &s.options
	if n.credential = o.Credential; n.credential == "" {
		n.credential = secret()
	}
	var err error
	if n.operator, err = o.keptCredential(o.Operator, operatorFile); err != nil {
		return err
	}
	if n.console, err = o.keptCredential(o.Console, consoleFile); err != nil {
		return err
	}
	e := o.External
	if o.Embedded() {
		g.AddFunc("postgres", s.postgres(n))
		g.AddFunc("jetstream", s.jetstream(n))
	} else {
		n.databases = map[string]string{Order: e.OrderDatabase, Payment: e.PaymentDatabase, Shipping: e.ShippingDatabase}
		n.nats = e.NATS
	}
	n.provider, n.providerKey, n.carrier = e.Provider, e.ProviderKey, e.Carrier
	n.providerWebhookSecret, n.carrierWebhookSecret = e.ProviderWebhookSecret, e.CarrierWebhookSecret
	// Simulators send to the first instance. Any would do: what a webhook leads to is in the database that all of them share.
	if n.provider == "" {
		n.provider, n.providerKey = "http://"+o.addr(o.Ports.Provider, 0), providerKey
		cfg := payment.Config{
			DataDir: filepath.Join(o.Data, "payment-provider"), APIKey: providerKey, Logger: o.Logger.With("service", "payment-simulator"),
		}
		if o.Webhooks {
			n.providerWebhookSecret = "whsec_" + secret()
			cfg.WebhookURL, cfg.WebhookSecret = s.ProviderWebhookURL(), n.providerWebhookSecret
		}
		server, err := payment.New(cfg)
		if err != nil {
			return fmt.Errorf("opening the payment simulator's ledger: %w", err)
		}
		g.AddFunc("payment simulator", serve(server, o.addr(o.Ports.Provider, 0)))
	}
	if n.carrier == "" {
		n.carrier = "http://" + o.addr(o.Ports.Carrier, 0)
		cfg := carrier.Config{
			DataDir: filepath.Join(o.Data, "carrier"), Logger: o.Logger.With("service", "carrier-simulator"),
		}
		if o.Webhooks {
			n.carrierWebhookSecret = "whsec_" + secret()
			cfg.WebhookURL, cfg.WebhookSecret = s.CarrierWebhookURL(), n.carrierWebhookSecret
		}
		server, err := carrier.New(cfg)
		if err != nil {
			return fmt.Errorf("opening the carrier simulator's ledger: %w", err)
		}
		g.AddFunc("carrier simulator", serve(server, o.addr(o.Ports.Carrier, 0)))
	}
	return nil
}

func (s *Stack) postgres(n *needs) lifecycle.Func {
	return func(stop, _ context.Context, ready func()) error {
		starting, cancel := context.WithTimeout(stop, startTimeout)
		defer cancel()
		s.say("starting Postgres")
		cluster, err := pgcluster.Start(starting, pgcluster.Config{
			Dir: filepath.Join(s.options.Data, "postgres"), Port: s.options.Ports.Postgres, Install: true, Progress: s.options.Progress,
		})
		if err != nil {
			return fmt.Errorf("starting Postgres: %w", err)
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), stopTimeout)
			defer cancel()
			if err := cluster.Stop(ctx); err != nil {
				s.options.Logger.Error("stopping Postgres failed", "service", "throughline", "error", err)
			}
		}()
		n.databases, n.gate = make(map[string]string), postgres.NewServerGate(runtime.GOMAXPROCS(0))
		for _, service := range []string{Order, Payment, Shipping} {
			name, password := "throughline_"+service, secret()
			if err := cluster.CreateDatabase(starting, name, name, password); err != nil {
				return err
			}
			n.databases[service] = cluster.SocketURL(name, name, password)
		}
		ready()
		select {
		case <-stop.Done():
			return nil
		case <-cluster.Done():
			return fmt.Errorf("running Postgres: it ended by itself; its log is %s", cluster.LogPath())
		}
	}
}

func (s *Stack) jetstream(n *needs) lifecycle.Func {
	return func(stop, _ context.Context, ready func()) error {
		server, err := natsserver.Start(natsserver.Config{
			Host: s.options.Host, Port: s.options.Ports.NATS, StoreDir: filepath.Join(s.options.Data, "jetstream"),
			Logger: s.options.Logger.With("service", "jetstream"),
		})
		if err != nil {
			return fmt.Errorf("starting JetStream: %w", err)
		}
		defer server.Shutdown()
		n.nats, n.broker = server.URL(), server
		ready()
		<-stop.Done()
		return nil
	}
}

// simulator is either simulator.
type simulator interface {
	Serve(ctx context.Context, ln net.Listener) error
	Close() error
}

func serve(server simulator, addr string) lifecycle.Func {
	return func(stop, _ context.Context, ready func()) (err error) {
		defer func() { err = errors.Join(err, server.Close()) }()
		var listen net.ListenConfig
		ln, err := listen.Listen(stop, "tcp", addr)
		if err != nil {
			return fmt.Errorf("listening on %s: %w", addr, err)
		}
		ready()
		return server.Serve(stop, ln)
	}
}

// secret makes a password that lasts as long as the stack runs.
func secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
