package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/postgres/pgcluster"
	"github.com/throughline/throughline/scripts/bench/ceiling"
	"github.com/throughline/throughline/scripts/bench/cluster"
	"github.com/throughline/throughline/scripts/bench/load"
	"github.com/throughline/throughline/scripts/bench/meter"
)

// bench is one run.
type bench struct {
	options
	cluster *cluster.Cluster
	story   *ceiling.Story
	began   time.Time
}

// errNoise says that a run is no measurement.
var errNoise = errors.New("the batched ceiling is below three times the single one: something else takes the machine, or the ceiling is wrong")

// leastBatching is what batches must be worth at 64 in flight.
const leastBatching = 3

// clusterDir is the cluster's folder. It is removed in the end: with millions of orders it takes tens of gigabytes.
const clusterDir = "postgres"

// measure makes a run, prints its table, and keeps its results.
func measure(ctx context.Context, o options) (err error) {
	b := &bench{options: o, began: time.Now()}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	home := filepath.Join(b.dir, clusterDir)
	if err := pgcluster.Remove(ctx, home); err != nil {
		return fmt.Errorf("removing the cluster of an earlier run: %w", err)
	}
	free, err := meter.Room(b.dir)
	if err != nil {
		return err
	}
	if err := checkRoom(b.stored, free); err != nil {
		return err
	}
	b.say("starting Postgres in %s", home)
	if b.cluster, err = cluster.Start(ctx, cluster.Config{Dir: home, Settings: b.settings, Progress: io.Discard}); err != nil {
		return err
	}
	defer func() {
		last := context.WithoutCancel(ctx)
		err = errors.Join(err, b.cluster.Stop(last), pgcluster.Remove(last, home))
	}()
	b.say("recording one order of the real services")
	if b.story, err = b.record(ctx); err != nil {
		return fmt.Errorf("recording an order: %w", err)
	}
	b.cluster.CountAsync(b.story.Async())
	for _, p := range b.story.Parts() {
		b.say("  %-8s %-8s %d visits, %d transactions, %d statements", p.Database, p.Name, p.Visits, p.Transactions, p.Statements)
	}
	b.say("storing %d orders beside it, so that no table is empty", b.plan.stored)
	if err := b.store(ctx, template, b.plan.stored); err != nil {
		return err
	}
	names := b.systems
	if len(names) == 0 {
		names = []string{ceilingSingle, ceilingBatched, inProcess, overHTTP}
		if !b.plan.quick {
			names = append(names, sampled, traced)
		}
	}
	rounds := make(map[string][]figures)
	for round := range b.plan.rounds {
		// Each round begins with another system, so that none has always the same one before it.
		for i := range names {
			name := names[(i+round)%len(names)]
			b.say("round %d of %d: %s", round+1, b.plan.rounds, name)
			f, err := b.one(ctx, name)
			if err != nil {
				return fmt.Errorf("measuring %s: %w", name, err)
			}
			rounds[name] = append(rounds[name], f)
		}
	}
	r := newResults(b)
	for _, name := range names {
		r.systems[name] = medians(rounds[name])
	}
	if err := b.withStored(ctx, r); err != nil {
		return err
	}
	r.addRatios()
	if err := r.save(filepath.Join(b.dir, "latest.json")); err != nil {
		return err
	}
	if err := r.print(b.out); err != nil {
		return err
	}
	single, batched := r.systems[ceilingSingle], r.systems[ceilingBatched]
	if single != nil && batched != nil && batched[keyRate] < leastBatching*single[keyRate] {
		return fmt.Errorf("%w: %.0f and %.0f orders/s", errNoise, batched[keyRate], single[keyRate])
	}
	return nil
}

// one measures a system from its start to its end.
func (b *bench) one(ctx context.Context, name string) (f figures, err error) {
	s, err := b.start(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(), b.cluster.Drop(context.WithoutCancel(ctx), name)) }()
	f = make(figures)
	if err := b.cluster.Forget(ctx); err != nil {
		return nil, err
	}
	if err := b.saturate(ctx, s, inFlight, "", f); err != nil {
		return nil, err
	}
	if err := b.sayTop(ctx); err != nil {
		return nil, err
	}
	if tracing(name) {
		return f, nil
	}
	if err := b.saturate(ctx, s, inFlightMany, suffixMany, f); err != nil {
		return nil, err
	}
	if b.plan.quick && name == overHTTP {
		return f, nil
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if err := b.quiet(ctx, s, idle, b.plan.idle, func() *load.Run { return load.Closed(ctx, s.doer, 1) }, f); err != nil {
		return nil, err
	}
	if b.plan.quick && name != inProcess {
		return f, nil
	}
	rate := f[keyRate] / 2
	if err := b.quiet(ctx, s, half, b.plan.half, func() *load.Run { return load.Open(ctx, s.doer, rate) }, f); err != nil {
		return nil, err
	}
	return f, nil
}

