package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/lifecycle"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/internal/trail"
)

const (
	retryFirst = 200 * time.Millisecond
	retryMax   = 5 * time.Second
)

// tracerName names the tracer of messages, outboxMeter the meter of the outbox.
const (
	tracerName     = "github.com/throughline/throughline/pkg/messaging"
	messagingMeter = tracerName
	outboxMeter    = "github.com/throughline/throughline/pkg/outbox"
	inboxMeter     = "github.com/throughline/throughline/pkg/inbox"
)

// state is what readiness says about a service as a whole. run writes it, probes read it.
type state struct {
	mu      sync.Mutex
	waiting string // what the start-up waits for
	parts   *lifecycle.Group
}

func (s *state) set(waiting string, parts *lifecycle.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting, s.parts = waiting, parts
}

func (s *state) check(ctx context.Context) error {
	s.mu.Lock()
	waiting, parts := s.waiting, s.parts
	s.mu.Unlock()
	if parts != nil {
		return parts.Check(ctx)
	}
	return fmt.Errorf("%w: %s", errStarting, waiting)
}

// run waits for what the service needs, builds it and runs its parts.
func (s *server) run(stop, work context.Context, ready func()) error {
	s.state.set("waiting for the database", nil)
	owner := s.owner()
	pool, err := s.openDatabase(stop, owner)
	if err != nil {
		return ended(stop, err)
	}
	defer pool.Close()
	s.state.set("building the service", nil)
	conn, err := messaging.Connect(messaging.Config{
		URL: s.spec.Config.NATSURL, InProcess: s.opts.Broker, Name: s.spec.Name, Logger: s.log, Tracer: s.tracer(),
		Meter: s.tel.Meter(messagingMeter),
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	group, err := s.build(stop, owner, pool, conn)
	if err != nil {
		return ended(stop, err)
	}
	s.state.set("", group)
	return group.Run(stop, work, ready)
}

// ended turns an error into an ordinary end if the service was told to stop while it started.
func ended(stop context.Context, err error) error {
	if stop.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// openDatabase waits for the database and migrates it. Connections have the name of this instance, which rows that are to tell who
// has written them take from there.
func (s *server) openDatabase(ctx context.Context, owner string) (*pgxpool.Pool, error) {
	cfg := postgres.Config{
		URL: s.spec.Config.DatabaseURL, MaxConns: s.spec.Config.DatabaseConns, AppName: owner, Logger: s.log,
		PlanOnce: true, StatementTimeout: statementTimeout,
	}
	if s.tel.Exporting() {
		cfg.Tracer = batches{otelpgx.NewTracer(otelpgx.WithTracerProvider(s.tel.TracerProvider()))}
	}
	if s.opts.QueryTracer != nil {
		cfg.Tracer = s.opts.QueryTracer
	}
	pool, err := postgres.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s.health.AddCheck("database", pool.Ping)
	sets := append([]postgres.Migrations{outbox.Migrations(), inbox.Migrations(), trail.Migrations()}, s.spec.Migrations...)
	wait := retryFirst
	for {
		err := postgres.Migrate(ctx, pool, sets...)
		if err == nil {
			return pool, nil
		}
		if class := postgres.Classify(err); ctx.Err() != nil || class != postgres.Unavailable && class != postgres.LockTimeout {
			pool.Close()
			return nil, err
		}
		s.log.WarnContext(ctx, "migrations not completed, trying again", "error", err, "in", wait)
		pause(ctx, wait)
		wait = min(2*wait, retryMax)
	}
}

// build makes the parts, in the order in which they start.
func (s *server) build(ctx context.Context, owner string, pool *pgxpool.Pool, conn *messaging.Conn) (*lifecycle.Group, error) {
	rt := &Runtime{
		Name: s.spec.Name, Owner: owner, Logger: s.log, Telemetry: s.tel, Pool: pool, Gate: postgres.NewGate(s.opts.ServerGate), Conn: conn,
		Relay: outbox.NewRelay(pool, conn, outbox.Config{
			Owner: owner, Retention: s.spec.Config.OutboxRetention, Logger: s.log, Meter: s.tel.Meter(outboxMeter),
		}),
		Outside: s.opts.Outside, Local: s.opts.Local,
	}
	parts, err := s.spec.Build(ctx, rt)
	if err != nil {
		return nil, fmt.Errorf("building the %s service: %w", s.spec.Name, err)
	}
	told, err := s.measure(pool, parts.Consumers)
	if err != nil {
		return nil, err
	}
	processors := make([]*inbox.Processor, len(parts.Consumers))
	for i, c := range parts.Consumers {
		processors[i] = &inbox.Processor{
			Pool: pool, Consumer: c.Name, Apply: c.Apply, Sequenced: c.Sequenced, Recorded: c.Recorded, Logger: s.log,
			Told: told, Tracer: s.tracer(),
		}
	}
	register, upkeep, err := s.operate(rt, &parts, processors)
	if err != nil {
		return nil, err
	}
	api, err := grpcx.NewServer(grpcx.ServerConfig{
		Credentials: []string{s.spec.Config.ServiceCredential}, Telemetry: s.tel, Logger: s.log,
		Operators: grpcx.Operators{
			Services: append(operatorServices(), parts.Operators...), Shared: sharedServices(),
			Credentials: []string{s.spec.Config.OperatorCredential},
		},
	})
	if err != nil {
		return nil, err
	}
	if parts.Register != nil {
		parts.Register(api)
	}
	register(api)

	group := lifecycle.New(s.log, s.spec.Config.Grace)
	streams := &streams{conn: conn, log: s.log, want: topology.Streams(s.spec.Config.StreamReplicas)}
	group.AddFunc("streams", streams.run)
	for _, c := range slices.Concat([]Component{Runs("relay", rt.Relay.Run)}, upkeep, parts.Components) {
		group.Add(c.Name, c.Component)
	}
	for i, c := range parts.Consumers {
		group.AddFunc(c.Name, consume(rt, c, processors[i]))
	}
	group.AddFunc("grpc", func(stop, work context.Context, ready func()) error {
		if parts.Draining != nil {
			defer context.AfterFunc(stop, parts.Draining)()
		}
		return serveGRPC(api, s.opts.Local.Listen(s.grpc), stop, work, ready)
	})
	if s.webhooks != nil && parts.Webhooks != nil {
		group.AddFunc("webhooks", func(stop, work context.Context, ready func()) error {
			return s.serveHTTP(s.webhooks, parts.Webhooks, stop, work, ready)
		})
	}

	s.health.AddCheck("broker", conn.Check)
	s.health.AddCheck("streams", streams.check)
	s.health.AddCheck("relay", rt.Relay.Ready)
	for _, c := range parts.Checks {
		s.health.AddCheck(c.Name, c.Check)
	}
	return group, nil
}

// measure makes the instruments of the consumers, and those of the connections to the database.
func (s *server) measure(pool *pgxpool.Pool, consumers []Consumer) (*inbox.Instruments, error) {
	err := otelpgx.RecordStats(pool, otelpgx.WithStatsMeterProvider(s.tel.MeterProvider()))
	if err != nil {
		return nil, fmt.Errorf("measuring the connections to the database: %w", err)
	}
	names := make([]string, len(consumers))
	for i, c := range consumers {
		names[i] = c.Name
	}
	return inbox.NewInstruments(pool, s.tel.Meter(inboxMeter), names...)
}

// gatePatience is how long a consumer waits for the other writers of its process: some times what a batch takes.
const gatePatience = 25 * time.Millisecond

// consume runs one consumer until it is told to stop.
func consume(rt *Runtime, c Consumer, p *inbox.Processor) lifecycle.Func {
	return func(stop, work context.Context, ready func()) error {
		ready() // it waits for the broker by itself
		c.Enter = func(ctx context.Context) func() { return rt.Gate.Enter(ctx, gatePatience) }
		return rt.Conn.Consume(stop, work, c.ConsumerConfig, p.Handle)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
