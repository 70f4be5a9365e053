package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	// hugePages tells whether the server's shared memory is in huge pages.
	hugePages bool
}

// errNoise says that a run is no measurement.
var errNoise = errors.New("the batched ceiling is below three times the single one: something else takes the machine, or the ceiling is wrong")

// leastBatching is what batches must be worth at 64 in flight.
const leastBatching = 3

// latest is the file of the results.
const latest = "latest.json"

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
	defer func(restore func() error) { err = errors.Join(err, restore()) }(b.reserve())
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
			names = append(names, apart, sampled, traced)
		}
	}
	r := newResults(b)
	if err := b.inRounds(ctx, names, r); err != nil {
		return err
	}
	// Kept before the long part, which may fail for want of room.
	if err := r.save(filepath.Join(b.dir, latest)); err != nil {
		return err
	}
	if err := b.withStored(ctx, r); err != nil {
		return err
	}
	if err := r.save(filepath.Join(b.dir, latest)); err != nil {
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

// reserve sets huge pages aside for Postgres where that is allowed. Without them each of the server's processes takes a fault for every page of the
// shared memory that it comes to for the first time, and what a fault takes depends on the machine more than anything else here.
func (b *bench) reserve() (restore func() error) {
	restore, err := meter.ReserveHugePages(cluster.SharedMemory())
	if err != nil {
		b.say("Postgres runs without huge pages: %v", err)
		return func() error { return nil }
	}
	b.hugePages = true
	return restore
}

// inRounds measures the systems, on new databases in each round. Ratios are those of one turn, whose systems have met the same
// machine, and results the medians of all turns.
func (b *bench) inRounds(ctx context.Context, names []string, r *results) error {
	r.systems = make(map[string]figures)
	var turns []map[string]figures
	for round := range b.plan.rounds {
		for _, group := range groups(names) {
			b.say("round %d of %d: %s", round+1, b.plan.rounds, strings.Join(group, ", "))
			more, err := b.inTurns(ctx, group)
			if err != nil {
				return fmt.Errorf("measuring %s: %w", strings.Join(group, ", "), err)
			}
			turns = append(turns, more...)
		}
	}
	r.systems = ofTurns(turns)
	return nil
}

// groups are the systems that run side by side: few of them, since each that waits for its turn still looks into its databases now and
// then. What is compared with the product has the product beside it.
func groups(names []string) [][]string {
	var main, variants []string
	for _, name := range names {
		if isVariant(name) {
			variants = append(variants, name)
		} else {
			main = append(main, name)
		}
	}
	var all [][]string
	if len(main) > 0 {
		all = append(all, main)
	}
	if len(variants) > 0 {
		all = append(all, append([]string{inProcess}, variants...))
	}
	return all
}

// inTurns measures systems, each on databases of its own.
func (b *bench) inTurns(ctx context.Context, names []string) (turns []map[string]figures, err error) {
	members := make([]member, len(names))
	for i, name := range names {
		members[i] = member{label: name, system: name, set: name}
		if err := b.cluster.Copy(ctx, template, name); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.cluster.Drop(context.WithoutCancel(ctx), name)) }()
	}
	if err := b.cluster.Settle(ctx); err != nil {
		return nil, err
	}
	return b.sideBySide(ctx, members, b.plan.turns, []at{b.atMedium, b.atMany, b.atIdle, b.atHalf}, nil)
}

// member is one of the systems that run side by side.
type member struct {
	// label is what its results are called.
	label, system, set string
	running            *system
}

// at measures a system at some load.
type at func(context.Context, member, figures) error

