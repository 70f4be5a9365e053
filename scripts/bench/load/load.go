// Package load sends orders, and keeps how long they took.
package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Doer carries one order from its placing to its completion. It calls placed once, when the order is accepted, and returns when
// the order is complete.
type Doer interface {
	Do(ctx context.Context, placed func()) error
}

// Sample is what one order took.
type Sample struct {
	End               time.Time
	Placed, Completed time.Duration
}

// Run is a load that is going on.
type Run struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	samples []Sample
	err     error // the first failure, which ends the load
}

// Closed keeps n orders in flight until Stop.
func Closed(ctx context.Context, d Doer, n int) *Run {
	r, ctx := newRun(ctx)
	for range n {
		r.wg.Go(func() {
			for ctx.Err() == nil {
				r.one(ctx, d)
			}
		})
	}
	return r
}

// Some carries n orders, as many of them at a time as inFlight says.
func Some(ctx context.Context, d Doer, inFlight, n int) error {
	r, ctx := newRun(ctx)
	defer r.cancel()
	var begun atomic.Int64
	for range inFlight {
		r.wg.Go(func() {
			for ctx.Err() == nil && begun.Add(1) <= int64(n) {
				r.one(ctx, d)
			}
		})
	}
	r.wg.Wait()
	if r.err != nil {
		return fmt.Errorf("carrying an order: %w", r.err)
	}
	return ctx.Err()
}

// Open sends orders at a steady rate, whether those before are complete or not, until Stop.
func Open(ctx context.Context, d Doer, perSecond float64) *Run {
	r, ctx := newRun(ctx)
	r.wg.Go(func() {
		began, sent := time.Now(), 0
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			for due := int(time.Since(began).Seconds() * perSecond); sent < due; sent++ {
				r.wg.Go(func() { r.one(ctx, d) })
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return r
}

func newRun(ctx context.Context) (*Run, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	return &Run{cancel: cancel}, ctx
}

// orderTimeout is when an order counts as lost.
const orderTimeout = 30 * time.Second

// one carries one order, also if the load is stopped meanwhile.
func (r *Run) one(ctx context.Context, d Doer) {
	began := time.Now()
	var s Sample
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), orderTimeout)
	defer cancel()
	err := d.Do(bounded, func() { s.Placed = time.Since(began) })
	s.End = time.Now()
	s.Completed = s.End.Sub(began)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		r.cancel()
		return
	}
	r.samples = append(r.samples, s)
}

// Stop sends no more, waits for the orders in flight, and gives all samples. The error is that of the first order that failed.
func (r *Run) Stop() ([]Sample, error) {
	r.cancel()
	r.wg.Wait()
	if r.err != nil {
		return nil, fmt.Errorf("carrying an order: %w", r.err)
	}
	return r.samples, nil
}

// Within gives the samples that ended between two moments.
func Within(samples []Sample, from, to time.Time) []Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return s.End.Before(from) || !s.End.Before(to) })
}

// Quantiles are milliseconds.
type Quantiles struct{ P50, P95, P99 float64 }

// QuantilesOf sorts values and picks from them. Without values all are zero.
func QuantilesOf(values []time.Duration) Quantiles {
	if len(values) == 0 {
		return Quantiles{}
	}
	slices.Sort(values)
	at := func(q float64) float64 {
		return float64(values[int(q*float64(len(values)-1)+0.5)].Microseconds()) / 1000
	}
	return Quantiles{at(0.50), at(0.95), at(0.99)}
}

// Times gives the quantiles of placing and of completing.
func Times(samples []Sample) (placed, completed Quantiles) {
	p, c := make([]time.Duration, len(samples)), make([]time.Duration, len(samples))
	for i, s := range samples {
		p[i], c[i] = s.Placed, s.Completed
	}
	return QuantilesOf(p), QuantilesOf(c)
}
