package lifecycle

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A busy service keeps a few MiB alive, so that the collector, left to its default, runs many times a second and takes an eighth of the processor.
const (
	// gcPercent lets a small heap grow to five times of what is alive before it is collected.
	gcPercent = 400
	// leastPercent is what Go does by itself.
	leastPercent = 100
	// spare bounds the garbage that a larger heap holds, in bytes, where leastPercent is not more: a broker in the same process keeps a hundred
	// MiB alive at saturation, and four times that in garbage would be for nothing.
	spare = 192 << 20
)

// SpareCollector lets a program with a small heap collect its garbage less often than is Go's default, and looks after each collection how much garbage
// the heap may hold until the next. What the environment says in GOGC or GOMEMLIMIT holds. Programs call it once, at their start; a library
// never does.
func SpareCollector() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(gcPercent)
		afterCollection(gcPercent)
	}
}

// afterCollection sets the percentage anew after the next collection, and after each that follows.
func afterCollection(percent int) {
	// Nothing holds it, so it is gone with the next collection. It has a pointer since small objects without share their memory with others.
	gone := new(*byte)
	runtime.AddCleanup(gone, func(old int) {
		now := percentOf(alive())
		if now != old {
			debug.SetGCPercent(now)
		}
		afterCollection(now)
	}, percent)
}

// percentOf gives how much garbage a heap with so many bytes alive may hold, as a percentage of them.
func percentOf(live uint64) int {
	return int(min(gcPercent, max(leastPercent, spare*100/max(live, 1)))) //nolint:gosec // within the two
}

// alive gives how many bytes of the heap the last collection found alive.
func alive() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