// sideBySide measures systems that run at the same time, in turns: all of them at one load, one after another, then all at the next. So
// what is compared lies seconds apart. Prepare may do something before the first turn.
func (b *bench) sideBySide(ctx context.Context, members []member, turns int, loads []at, prepare func([]member) error) (_ []map[string]figures, err error) {
	defer func() {
		for _, m := range members {
			if m.running != nil {
				err = errors.Join(err, m.running.stop())
			}
		}
	}()
	for i := range members {
		m := &members[i]
		if m.running, err = b.start(ctx, m.label, m.system, m.set); err != nil {
			return nil, fmt.Errorf("starting %s: %w", m.label, err)
		}
	}
	if prepare != nil {
		if err := prepare(members); err != nil {
			return nil, err
		}
	}
	all := make([]map[string]figures, turns)
	for turn := range turns {
		all[turn] = make(map[string]figures)
		for _, m := range members {
			all[turn][m.label] = make(figures)
		}
		for _, measure := range loads {
			for i := range members {
				// Each turn begins with another one, so that none has always the same one before it.
				m := members[(i+turn)%len(members)]
				if err := measure(ctx, m, all[turn][m.label]); err != nil {
					return nil, fmt.Errorf("measuring %s: %w", m.label, err)
				}
			}
		}
	}
	return all, nil
}

func (b *bench) atMedium(ctx context.Context, m member, f figures) error {
	if b.top > 0 {
		if err := b.cluster.Forget(ctx); err != nil {
			return err
		}
	}
	if err := b.saturate(ctx, m, inFlight, "", f); err != nil {
		return err
	}
	return b.sayTop(ctx)
}

func (b *bench) atMany(ctx context.Context, m member, f figures) error {
	if tracing(m.system) {
		return nil
	}
	return b.saturate(ctx, m, inFlightMany, suffixMany, f)
}

func (b *bench) atIdle(ctx context.Context, m member, f figures) error {
	if isVariant(m.system) || b.plan.quick && m.system == overHTTP {
		return nil
	}
	return b.quiet(ctx, m, idle, b.plan.idle, func() *load.Run { return load.Closed(ctx, m.running.doer, 1) }, f)
}

func (b *bench) atHalf(ctx context.Context, m member, f figures) error {
	if isVariant(m.system) || b.plan.quick && m.system != inProcess {
		return nil
	}
	rate := f[keyRate] / 2
	return b.quiet(ctx, m, half, b.plan.half, func() *load.Run { return load.Open(ctx, m.running.doer, rate) }, f)
}

// saturate keeps n orders in flight, and counts what they cost.
func (b *bench) saturate(ctx context.Context, m member, n int, suffix string, f figures) error {
	s := m.running
	warm := b.plan.warm
	if m.system == ceilingSingle {
		warm *= 2 // its orders take longest, and its many connections have the most plans to make
	}
	run := load.Closed(ctx, s.doer, n)
	err := pause(ctx, warm)
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
	b.say("  %s, %d in flight: %.0f orders/s, %.2f synchronous commits, %.1f kB of log and %.2f ms of Postgres an order", m.label, n, f[keyRate+suffix],
		f["sync_commits_per_order"+suffix], f["wal_kb_per_order"+suffix], f["postgres_cpu_ms_per_order"+suffix])
	return s.settle(ctx)
}

// quiet measures what orders take under a load that the system carries easily, and then, since watching messages is a load as well, how soon
// they are published.
func (b *bench) quiet(ctx context.Context, m member, prefix string, d time.Duration, begin func() *load.Run, f figures) error {
	s := m.running
	run := begin()
	err := pause(ctx, b.plan.warm/3)
	from := time.Now()
	if err == nil {
		err = pause(ctx, d)
	}
	to := time.Now()
	var lags []time.Duration
	if err == nil && s.watched != "" {
		lags, err = b.watchLag(ctx, s, d/2)
	}
	samples, failed := run.Stop()
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	placed, completed := load.Times(load.Within(samples, from, to))
	f.addTimes(prefix, placed, completed)
	if s.watched != "" {
		f.addLag(prefix, load.QuantilesOf(lags))
	}
	b.say("  %s, %s: %.2f ms to 201, %.2f ms to CONFIRMED (medians)", m.label, map[string]string{idle: "one at a time", half: "half load"}[prefix], placed.P50, completed.P50)
	return s.settle(ctx)
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
