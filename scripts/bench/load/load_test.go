package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// doer counts orders, and fails at one of them if that is told.
type doer struct {
	begun, now, most, failAt atomic.Int64
}

var errOrder = errors.New("no such order")

func (d *doer) Do(_ context.Context, placed func()) error {
	n := d.begun.Add(1)
	defer d.now.Add(-1)
	now := d.now.Add(1)
	for most := d.most.Load(); now > most && !d.most.CompareAndSwap(most, now); most = d.most.Load() {
	}
	placed()
	if n == d.failAt.Load() {
		return errOrder
	}
	return nil
}

func TestSome(t *testing.T) {
	t.Parallel()
	var d doer
	if err := Some(t.Context(), &d, 8, 1000); err != nil {
		t.Fatal(err)
	}
	if n, most := d.begun.Load(), d.most.Load(); n != 1000 || most > 8 {
		t.Errorf("got %d orders, %d at a time; want 1000, and 8 at most", n, most)
	}
}

func TestSomeStops(t *testing.T) {
	t.Parallel()
	var d doer
	d.failAt.Store(10)
	if err := Some(t.Context(), &d, 4, 1_000_000); !errors.Is(err, errOrder) {
		t.Errorf("got %v, want %v", err, errOrder)
	}
	if n := d.begun.Load(); n == 1_000_000 {
		t.Errorf("got all %d orders, want the first failure to end the load", n)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Some(ctx, &d, 4, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
