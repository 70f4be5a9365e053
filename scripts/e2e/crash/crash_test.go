package crash_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/services/throughline/verify"
)

const (
	patience = 15 * time.Minute // on a busy machine; two elsewhere
	// tries bounds how often a crash is tried whose passage was not reached, because the crash of another order took the process down
	// just before, or whose order shows nothing.
	tries = 4
	// abreast bounds the orders that are under way at one time. Each of their crashes holds up all others.
	abreast = 12
)

// TestCrash kills the service in question at each passage, for an order of its own, and starts it again. Whatever the moment, the order ends
// as it would have, charged and shipped at most once. Many orders are under way side by side.
func TestCrash(t *testing.T) {
	t.Parallel()
	if missing := slices.DeleteFunc(fault.Points(), func(p string) bool { return slices.Contains(points(), p) }); len(missing) > 0 {
		t.Errorf("points that are tried nowhere: %v", missing)
	}
	w := newWorld(t)
	ctx := w.ctx
	seen := make(map[string]outcome)
	left := crashes()
	for try := 0; len(left) > 0; try++ {
		if try == tries {
			for _, c := range left {
				t.Errorf("%s: %s of %s was never reached, or by none of %d orders that went on in time", c.story.name, c.where(), c.column, tries)
			}
			break
		}
		left = w.round(ctx, try, left, seen)
	}
	w.check(ctx)
	if t.Failed() {
		return
	}
	compare(t, table(t, seen))
}

// where names the passages.
func (c crash) where() string {
	var names []string
	for _, p := range c.passages {
		names = append(names, p.service+" "+p.point)
	}
	return strings.Join(names, " + ")
}

// key tells crashes apart.
func (c crash) key() string { return c.story.name + "/" + c.column + "/" + c.where() }

// outcome is what an order has come to.
type outcome struct {
	status        string
	net           int64
	parcels, went int
}

// round places one order for each crash, waits until nothing moves, and gives the crashes that did not happen.
func (w *world) round(ctx context.Context, try int, all []crash, seen map[string]outcome) (left []crash) {
	w.t.Helper()
	began := time.Now()
	var wg sync.WaitGroup
	turns := make(chan struct{}, abreast)
	ids, late := make([]uuid.UUID, len(all)), make([]bool, len(all))
	for i, c := range all {
		key := fmt.Sprintf("%s#%d", c.key(), try)
		ids[i] = keys.OrderID(w.shop.ID, key)
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			err := w.tell(ctx, c, key, ids[i])
			if err == nil {
				late[i], err = w.ended(ctx, ids[i])
			}
			if err != nil {
				w.t.Errorf("%s: %v", key, err)
			}
		})
	}
	wg.Wait()
	orders := w.quiet(ctx)
	for i, c := range all {
		if o := orders[ids[i].String()]; w.reached(c, ids[i]) && !late[i] && !c.tooLate(o) {
			seen[c.key()] = w.outcome(ctx, c, o)
		} else {
			left = append(left, c)
		}
	}
	w.t.Logf("round %d, %s: %d crashes, %d to be tried again", try+1, time.Since(began).Round(time.Millisecond), len(all)-len(left), len(left))
	return left
}

// tooLate tells of an order that shows nothing: its cancel died with the process before it was committed, and by the time of the
// repeat the order was beyond recall.
func (c crash) tooLate(o verify.Order) bool {
	return c.story == cancelled && c.passages[0].point == fault.SagaCommitting && o.Status == verify.Confirmed
}

// tell arms a crash, places its order, and does what its story does.
func (w *world) tell(ctx context.Context, c crash, key string, id uuid.UUID) error {
	if f := c.story.payment; f != nil {
		own := *f
		own.OrderID = id.String()
		if _, err := w.provider.AddFault(ctx, own); err != nil {
			return err
		}
	}
	if f := c.story.parcel; f != nil {
		own := *f
		own.OrderID = id.String()
		if _, err := w.carrier.AddFault(ctx, own); err != nil {
			return err
		}
	}
	for _, path := range c.wires(w, id) {
		w.lay(path)
	}
	a, err := w.shop.Place(ctx, key, c.story.order)
	if err != nil {
		return err
	}
	if a.Status != http.StatusCreated || a.Order.ID != id.String() {
		return fmt.Errorf("placing: got %d %s, want 201 and order %s", a.Status, a.Body, id)
	}
	if c.story.during == nil {
		return nil
	}
	return c.story.during(ctx, w, id.String())
}

// reached tells whether all passages of a crash were come to. What was not is disarmed.
func (w *world) reached(c crash, id uuid.UUID) bool {
	all := true
	for _, path := range c.wires(w, id) {
		switch err := os.Remove(path); {
		case err == nil:
			all = false
		case !errors.Is(err, os.ErrNotExist):
			w.t.Errorf("disarming: %v", err)
		}
	}
	return all
}

// outcome looks at what an order has come to, and at how it should.
func (w *world) outcome(ctx context.Context, c crash, o verify.Order) outcome {
	w.t.Helper()
	payments, err := w.provider.PaymentLedger(ctx, o.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	shipments, err := w.carrier.CarrierLedger(ctx, o.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	if o.Status != c.story.end {
		w.t.Errorf("%s: order %s ended as %s, want %s", c.key(), o.ID, o.Status, c.story.end)
	}
	a := verify.Accounts(payments, shipments)[o.ID]
	if a.Captured > o.Total || a.Refunded > a.Captured || len(payments.Intents) > 1 || len(shipments.Shipments) > 1 {
		w.t.Errorf("%s: order %s of %d: got %v, %d payments and %d parcels, want nothing twice", c.key(), o.ID, o.Total, a, len(payments.Intents), len(shipments.Shipments))
	}
	return outcome{o.Status, a.Net(), a.Live, len(c.passages)}
}

// check compares all orders with both ledgers, and the deaths with what was armed.
func (w *world) check(ctx context.Context) {
	w.t.Helper()
	orders, err := w.shop.Orders(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	payments, err := w.provider.PaymentLedger(ctx, "")
	if err != nil {
		w.t.Fatal(err)
	}
	shipments, err := w.carrier.CarrierLedger(ctx, "")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, v := range verify.Settled(orders, payments, shipments) {
		w.t.Errorf("broken rule: %s", v)
	}
	deaths := 0
	for _, p := range w.processes {
		deaths += p.deaths()
	}
	armed := 0
	for _, c := range crashes() {
		armed += len(c.passages)
	}
	if deaths < armed {
		w.t.Errorf("deaths: got %d, want one for each of %d passages", deaths, armed)
	}
	for service, db := range w.databases {
		var letters int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM dead_letter`).Scan(&letters); err != nil || letters != 0 {
			w.t.Errorf("dead letters of %s: got %d, %v, want none", service, letters, err)
		}
	}
	w.t.Logf("%d orders, %d deaths", len(orders), deaths)
}

// until waits for a condition.
func until(ctx context.Context, holds func() bool) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
