package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/scripts/bench/ceiling"
	"github.com/throughline/throughline/scripts/bench/cluster"
	"github.com/throughline/throughline/scripts/bench/host"
	"github.com/throughline/throughline/scripts/bench/load"
)

// The systems, as the results call them.
const (
	ceilingSingle  = "ceiling_single"
	ceilingBatched = "ceiling_batched"
	inProcess      = "inprocess"
	overHTTP       = "http"
	apart          = "apart"
	sampled        = "sampled"
	traced         = "traced"
)

// sampledPart is the part of all traces that is recorded in the system of that name.
const sampledPart = 0.1

// tracing tells whether a system records traces.
func tracing(name string) bool { return name == sampled || name == traced }

// isVariant tells whether a system is the product in another arrangement, which is compared with inProcess.
func isVariant(name string) bool { return name == apart || tracing(name) }

// system is a system that runs.
type system struct {
	doer load.Doer
	// hosts are its processes, by role.
	hosts map[string]*host.Process
	// watched is the set of databases whose outboxes show when messages were committed, and broker where they are published;
	// empty for a ceiling, which publishes nothing.
	watched, broker string
	// settle waits until what nobody waits for has been done, too.
	settle func(context.Context) error
	stop   func() error
}

// template is the set of databases that the product has migrated.
const template = "template"

// record runs an order through the real services and notes what they send to their databases. It leaves the template.
func (b *bench) record(ctx context.Context) (_ *ceiling.Story, err error) {
	if err := b.cluster.Create(ctx, template); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(b.dir, "record.log"))
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	defer log.Close()
	dir := filepath.Join(b.dir, "record")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	var recorder ceiling.Recorder
	tracers := make(map[string]pgx.QueryTracer)
	for _, service := range cluster.Services() {
		tracers[service] = recorder.Tracer(service)
	}
	services, err := host.StartServices(ctx, b.needs(template, ""), dir, log, tracers)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, services.Stop()) }()
	shop, err := load.NewShop(ctx, services.URL, services.NATS, host.Client, host.APIKey)
	if err != nil {
		return nil, err
	}
	defer shop.Close()
	// The first order opens connections; the second is the one that is kept.
	if err := shop.Do(ctx, func() {}); err != nil {
		return nil, err
	}
	if err := b.awaitEmptyOutboxes(ctx, template); err != nil {
		return nil, err
	}
	recorder.Reset()
	key, id := shop.Next()
	if err := shop.Place(ctx, key, id, func() {}); err != nil {
		return nil, err
	}
	if err := b.awaitEmptyOutboxes(ctx, template); err != nil {
		return nil, err
	}
	return recorder.Story(id, key)
}

// needs are those of services whose databases are in a set.
func (b *bench) needs(set, broker string) host.Needs {
	n := host.Needs{Databases: make(map[string]string), NATS: broker}
	for _, service := range cluster.Services() {
		n.Databases[service] = b.cluster.ServiceURL(set, service)
	}
	return n
}

// start starts a system on a set of databases.
func (b *bench) start(ctx context.Context, label, name, set string) (*system, error) {
	switch name {
	case ceilingSingle:
		return b.ceiling(ctx, set, ceiling.Config{Batch: 1, Threads: singleThreads}, singleConns)
	case ceilingBatched:
		return b.ceiling(ctx, set, ceiling.Config{Batch: 100, Threads: batchedThreads}, batchedConns)
	case inProcess, overHTTP, apart, sampled, traced:
		return b.product(ctx, label, name, set)
	}
	return nil, fmt.Errorf("there is no system %q", name)
}

// What was best for the ceilings where it was tried; see README.md.
const (
	singleThreads, singleConns   = 16, 16
	batchedThreads, batchedConns = 1, 8
)

func (b *bench) ceiling(ctx context.Context, set string, cfg ceiling.Config, conns int32) (*system, error) {
	cfg.Story, cfg.Pools = b.story, make(map[string]*pgxpool.Pool)
	closeAll := func() {
		for _, pool := range cfg.Pools {
			pool.Close()
		}
	}
	for _, service := range cluster.Services() {
		// As the services open theirs.
		pool, err := postgres.Open(ctx, postgres.Config{URL: b.cluster.ServiceURL(set, service), MaxConns: conns, PlanOnce: true, AppName: "bench"})
		if err != nil {
			closeAll()
			return nil, err
		}
		cfg.Pools[service] = pool
	}
	player := ceiling.NewPlayer(cfg)
	return &system{doer: player, settle: player.Settle, stop: func() error {
		player.Close()
		closeAll()
		return nil
	}}, nil
}

func (b *bench) product(ctx context.Context, label, name, set string) (_ *system, err error) {
	dir := filepath.Join(b.dir, label)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	s := &system{
		hosts: make(map[string]*host.Process), watched: set,
		settle: func(ctx context.Context) error { return b.awaitEmptyOutboxes(ctx, set) },
	}
	stopHosts := func() error {
		var errs []error
		for _, role := range []string{host.RoleServices, host.RoleSimulators, host.RoleCollector, host.RoleJetStream} {
			errs = append(errs, s.hosts[role].Stop())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stopHosts())
		}
	}()
	launch := func(o host.Order) (*host.Process, error) {
		o.Dir = dir
		if b.profile {
			o.Profile = filepath.Join(b.dir, label+"."+o.Role+".pprof")
		}
		p, err := host.Launch(ctx, o)
		if err == nil {
			s.hosts[o.Role] = p
		}
		return p, err
	}
	needs := b.needs(set, "")
	if name == apart {
		broker, err := launch(host.Order{Role: host.RoleJetStream})
		if err != nil {
			return nil, err
		}
		needs.NATS = broker.URL
	}
	if name == overHTTP {
		sims, err := launch(host.Order{Role: host.RoleSimulators})
		if err != nil {
			return nil, err
		}
		needs.Provider, needs.Carrier = sims.URL, sims.Carrier
	}
	if tracing(name) {
		collector, err := launch(host.Order{Role: host.RoleCollector})
		if err != nil {
			return nil, err
		}
		needs.OTLP, needs.TraceRatio = collector.URL, 1
		if name == sampled {
			needs.TraceRatio = sampledPart
		}
	}
	services, err := launch(host.Order{Role: host.RoleServices, Needs: needs})
	if err != nil {
		return nil, err
	}
	s.broker = services.NATS
	shop, err := load.NewShop(ctx, services.URL, s.broker, host.Client, host.APIKey)
	if err != nil {
		return nil, err
	}
	s.doer = shop
	s.stop = func() error {
		shop.Close()
		return stopHosts()
	}
	return s, nil
}
