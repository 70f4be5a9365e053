package payment_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/simulator/payment"
)

// clock is a clock that stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestReplayHasTheSameBytes(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	first := s.post("/v1/payment_intents", "k", createForm)
	// The same parameters in another order are the same request.
	second := s.post("/v1/payment_intents", "k", "metadata[order_id]=o1&currency=eur&payment_method=pm_card_visa&capture_method=manual&amount=1099")
	if second.status != first.status || second.body != first.body {
		t.Errorf("replay: got %d %s, want %d %s", second.status, second.body, first.status, first.body)
	}
	if a, b := first.header.Get("Idempotent-Replayed"), second.header.Get("Idempotent-Replayed"); a != "" || b != "true" {
		t.Errorf("Idempotent-Replayed: got %q then %q, want none then true", a, b)
	}
	if a, b := first.header.Get("Request-Id"), second.header.Get("Request-Id"); a == b {
		t.Errorf("Request-Id is the same: %q", a)
	}
	if n := len(s.ledger("o1").Intents); n != 1 {
		t.Errorf("intents: got %d, want 1", n)
	}
}

func TestReplayOfAnErrorEvenWhenItIsNoLongerTrue(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_visa_chargeDeclined")
	first := s.post("/v1/payment_intents/"+pi.ID+"/confirm", "k", "")
	if r := s.post("/v1/payment_intents/"+pi.ID+"/confirm", "k2", "payment_method=pm_card_visa"); r.status != 200 {
		t.Fatalf("confirm with another card: got %d %s", r.status, r.body)
	}
	again := s.post("/v1/payment_intents/"+pi.ID+"/confirm", "k", "")
	if first.status != 402 || again.status != 402 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("got %d, then %d %s; want the first error replayed", first.status, again.status, again.body)
	}
}

func TestKeyIsBoundToParametersAndEndpoint(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_visa")
	if _, err := s.confirm(pi.ID, "k"); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]raw{
		"other parameters": s.post("/v1/payment_intents/"+pi.ID+"/confirm", "k", "payment_method=pm_card_visa"),
		"other endpoint":   s.post("/v1/payment_intents/"+pi.ID+"/capture", "k", ""),
	} {
		if r.status != 400 || !strings.Contains(r.body, `"type":"idempotency_error"`) || r.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: got %d %s, want 400 idempotency_error", name, r.status, r.body)
		}
	}
	if got := s.retrieve(pi.ID).Status; got != stripe.PaymentIntentStatusRequiresCapture {
		t.Errorf("status: got %s, want requires_capture", got)
	}
	// The refusals must not have replaced what the key stands for.
	if r := s.post("/v1/payment_intents/"+pi.ID+"/confirm", "k", ""); r.status != 200 || r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("original request: got %d %s, want a replay", r.status, r.body)
	}
}

func TestKeyInUse(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_visa")
	rule := s.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Hold, Times: 1})
	done := make(chan error, 1)
	go func() { _, err := s.confirm(pi.ID, "k"); done <- err }()
	s.held(rule, 1)
	_, err := s.confirm(pi.ID, "k")
	if e := asStripe(t, err); e.HTTPStatusCode != 409 || e.Type != stripe.ErrorTypeIdempotency || e.Code != stripe.ErrorCodeIdempotencyKeyInUse {
		t.Errorf("got %d %s %s, want 409 idempotency_error idempotency_key_in_use", e.HTTPStatusCode, e.Type, e.Code)
	}
	if n, err := s.control.Release(t.Context(), rule); n != 1 || err != nil {
		t.Errorf("release: got %d, %v; want 1", n, err)
	}
	if err := <-done; err != nil {
		t.Errorf("held confirm: %v", err)
	}
	// The conflict was not stored.
	if r := s.post("/v1/payment_intents/"+pi.ID+"/confirm", "k", ""); r.status != 200 || r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeat: got %d %s, want a replay of 200", r.status, r.body)
	}
}

func TestValidationErrorsAreNotStored(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	if r := s.post("/v1/payment_intents", "k", "amount=0&currency=eur"); r.status != 400 {
		t.Fatalf("got %d %s, want 400", r.status, r.body)
	}
	if r := s.post("/v1/payment_intents", "k", "amount=1&currency=eur"); r.status != 200 {
		t.Errorf("corrected request under the same key: got %d %s, want 200", r.status, r.body)
	}
	if r := s.post("/v1/payment_intents", strings.Repeat("k", 256), "amount=1&currency=eur"); r.status != 400 {
		t.Errorf("key of 256 characters: got %d, want 400", r.status)
	}
}

func TestKeyExpires(t *testing.T) {
	t.Parallel()
	clock := &clock{now: time.Now()}
	s := start(t, payment.Config{Now: clock.Now})
	first := s.post("/v1/payment_intents", "k", createForm)
	clock.advance(24*time.Hour - time.Second)
	if r := s.post("/v1/payment_intents", "k", createForm); r.body != first.body {
		t.Errorf("just before the end: got %s, want %s", r.body, first.body)
	}
	clock.advance(time.Second)
	r := s.post("/v1/payment_intents", "k", createForm)
	if r.status != 200 || r.body == first.body || r.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("after the end: got %d %s, want a new intent", r.status, r.body)
	}
	if n := len(s.ledger("o1").Intents); n != 2 {
		t.Errorf("intents: got %d, want 2", n)
	}
}

func TestCallsAreListed(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_visa")
	s.mustCreate("o", "pm_card_visa") // replay
	s.retrieve(pi.ID)
	if _, err := s.confirm(pi.ID, "c"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.confirm(pi.ID, "c2"); err == nil {
		t.Fatal("second confirm succeeded")
	}
	s.mustCreate("other", "pm_card_visa")
	want := []control.Call{
		{Operation: "payment_intents.create", IdempotencyKey: "create-o", Status: 200, Effect: true},
		{Operation: "payment_intents.create", IdempotencyKey: "create-o", Status: 200, Replayed: true},
		{Operation: "payment_intents.retrieve", Status: 200},
		{Operation: "payment_intents.confirm", IdempotencyKey: "c", Status: 200, Effect: true},
		{Operation: "payment_intents.confirm", IdempotencyKey: "c2", Status: 400},
	}
	got := s.ledger("o").Calls
	if len(got) != len(want) {
		t.Fatalf("calls: got %d, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i].At.IsZero() {
			t.Errorf("call %d has no time", i)
		}
		got[i].At, want[i].OrderID = time.Time{}, "o"
		if got[i] != want[i] {
			t.Errorf("call %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
	if n := len(s.ledger("").Calls); n != 6 {
		t.Errorf("calls of all orders: got %d, want 6", n)
	}
}

// Two confirms at once, under one key and under two: one charge.
func TestConcurrentConfirms(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{"one key": {"k", "k", "k", "k"}, "own keys": {"a", "b", "c", "d"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, payment.Config{})
			pi := s.mustCreate("o", "pm_card_visa")
			var wg sync.WaitGroup
			for _, key := range keys {
				wg.Go(func() { _, _ = s.confirm(pi.ID, key) })
			}
			wg.Wait()
			effects := 0
			l := s.ledger("o")
			for _, c := range l.Calls {
				if c.Operation == "payment_intents.confirm" && c.Effect {
					effects++
				}
			}
			if effects != 1 || l.Intents[0].AmountCapturable != 1099 {
				t.Errorf("got %d effects and %d held, want 1 and 1099", effects, l.Intents[0].AmountCapturable)
			}
		})
	}
}
