package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/throughline/throughline/scripts/bench/cluster"
	"github.com/throughline/throughline/scripts/bench/load"
	"github.com/throughline/throughline/scripts/bench/meter"
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

// withStored measures the product, and the batched ceiling, with many stored orders.
func (b *bench) withStored(ctx context.Context, r *results) error {
	for _, n := range b.stored {
		if err := b.load(ctx, n); err != nil {
			return fmt.Errorf("storing %d orders: %w", n, err)
		}
		all, err := b.crowded(ctx, n)
		if err != nil {
			return fmt.Errorf("measuring with %d orders stored: %w", n, err)
		}
		maps.Copy(r.systems, all)
		if err := b.cluster.Drop(ctx, crowd); err != nil {
			return err
		}
	}
	return nil
}

// load makes the set with n stored orders. The cluster is stopped for it, and runs with the settings of the measurements again.
func (b *bench) load(ctx context.Context, n int) error {
	b.say("storing %d orders", n)
	if err := b.restart(ctx, true); err != nil {
		return err
	}
	if err := b.cluster.Copy(ctx, template, crowd); err != nil {
		return err
	}
	if err := b.store(ctx, crowd, n); err != nil {
		return err
	}
	if err := b.restart(ctx, false); err != nil {
		return err
	}
	// Loading left to the kernel when to write; it must not do so beside a measurement.
	b.say("  waiting for the disk")
	meter.Flush()
	return nil
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

// warmOrders is the part of the stored orders' number that is placed before they are measured with. The first change of a page after a checkpoint
// writes the whole page. An index on random ids has some 200 rows in a page, so when this many are new, one change in seven is
// such a first one. That is about what a shop with five million orders and 250 new ones a second has in the mean between checkpoints a quarter
// of an hour apart, and more than others have.
const warmOrders = 0.01

// crowded measures systems on the databases with many stored orders, and beside each the same system with none.
func (b *bench) crowded(ctx context.Context, n int) (_ map[string]figures, err error) {
	var members []member
	names := make(map[string]string) // by the label of the one with many orders, that of the one with none
	for _, system := range []string{inProcess, ceilingBatched} {
		if len(b.systems) > 0 && !slices.Contains(b.systems, system) {
			continue
		}
		if err := b.cluster.Copy(ctx, template, system); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.cluster.Drop(context.WithoutCancel(ctx), system)) }()
		label := fmt.Sprintf("%s_stored_%d", system, n)
		names[label] = system + "_none"
		members = append(members, member{label: names[label], system: system, set: system}, member{label: label, system: system, set: crowd})
	}
	if len(members) == 0 {
		return nil, nil
	}
	if err := b.cluster.Settle(ctx); err != nil {
		return nil, err
	}
	turns, err := b.sideBySide(ctx, members, b.plan.storedTurns, []at{b.atMedium, b.atMany, b.atIdle}, func(members []member) error {
		return b.warmUp(ctx, members[1], int(float64(n)*warmOrders))
	})
	if err != nil {
		return nil, err
	}
	all := make(map[string][]figures)
	for _, of := range turns {
		for label, none := range names {
			of[label].addNone(of[none])
			all[label] = append(all[label], of[label])
		}
	}
	result := make(map[string]figures)
	for label, f := range all {
		result[label] = medians(f)
	}
	return result, nil
}

// warmUp places so many orders.
func (b *bench) warmUp(ctx context.Context, m member, n int) error {
	b.say("  %s: placing %d orders first", m.label, n)
	if err := load.Some(ctx, m.running.doer, inFlightMany, n); err != nil {
		return err
	}
	return m.running.settle(ctx)
}
