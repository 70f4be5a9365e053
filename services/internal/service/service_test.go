package service_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/topology"
)

const credential = "test-credential"

// patience bounds what must happen soon.
const patience = 30 * time.Second

// running is a service under test.
type running struct {
	t     *testing.T
	addr  service.Addresses
	ready chan struct{}
	stop  context.CancelFunc
	err   chan error
}

// start runs a spec and returns when its probes are served.
func start(t *testing.T, spec service.Spec) *running {
	t.Helper()
	spec.Config.ServiceCredential = credential
	spec.Config.Grace = patience
	if spec.Name == "" {
		spec.Name = "test"
	}
	if spec.Build == nil {
		spec.Build = func(context.Context, *service.Runtime) (service.Parts, error) { return service.Parts{}, nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, ready: make(chan struct{}), stop: cancel, err: make(chan error, 1)}
	serving := make(chan service.Addresses, 1)
	go func() {
		r.err <- service.Run(ctx, spec, service.Options{
			Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
			Serving: func(a service.Addresses) { serving <- a },
			Ready:   func(service.Addresses) { close(r.ready) },
		})
		close(r.err)
	}()
	t.Cleanup(func() {
		cancel()
		for range r.err {
		}
	})
	select {
	case r.addr = <-serving:
	case err := <-r.err:
		t.Fatalf("service ended: %v", err)
	case <-time.After(patience):
		t.Fatal("probes are not served")
	}
	return r
}

func (r *running) get(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.addr.HTTP+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (r *running) awaitReady() {
	r.t.Helper()
	select {
	case <-r.ready:
	case err := <-r.err:
		r.t.Fatalf("service ended: %v", err)
	case <-time.After(patience):
		r.t.Fatal("service did not become ready")
	}
}

// awaitStatus asks a path until it answers a status.
func (r *running) awaitStatus(path string, want int) string {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		got, body := r.get(path)
		if got == want {
			return body
		}
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("GET %s: got %d %s, want %d", path, got, body, want)
		}
	}
}

func (r *running) end() error {
	r.stop()
	select {
	case err := <-r.err:
		return err
	case <-time.After(patience):
		r.t.Fatal("service did not end")
		return nil
	}
}

// gate stands before a database and lets nobody in until it is opened.
type gate struct {
	open    atomic.Bool
	refused chan struct{} // told of each connection that was refused, if anybody listens
}

func newGate(t *testing.T, databaseURL string) (*gate, string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := u.Host
	u.Host = l.Addr().String()
	g := &gate{refused: make(chan struct{}, 1)}
	var copying sync.WaitGroup
	copying.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if !g.open.Load() {
				_ = client.Close()
				select {
				case g.refused <- struct{}{}:
				default:
				}
				continue
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				copying.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		copying.Wait()
	})
	return g, u.String()
}

func TestWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	g, databaseURL := newGate(t, pgtest.URL(t))
	built := make(chan struct{})
	r := start(t, service.Spec{
		Config: service.Config{DatabaseURL: databaseURL, NATSURL: messagingtest.New(t).URL()},
		Build: func(context.Context, *service.Runtime) (service.Parts, error) {
			close(built)
			return service.Parts{}, nil
		},
	})
	<-g.refused
	if status, body := r.get("/healthz"); status != http.StatusOK {
		t.Errorf("got /healthz %d %s, want 200", status, body)
	}
	if status, body := r.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "waiting for the database") {
		t.Errorf("got /readyz %d %s, want 503 that says what is waited for", status, body)
	}
	if err := service.Healthcheck(t.Context(), r.addr.HTTP); !errors.Is(err, service.ErrNotReady) {
		t.Errorf("got healthcheck %v, want %v", err, service.ErrNotReady)
	}
	select {
	case <-built:
		t.Error("got the service built before its database was there")
	default:
	}
	g.open.Store(true)
	r.awaitReady()
	r.awaitStatus("/readyz", http.StatusOK)
	if err := service.Healthcheck(t.Context(), r.addr.HTTP); err != nil {
		t.Errorf("got healthcheck %v, want none", err)
	}
	if _, body := r.get("/metrics"); !strings.Contains(body, "go_goroutine_count") {
		t.Errorf("got no metrics: %.200s", body)
	}
	if err := r.end(); err != nil {
		t.Errorf("got error %v at the end, want none", err)
	}
}

func TestStopsWhileWaiting(t *testing.T) {
	t.Parallel()
	g, databaseURL := newGate(t, pgtest.URL(t))
	r := start(t, service.Spec{Config: service.Config{DatabaseURL: databaseURL}})
	<-g.refused
	if err := r.end(); err != nil {
		t.Errorf("got error %v, want none", err)
	}
}

