package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/throughline/throughline/scripts/bench/cluster"
	"github.com/throughline/throughline/scripts/bench/load"
	"github.com/throughline/throughline/scripts/bench/stored"
)

// store puts n orders into the databases of a set, which hold the recorded one.
func (b *bench) store(ctx context.Context, set string, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, service := range cluster.Services() {
		g.Go(func() error {
			progress := func(table string, orders int) { b.say("  %s of %s: %d of %d orders", table, service, orders, n) }
			of := stored.Template{Known: b.story.Known, Key: b.story.Key}
			if err := stored.Load(ctx, b.cluster.OwnerURL(set, service), of, n, progress); err != nil {
				return fmt.Errorf("storing orders of %s: %w", service, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// errRoom says that the stored orders would fill the disk.
var errRoom = errors.New("the disk is too small for so many stored orders")

// checkRoom tells before a long run whether the largest number of stored orders has room, where free bytes are left.
func checkRoom(numbers []int, free int64) error {
	if len(numbers) == 0 {
		return nil
	}
	most := slices.Max(numbers)
	if need := stored.Room(most); need > free {
		return fmt.Errorf("%w: %d take about %d GB, and %d GB are free: choose another folder with --dir, or fewer orders with --stored",
			errRoom, most, need/1e9, free/1e9)
	}
	return nil
}

// crowd is the set of databases with many stored orders.
const crowd = "crowd"

// withStored measures the product, and the batched ceiling, with many stored orders. The cluster is stopped to load them, and runs
// with the settings of the measurements again when it is measured.
func (b *bench) withStored(ctx context.Context, r *results) error {
	for _, n := range b.stored {
		b.say("storing %d orders", n)
		if err := b.restart(ctx, true); err != nil {
			return err
		}
		err := b.cluster.Drop(ctx, crowd)
		if err == nil {
			err = b.cluster.Copy(ctx, template, crowd)
		}
		if err == nil {
			err = b.store(ctx, crowd, n)
		}
		if err != nil {
			return err
		}
		if err := b.restart(ctx, false); err != nil {
			return err
		}
		for _, name := range []string{inProcess, ceilingBatched} {
			if len(b.systems) > 0 && !slices.Contains(b.systems, name) {
				continue
			}
			as := fmt.Sprintf("%s_stored_%d", name, n)
			b.say("%s", as)
			f, err := b.crowded(ctx, name)
			if err != nil {
				return fmt.Errorf("measuring %s: %w", as, err)
			}
			if none := r.systems[name]; none != nil {
				for _, suffix := range []string{"", suffixMany} {
					f["ratio_to_none_stored"+suffix] = f[keyRate+suffix] / none[keyRate+suffix]
				}
			}
			r.systems[as] = f
		}
	}
	if len(b.stored) == 0 {
		return nil
	}
	return b.cluster.Drop(ctx, crowd)
}

// restart stops the cluster and starts it with other settings.
func (b *bench) restart(ctx context.Context, loading bool) error {
	if err := b.cluster.Stop(ctx); err != nil {
		return err
	}
	next, err := cluster.Start(ctx, cluster.Config{Dir: filepath.Join(b.dir, clusterDir), Loading: loading, Settings: b.settings, Progress: io.Discard})
	if err != nil {
		return err
	}
	next.CountAsync(b.story.Async())
	b.cluster = next
	return nil
}

// crowded measures a system on the databases with many stored orders.
func (b *bench) crowded(ctx context.Context, name string) (f figures, err error) {
	if err := b.cluster.Settle(ctx); err != nil {
		return nil, err
	}
	s, err := b.startOn(ctx, name, crowd)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	f = make(figures)
	if err := b.cluster.Forget(ctx); err != nil {
		return nil, err
	}
	// Pages that are read for the first time since the start come from the disk, and that soon ends.
	b.say("  warming up")
	if err := b.saturate(ctx, s, inFlight, "", make(figures)); err != nil {
		return nil, err
	}
	if err := b.saturate(ctx, s, inFlight, "", f); err != nil {
		return nil, err
	}
	if err := b.sayTop(ctx); err != nil {
		return nil, err
	}
	if err := b.saturate(ctx, s, inFlightMany, suffixMany, f); err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	return f, b.quiet(ctx, s, idle, b.plan.idle, func() *load.Run { return load.Closed(ctx, s.doer, 1) }, f)
}
