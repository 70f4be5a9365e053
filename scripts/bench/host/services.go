package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/config"
	"github.com/throughline/throughline/pkg/localnet"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
	"github.com/throughline/throughline/services/gateway"
	"github.com/throughline/throughline/services/order"
	"github.com/throughline/throughline/services/payment"
	"github.com/throughline/throughline/services/shipping"
)

// startTimeout is how long services may take to get ready on a busy machine.
const startTimeout = time.Minute

// Needs are what services depend on.
type Needs struct {
	// Databases are the URLs, by service.
	Databases map[string]string
	// NATS is the broker; empty means one in the process of the services.
	NATS string
	// Provider and Carrier are the URLs of the simulators. Empty means that they are answered in process.
	Provider, Carrier string
	// OTLP is where traces go; none when empty.
	OTLP string
	// TraceRatio is the part of all traces that is recorded.
	TraceRatio float64
}

// Services are the running services, all in this process.
type Services struct {
	// URL is the gateway's, NATS the broker's.
	URL, NATS string
	broker    *natsserver.Server // nil if it runs elsewhere
	stop      context.CancelFunc
	wg        sync.WaitGroup
	mu        sync.Mutex
	errs      []error
}

// StartServices runs the services with their settings as they come, and the broker with them, as the product's own command line does. It
// returns when they are ready. Files are kept in dir. tracers see the services' queries, by service; nil leaves them alone.
func StartServices(ctx context.Context, n Needs, dir string, log io.Writer, tracers map[string]pgx.QueryTracer) (*Services, error) {
	ports, err := freePorts(8)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Services{NATS: n.NATS, stop: stop}
	logger := slog.New(slog.NewJSONHandler(log, nil))
	var broker nats.InProcessConnProvider
	if n.NATS == "" {
		if s.broker, err = StartJetStream(dir, log); err != nil {
			stop()
			return nil, err
		}
		s.NATS, broker = s.broker.URL(), s.broker
	}
	grpc := map[string]string{"gateway": ports[0], "order": ports[1], "payment": ports[2], "shipping": ports[3]}
	ops := map[string]string{"gateway": ports[4], "order": ports[5], "payment": ports[6], "shipping": ports[7]}
	environ := func(service string, more ...string) []string {
		env := []string{
			"THROUGHLINE_GRPC_ADDR=" + grpc[service], "THROUGHLINE_HTTP_ADDR=" + ops[service],
			"THROUGHLINE_SERVICE_CREDENTIAL=bench", "OTEL_EXPORTER_OTLP_ENDPOINT=" + n.OTLP,
			"OTEL_TRACES_SAMPLER=" + telemetry.SamplerRatio, "OTEL_TRACES_SAMPLER_ARG=" + strconv.FormatFloat(n.TraceRatio, 'g', -1, 64),
		}
		if url := n.Databases[service]; url != "" {
			env = append(env, "DATABASE_URL="+url, "NATS_URL="+s.NATS)
		}
		return append(env, more...)
	}
	gate, local := postgres.NewServerGate(runtime.GOMAXPROCS(0)), localnet.New()
	options := func(service string) order.Options {
		return order.Options{Logger: logger.With("service", service), QueryTracer: tracers[service], Broker: broker, Local: local, ServerGate: gate}
	}
	payments, shipments := options("payment"), options("shipping")
	if n.Provider == "" {
		payments.Outside = &provider{}
	}
	if n.Carrier == "" {
		shipments.Outside = &carrier{}
	}
	start(running, s, "shipping", environ("shipping", "THROUGHLINE_CARRIER_URL="+n.Carrier), shipments, shipping.RunWith)
	start(running, s, "payment", environ("payment", "THROUGHLINE_PROVIDER_URL="+n.Provider, "THROUGHLINE_PROVIDER_KEY="+ProviderKey), payments, payment.RunWith)
	start(running, s, "order", environ("order", "THROUGHLINE_PAYMENT_ADDR="+grpc["payment"], "THROUGHLINE_SHIPPING_ADDR="+grpc["shipping"]), options("order"), order.RunWith)
	start(running, s, "gateway", environ("gateway", "THROUGHLINE_ORDER_ADDR="+grpc["order"], "THROUGHLINE_API_KEYS="+Client+"="+APIKey), options("gateway"), gateway.RunWith)
	for _, addr := range ops {
		if err := s.awaitReady(ctx, running, addr); err != nil {
			return nil, errors.Join(fmt.Errorf("starting the services: %w", err), s.Stop())
		}
	}
	s.URL = "http://" + ops["gateway"]
	return s, nil
}

// awaitReady waits until the service whose HTTP address is addr says that it is ready.
func (s *Services) awaitReady(ctx, running context.Context, addr string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("it is not ready after %s", startTimeout))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready(ctx, addr) {
			return nil
		}
		select {
		case <-tick.C:
		case <-running.Done():
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errEnded says that a service ended before it was ready; why is among the services' errors.
var errEnded = errors.New("a service has ended")

func ready(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// start runs one service. When one ends by itself, all do.
func start[C any](ctx context.Context, s *Services, name string, environ []string, o order.Options, run func(context.Context, C, order.Options) error) {
	s.wg.Go(func() {
		cfg, err := config.Load[C](config.Prefix, environ)
		if err == nil {
			err = run(ctx, cfg, o)
		}
		if err != nil {
			s.mu.Lock()
			s.errs = append(s.errs, fmt.Errorf("running %s: %w", name, err))
			s.mu.Unlock()
		}
		s.stop()
	})
}

// Stop stops the services.
func (s *Services) Stop() error {
	s.stop()
	s.wg.Wait()
	if s.broker != nil {
		s.broker.Shutdown()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// freePorts gives n addresses on loopback that nobody listens on.
func freePorts(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer l.Close()
		addrs[i] = l.Addr().String()
	}
	return addrs, nil
}