// saturate keeps n orders in flight, and counts what they cost.
func (b *bench) saturate(ctx context.Context, s *system, n int, suffix string, f figures) error {
	run := load.Closed(ctx, s.doer, n)
	err := pause(ctx, b.plan.warm)
	var before, after reading
	if err == nil {
		before, err = b.read(ctx, s)
	}
	if err == nil {
		err = pause(ctx, b.plan.saturated)
	}
	if err == nil {
		after, err = b.read(ctx, s)
	}
	samples, failed := run.Stop()
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	samples = load.Within(samples, before.at, after.at)
	if len(samples) == 0 {
		return errors.New("no order was completed")
	}
	usage, err := b.cluster.Between(ctx, before.mark, after.mark)
	if err != nil {
		return err
	}
	f.addSaturated(suffix, samples, usage, before, after)
	b.say("  %d in flight: %.0f orders/s, %.2f synchronous commits, %.1f kB of log and %.2f ms of Postgres an order", n, f[keyRate+suffix],
		f["sync_commits_per_order"+suffix], f["wal_kb_per_order"+suffix], f["postgres_cpu_ms_per_order"+suffix])
	return nil
}

// quiet measures what orders take under a load that the system carries easily.
func (b *bench) quiet(ctx context.Context, s *system, prefix string, d time.Duration, begin func() *load.Run, f figures) error {
	run := begin()
	err := pause(ctx, b.plan.warm/3)
	var lags []time.Duration
	from := time.Now()
	if err == nil && s.watched != "" {
		lags, err = b.watchLag(ctx, s, d)
	} else if err == nil {
		err = pause(ctx, d)
	}
	to := time.Now()
	samples, failed := run.Stop()
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	placed, completed := load.Times(load.Within(samples, from, to))
	f.addTimes(prefix, placed, completed)
	if s.watched != "" {
		f.addLag(prefix, load.QuantilesOf(lags))
	}
	b.say("  %s: %.2f ms to 201, %.2f ms to CONFIRMED (medians)", map[string]string{idle: "one at a time", half: "half load"}[prefix], placed.P50, completed.P50)
	return nil
}

// awaitEmptyOutboxes waits until all messages of a set are published and removed.
func (b *bench) awaitEmptyOutboxes(ctx context.Context, set string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("outboxes did not become empty"))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		rows := 0
		for _, service := range cluster.Services() {
			conn, err := pgx.Connect(ctx, b.cluster.OwnerURL(set, service))
			if err != nil {
				return fmt.Errorf("looking into an outbox: %w", err)
			}
			var n int
			err = conn.QueryRow(ctx, "SELECT count(*) FROM outbox").Scan(&n)
			if err = errors.Join(err, conn.Close(ctx)); err != nil {
				return fmt.Errorf("looking into an outbox: %w", err)
			}
			rows += n
		}
		if rows == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sayTop lists the statements that have cost most, with what one call took.
func (b *bench) sayTop(ctx context.Context) error {
	if b.top == 0 {
		return nil
	}
	top, err := b.cluster.Top(ctx, b.top)
	if err != nil {
		return err
	}
	for _, s := range top {
		const most = 90
		sql := strings.Join(strings.Fields(s.SQL), " ")
		calls := float64(s.Calls)
		b.say("    %8d calls  %6.0f us executing  %6.0f us planning  %5.1f rows  %s: %s", s.Calls, 1000*s.Executed/calls, 1000*s.Planned/calls,
			float64(s.Rows)/calls, s.Database, sql[:min(len(sql), most)])
	}
	return nil
}

func (b *bench) say(format string, a ...any) {
	fmt.Fprintf(b.progress, "%6.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, a...))
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// medians gives the median of each figure.
func medians(rounds []figures) figures {
	m := make(figures)
	for _, f := range rounds {
		for key := range maps.Keys(f) {
			var values []float64
			for _, other := range rounds {
				if v, ok := other[key]; ok {
					values = append(values, v)
				}
			}
			slices.Sort(values)
			m[key] = values[len(values)/2]
		}
	}
	return m
}
