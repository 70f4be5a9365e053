package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/throughline/throughline/scripts/bench/cluster"
	"github.com/throughline/throughline/scripts/bench/load"
	"github.com/throughline/throughline/scripts/bench/meter"
)

// figures are what was measured of one system, by key. A key without a suffix is about 64 orders in flight.
type figures map[string]float64

const (
	keyRate    = "orders_per_s"
	keyNone    = "orders_per_s_none_stored" // in the same turn
	suffixMany = "_256"
)

// reading is what all parts of a system have used until a moment.
type reading struct {
	at    time.Time
	mark  cluster.Mark
	own   time.Duration // CPU time of the bench, which is the client, and of a ceiling all there is
	hosts map[string]meter.Process
}

func (b *bench) read(ctx context.Context, s *system) (reading, error) {
	r := reading{hosts: make(map[string]meter.Process)}
	for role, p := range s.hosts {
		use, err := p.Use()
		if err != nil {
			return r, err
		}
		r.hosts[role] = use
	}
	var err error
	if r.own, err = ownCPU(); err != nil {
		return r, err
	}
	if r.mark, err = b.cluster.Mark(ctx); err != nil {
		return r, err
	}
	r.at = time.Now()
	return r, nil
}

func ownCPU() (time.Duration, error) {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0, fmt.Errorf("reading the bench's own use: %w", err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano()), nil
}

// addSaturated adds what a system did between two readings.
func (f figures) addSaturated(suffix string, samples []load.Sample, u cluster.Usage, before, after reading) {
	orders := float64(len(samples))
	f[keyRate+suffix] = orders / after.at.Sub(before.at).Seconds()
	add := func(key string, value float64) {
		if value >= 0 {
			f[key+suffix] = value / orders
		}
	}
	add("sync_commits_per_order", float64(u.SyncCommits))
	add("async_commits_per_order", float64(u.AsyncCommits))
	add("flushes_per_order", float64(u.Flushes))
	add("statements_per_order", float64(u.Statements))
	add("wal_kb_per_order", float64(u.WAL)/1000)
	add("postgres_cpu_ms_per_order", float64(u.CPU.Microseconds())/1000)
	add("bench_cpu_ms_per_order", float64((after.own-before.own).Microseconds())/1000)
	all := u.CPU + after.own - before.own
	for role, p := range after.hosts {
		all += time.Duration((p.CPUSeconds - before.hosts[role].CPUSeconds) * float64(time.Second))
		add(role+"_cpu_ms_per_order", 1000*(p.CPUSeconds-before.hosts[role].CPUSeconds))
		f[role+"_rss_mib"+suffix] = float64(p.RSS) / (1 << 20)
		f[role+"_peak_rss_mib"+suffix] = float64(p.Peak) / (1 << 20)
	}
	if u.CPU >= 0 {
		add("cpu_ms_per_order", float64(all.Microseconds())/1000)
	}
	placed, completed := load.Times(samples)
	f["saturated_placed_p50_ms"+suffix], f["saturated_p50_ms"+suffix], f["saturated_p99_ms"+suffix] = placed.P50, completed.P50, completed.P99
}

// What was measured of an idle system has no prefix in the results; what was measured at half load has one.
const (
	idle = ""
	half = "half_"
)

// addNone puts a system with many stored orders beside the same one with none.
func (f figures) addNone(none figures) {
	for _, suffix := range []string{"", suffixMany} {
		f[keyNone+suffix] = none[keyRate+suffix]
		f["ratio_to_none_stored"+suffix] = f[keyRate+suffix] / none[keyRate+suffix]
	}
}

// addTimes adds what orders took.
func (f figures) addTimes(prefix string, placed, completed load.Quantiles) {
	f.addQuantiles(prefix+"placed_", placed)
	f.addQuantiles(prefix, completed)
}

// addLag adds how long after its commit a message is published.
func (f figures) addLag(prefix string, q load.Quantiles) { f.addQuantiles(prefix+"publish_lag_", q) }

func (f figures) addQuantiles(prefix string, q load.Quantiles) {
	f[prefix+"p50_ms"], f[prefix+"p95_ms"], f[prefix+"p99_ms"] = q.P50, q.P95, q.P99
}
