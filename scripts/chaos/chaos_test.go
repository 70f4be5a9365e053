package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

const (
	// Of the form that runs beside all other tests.
	shortOrders = 150
	shortRate   = 8
	shortSeed   = 7

	// settleTime bounds how long everything may take to come to rest after the last fault: the budget of a step, its undo, and what a
	// slow machine adds.
	settleTime = 10 * time.Minute
	poll       = 500 * time.Millisecond
	// customerTime is short, so that payments which nobody confirms end, too.
	customerTime = 8 * time.Second
)

// setting reads a number from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: it must be a number from 1", name, text)
	}
	return n
}

func TestMain(m *testing.M) {
	code := m.Run()
	system.Clean()
	os.Exit(code)
}

// TestChaos is described in the package's comment. ORDERS, RATE (orders a second), INSTANCES and SEED set it.
func TestChaos(t *testing.T) {
	t.Parallel()
	orders, perSecond := setting(t, "ORDERS", shortOrders), setting(t, "RATE", shortRate)
	seed := uint64(setting(t, "SEED", shortSeed)) //nolint:gosec // it is positive
	r := newReport(seed, orders, perSecond)
	// Faults, deaths, clients and customers draw from sequences of their own, so that one does not move the others.
	source := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) } //nolint:gosec // it is no secret

	s := system.Start(t, system.Options{Separate: true, Instances: setting(t, "INSTANCES", 2), CustomerTime: customerTime})
	expected := time.Duration(orders) * time.Second / time.Duration(perSecond)
	ctx := system.Context(t, 4*expected+settleTime+2*time.Minute)
	bad, cancel := context.WithCancel(ctx)
	defer cancel()
	weather := startWeather(bad, s, source(1), r)
	reaper := startReaper(bad, s, source(2), setting(t, "INSTANCES", 2), r)
	began := time.Now()
	c := newCrowd(s, source(3), r)
	c.placeAll(ctx, t, orders, perSecond)
	r.placing = time.Since(began)
	cancel()
	weather.clear(ctx, t)
	reaper.thaw(t)
	c.leave()

	began = time.Now()
	list := settle(ctx, t, s)
	judge(ctx, t, s, list, r)
	r.kept(t, list)
	r.settling = time.Since(began)
	r.faults(ctx, t, s)
	t.Logf("\n%s", r)
	r.complete(t)
	if len(list) != orders {
		t.Errorf("orders: got %d, want %d", len(list), orders)
	}
}

// settle waits until no order is on its way.
func settle(ctx context.Context, t *testing.T, s *system.System) []verify.Order {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	shop := s.Storefront()
	var list []verify.Order
	moving := "nothing was read"
	for tick := time.NewTicker(poll); moving != ""; {
		select {
		case <-ctx.Done():
			tick.Stop()
			t.Fatalf("waiting for all orders to come to rest: %s", moving)
		case <-tick.C:
		}
		var err error
		if list, err = shop.Orders(ctx); err != nil {
			moving = err.Error()
			continue
		}
		moving = ""
		for _, o := range list {
			if o.Status == verify.Pending || o.Status == verify.Compensating {
				moving = fmt.Sprintf("order %s is %s", o.ID, o.Status)
			}
		}
	}
	return list
}

// judge compares the orders with both ledgers. What came late at the outside is undone after the order has ended, so it may take a
// moment until they agree.
func judge(ctx context.Context, t *testing.T, s *system.System, list []verify.Order, r *report) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	tick := time.NewTicker(4 * poll)
	defer tick.Stop()
	for {
		payments, err := s.Provider.PaymentLedger(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		shipments, err := s.Carrier.CarrierLedger(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		broken := verify.Settled(list, payments, shipments)
		if len(broken) == 0 {
			r.count(list, verify.Accounts(payments, shipments))
			break
		}
		select {
		case <-ctx.Done():
			for _, v := range broken {
				t.Errorf("broken rule: %s", v)
			}
			return
		case <-tick.C:
		}
	}
	for _, o := range list {
		if o.Status == verify.NeedsAttention {
			r.attend(t, s)
			return
		}
	}
}
