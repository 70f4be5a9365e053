package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
)

const (
	// abreast bounds the clients that wait for an answer at one time.
	abreast = 128
	// clientPatience is how long a client waits for one answer, and repeats its request then.
	clientPatience = 3 * time.Second
	clientPause    = 100 * time.Millisecond
	maxCancelDelay = 3 * time.Second
)

// crowd are the clients and customers.
type crowd struct {
	s    *system.System
	rng  *rand.Rand // used by placeAll alone
	r    *report
	shop *system.Client
	done sync.WaitGroup // customers and those who cancel
}

func newCrowd(s *system.System, rng *rand.Rand, r *report) *crowd {
	c := &crowd{s: s, rng: rng, r: r, shop: s.Storefront()}
	c.shop.HTTP.Timeout = clientPatience
	return c
}

// wish is what one client does.
type wish struct {
	key      string
	order    system.Order
	copies   int // of the request, at once
	cancels  int // requests to cancel, at once
	sameKey  bool
	after    time.Duration // from the answer to the cancellation, or to what the customer does
	customer string        // what the customer does about the payment, if anything
}

// wishes draws a client.
func (c *crowd) wish(i int) wish {
	w := wish{key: fmt.Sprintf("chaos-%d", i), order: system.Order{Quantity: 1 + c.rng.IntN(9)}, copies: 1, sameKey: c.rng.IntN(2) == 0}
	w.after = time.Duration(c.rng.Int64N(int64(maxCancelDelay)))
	switch n := c.rng.IntN(100); {
	case n < 5:
		w.order.PaymentMethod = "pm_card_visa_chargeDeclined"
	case n < 10:
		w.order.PostalCode = "00000"
	case n < 15:
		w.order.PaymentMethod = "pm_sim_captureDeclined"
	case n < 22:
		w.order.PaymentMethod = "pm_card_threeDSecure2Required"
		w.customer = []string{"confirm", "confirm", "refuse", ""}[c.rng.IntN(4)]
	}
	if c.rng.IntN(10) == 0 {
		w.copies = 3
	}
	if c.rng.IntN(6) == 0 {
		w.cancels = 1 + c.rng.IntN(2)
	}
	return w
}

// placeAll places orders at a rate, and returns when each client has its answer.
func (c *crowd) placeAll(ctx context.Context, t *testing.T, orders, perSecond int) {
	t.Helper()
	turns := make(chan struct{}, abreast)
	var placing sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := range orders {
		w := c.wish(i)
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("placing orders: %v", ctx.Err())
		}
		turns <- struct{}{}
		placing.Go(func() {
			defer func() { <-turns }()
			c.place(ctx, t, w)
		})
	}
	placing.Wait()
}

func (c *crowd) place(ctx context.Context, t *testing.T, w wish) {
	t.Helper()
	id := keys.OrderID(c.shop.ID, w.key).String()
	var copies sync.WaitGroup
	for range w.copies {
		copies.Go(func() {
			a, err := c.insist(ctx, "/v1/orders", w.key, w.order.JSON())
			switch {
			case err != nil:
				t.Errorf("placing %s: %v", w.key, err)
			case a.Status != http.StatusCreated || a.Order.ID != id:
				t.Errorf("placing %s: got %d %s, want 201 and order %s", w.key, a.Status, a.Body, id)
			case a.Replayed:
				c.r.add("replays", 1)
			}
		})
	}
	copies.Wait()
	if w.customer != "" {
		c.done.Go(func() { c.act(ctx, id, w) })
	}
	for n := range w.cancels {
		key := fmt.Sprintf("%s-cancel-%d", w.key, n)
		if w.sameKey {
			key = w.key + "-cancel"
		}
		c.done.Go(func() { c.cancel(ctx, t, id, key, w.after) })
	}
}

// insist repeats a request with its key until there is an answer that a repeat does not change.
func (c *crowd) insist(ctx context.Context, path, key, body string) (*system.Answer, error) {
	for try := 0; ; try++ {
		a, err := c.shop.Post(ctx, try, path, key, body)
		if err == nil && a.Status < 500 && a.Status != http.StatusTooManyRequests && a.Problem.Reason != "KEY_IN_PROGRESS" {
			return a, nil
		}
		c.r.add("repeats of a request without a final answer", 1)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("insisting on %s: %w (last: %v, %v)", path, ctx.Err(), a, err) //nolint:errorlint // the last error only explains
		case <-time.After(clientPause):
		}
	}
}

func (c *crowd) cancel(ctx context.Context, t *testing.T, id, key string, after time.Duration) {
	t.Helper()
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return
	}
	a, err := c.insist(ctx, "/v1/orders/"+id+"/cancel", key, `{}`)
	switch {
	case err != nil:
		t.Errorf("cancelling %s: %v", id, err)
	case a.Status == http.StatusOK:
		c.r.add("cancellations accepted", 1)
		c.r.promise(id, true)
	case a.Status == http.StatusConflict:
		c.r.add("cancellations too late", 1)
		c.r.promise(id, false)
	default:
		t.Errorf("cancelling %s: got %d %s, want 200 or 409", id, a.Status, a.Body)
	}
}

// act does what the customer does, as soon as it is asked for or when time is up.
func (c *crowd) act(ctx context.Context, id string, w wish) {
	ctx, cancel := context.WithTimeout(ctx, w.after+customerTime)
	defer cancel()
	for wait := w.after; ; wait = clientPause {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if acted, err := c.s.Provider.Act(ctx, id, w.customer); err == nil && len(acted) > 0 {
			c.r.add("customers who "+w.customer, 1)
			return
		}
	}
}

// leave waits for customers and those who cancel.
func (c *crowd) leave() { c.done.Wait() }