func TestServesWithoutTheBroker(t *testing.T) {
	t.Parallel()
	broker := messagingtest.New(t)
	messagingtest.Stop(t, broker)
	r := start(t, service.Spec{Config: service.Config{DatabaseURL: pgtest.URL(t), NATSURL: broker.URL()}})
	r.awaitReady()
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: r.addr.GRPC, Credential: credential})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("got gRPC health %v, %v, want SERVING", resp.GetStatus(), err)
	}
	if status, body := r.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"name":"broker","ok":false`) {
		t.Errorf("got /readyz %d %s, want 503 that names the broker", status, body)
	}

	messagingtest.Restart(t, broker)
	r.awaitStatus("/readyz", http.StatusOK)
	nc, err := messaging.Connect(messaging.Config{URL: broker.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range topology.Streams(1) {
		if _, err := nc.JetStream().Stream(t.Context(), s.Name); err != nil {
			t.Errorf("looking for stream %s: %v", s.Name, err)
		}
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // after the parallel subtests
	for name, spec := range map[string]service.Spec{
		"gRPC": {GRPCAddr: l.Addr().String()},
		"HTTP": {HTTPAddr: l.Addr().String()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := service.Run(t.Context(), spec, service.Options{Logger: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), name) {
				t.Errorf("got error %v, want one that names %s and %s", err, l.Addr(), name)
			}
		})
	}
}

// What waiting cannot cure must end the service, or it would wait for ever.
func TestWrongDatabase(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/no_such_database"
	r := start(t, service.Spec{Config: service.Config{DatabaseURL: u.String()}})
	select {
	case err := <-r.err:
		if err == nil || !strings.Contains(err.Error(), "no_such_database") {
			t.Errorf("got error %v, want one that names the database", err)
		}
	case <-time.After(patience):
		t.Error("service waits for a database that does not exist")
	}
}

// The parts end before what they need: a consumer's last batch still has its pool.
func TestEndsInOrder(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		order []string
	)
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, s)
	}
	part := func(name string, pool interface{ Ping(context.Context) error }) service.Component {
		return service.Runs(name, func(stop, work context.Context) error {
			<-stop.Done()
			if err := pool.Ping(work); err != nil {
				t.Errorf("%s ended after its pool: %v", name, err)
			}
			note(name)
			return nil
		})
	}
	r := start(t, service.Spec{
		Config: service.Config{DatabaseURL: pgtest.URL(t), NATSURL: messagingtest.New(t).URL()},
		Build: func(_ context.Context, rt *service.Runtime) (service.Parts, error) {
			return service.Parts{Components: []service.Component{part("first", rt.Pool), part("second", rt.Pool)}}, nil
		},
	})
	r.awaitReady()
	if err := r.end(); err != nil {
		t.Errorf("got error %v, want none", err)
	}
	if got := strings.Join(order, " "); got != "second first" {
		t.Errorf("got end order %q, want %q", got, "second first")
	}
}

// A message goes through a consumer into the transaction of its Apply, once.
func TestConsumer(t *testing.T) {
	t.Parallel()
	broker := messagingtest.New(t)
	applied := make(chan messaging.Delivery, 1)
	r := start(t, service.Spec{
		Config: service.Config{DatabaseURL: pgtest.URL(t), NATSURL: broker.URL()},
		Build: func(_ context.Context, rt *service.Runtime) (service.Parts, error) {
			apply := func(ctx context.Context, batch []messaging.Delivery) error {
				if err := rt.Pool.Ping(ctx); err != nil {
					return err
				}
				applied <- batch[0]
				return nil
			}
			return service.Parts{Consumers: []service.Consumer{{ConsumerConfig: topology.PaymentConsumer(), Apply: apply}}}, nil
		},
	})
	r.awaitReady()
	nc, err := messaging.Connect(messaging.Config{URL: broker.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := command(t)
	if _, err := nc.Publish(t.Context(), &m).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-applied:
		if d.ID != m.ID {
			t.Errorf("got message %s, want %s", d.ID, m.ID)
		}
	case <-time.After(patience):
		t.Error("message did not arrive")
	}
}

type settings struct {
	service.Config
	HTTPAddr string `env:"HTTP_ADDR" envDefault:"127.0.0.1:0"`
}

func TestProgram(t *testing.T) {
	t.Parallel()
	errRan := errors.New("ran")
	for _, tc := range []struct {
		name    string
		args    []string
		environ []string
		want    string // in the error
	}{
		{"runs", []string{"order"}, []string{"NATS_URL=nats://n:1", "THROUGHLINE_EMBEDDED=1"}, "ran nats://n:1"},
		{"unknown argument", []string{"order", "serve"}, nil, service.ErrArguments.Error()},
		{"misspelt setting", []string{"order"}, []string{"THROUGHLINE_HTTP_ADR=x"}, "THROUGHLINE_HTTP_ADDR"},
		{"faults in a binary without", []string{"order"}, []string{fault.EnvVar + "=outbox.publishing=kill:1"}, fault.EnvVar},
		{"healthcheck without a service", []string{"order", "healthcheck"}, []string{"THROUGHLINE_HTTP_ADDR=127.0.0.1:1"}, "127.0.0.1:1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.name == "faults in a binary without" && fault.Enabled {
				tc.environ, tc.want = []string{fault.EnvVar + "=no.such=kill:1"}, "no.such"
			}
			err := service.Main(t.Context(), tc.args, tc.environ, func(_ context.Context, c settings, _ service.Options) error {
				return errors.Join(errors.New("ran "+c.NATSURL), errRan)
			}, func(c settings) string { return c.HTTPAddr })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q in it", err, tc.want)
			}
		})
	}
}
