package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// recovery is the published time within which a key answers after any outage is over: a lease or two, and the client's own pauses.
const recovery = 30 * time.Second

// A passing outage is not pinned to the key: of the order service, of its database, and of the broker, which placing an order does not need.
func TestOPEN07OutageIsNotPinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{Separate: true})
	ctx := system.Context(t, patience)
	for name, outage := range map[string]func() (end func()){
		"order service": func() func() {
			w.Signal("order", 0, syscall.SIGSTOP)
			return func() { w.Signal("order", 0, syscall.SIGCONT) }
		},
		"database": func() func() { return w.cut("order") },
	} {
		key := "open07 " + name
		end := outage()
		for range 2 {
			a := w.place(ctx, t, r0(), "Idempotency-Key", key)
			if a.err != nil || (a.Status != http.StatusServiceUnavailable && a.Status != http.StatusGatewayTimeout) {
				t.Errorf("%s away: got %d %s (%v), want 503 or 504", name, a.Status, a.Body, a.err)
			}
			if a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") == "" {
				t.Errorf("%s away: got 503 without Retry-After", name)
			}
		}
		end()
		first := w.eventually(ctx, t, key, r0())
		if name == "database" && first.Replayed { // a frozen service may have the first request in hand when it goes on
			t.Errorf("%s back: got a replay, want the first answer", name)
		}
		wantCreated(t, name+" back, again", w.place(ctx, t, r0(), "Idempotency-Key", key), true)
	}
	messagingtest.Stop(t, w.broker)
	a := w.place(ctx, t, r0(), "Idempotency-Key", "open07 broker")
	wantCreated(t, "broker away", a, false)
	messagingtest.Restart(t, w.broker)
	if last := awaitRest(ctx, t, w.shop, a.Order.ID); last.Order.Status != verify.Confirmed {
		t.Errorf("broker back: got %s, want CONFIRMED", last.Order.Status)
	}
	w.settled(ctx, t)
}

// eventually places an order like a client should, and fails the test if the key does not answer within the recovery time.
func (w *world) eventually(ctx context.Context, t *testing.T, key, body string) *system.Answer {
	t.Helper()
	return w.eventuallyBy(ctx, t, w.shop, key, body)
}

// eventuallyBy is the same by another client.
func (w *world) eventuallyBy(ctx context.Context, t *testing.T, shop *system.Client, key, body string) *system.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a := ask(ctx, t, shop, 0, http.MethodPost, "/v1/orders", body, "Idempotency-Key", key)
		switch {
		case a.err == nil && a.Status == http.StatusCreated:
			return a.Answer
		case a.err == nil && a.Status < 500 && a.Problem.Reason != "KEY_IN_PROGRESS":
			t.Fatalf("key %s: got %d %s", key, a.Status, a.Body)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("key %s: no answer within %s, last %d %s (%v)", key, recovery, a.Status, a.Body, a.err)
		case <-tick.C:
		}
	}
}

// The order service is killed while the create commits, when it has committed and nobody knows, and while the provider is asked.
func TestOPEN10KilledAfterTheClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{Separate: true, Environ: []string{"THROUGHLINE_SERVICE_CREDENTIAL=" + betweenServices}})
	ctx := system.Context(t, patience)
	for name, hold := range map[string]string{
		"before the commit": "PERFORM pg_sleep(1); PERFORM pg_terminate_backend(pg_backend_pid())",
		"after the commit":  "PERFORM pg_sleep(2)",
	} {
		key := "open10 " + name
		id := keys.OrderID("storefront", key).String()
		remove := w.atCommit("order", "customer_order", "order_id", "INSERT", id, hold)
		first := make(chan answer, 1)
		go func() { first <- ask(ctx, t, w.shop, 0, http.MethodPost, "/v1/orders", r0(), "Idempotency-Key", key) }()
		w.awaitSleep(ctx, t, "order")
		w.Kill("order", 0)
		if a := <-first; a.err == nil && a.Status != http.StatusCreated && a.Status < 500 && a.Problem.Reason != "KEY_IN_PROGRESS" {
			t.Errorf("%s: got %d %s, want what a client repeats", name, a.Status, a.Body)
		}
		a := w.eventually(ctx, t, key, r0())
		if a.Order.ID != id {
			t.Errorf("%s: got order %s, want %s", name, a.Order.ID, id)
		}
		remove()
	}

	open10ReplyHeld(ctx, t, w)

	const key = "open10 at the provider"
	id := keys.OrderID("storefront", key).String()
	if _, err := w.Provider.AddFault(ctx, control.Fault{Operation: "payment_intents.confirm", OrderID: id, Action: control.Hold, Effect: control.EffectAfter}); err != nil {
		t.Fatal(err)
	}
	wantCreated(t, "at the provider", w.place(ctx, t, r0(), "Idempotency-Key", key), false)
	system.Eventually(ctx, t, "the provider to hold the call", func() bool {
		faults, err := w.Provider.Faults(ctx)
		return err == nil && len(faults) == 1 && faults[0].Held == 1
	})
	w.Kill("order", 0)
	w.Kill("payment", 0)
	if err := w.Provider.ClearFaults(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Provider.Release(ctx, ""); err != nil {
		t.Fatal(err)
	}
	w.eventually(ctx, t, key, r0())
	if last := awaitRest(ctx, t, w.shop, id); last.Order.Status != verify.Confirmed {
		t.Errorf("at the provider: got %s, want CONFIRMED", last.Order.Status)
	}
	w.settled(ctx, t)
}

// The answer to a commit is lost, and the commit happens or does not: of the create, of a step's record, of the saga's advance, and of the
// relay's mark. The client ends with one order, which is charged and shipped once.
func TestOPEN11CommitAnswerLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, 2*patience)
	places := []struct{ name, service, table, column, event string }{
		{"create", "order", "customer_order", "order_id", "INSERT"},
		{"step", "payment", "step", "order_id", "UPDATE"},
		{"saga", "order", "saga_instance", "saga_id", "UPDATE"},
		{"mark", "order", "outbox", "aggregate_id", "UPDATE OR DELETE"},
	}
	for _, p := range places {
		for _, committed := range []bool{true, false} {
			key := fmt.Sprintf("open11 %s %v", p.name, committed)
			id := keys.OrderID("storefront", key).String()
			hold := "PERFORM pg_sleep(2)"
			if !committed {
				hold = "PERFORM pg_sleep(1); PERFORM pg_terminate_backend(pg_backend_pid())"
			}
			remove := w.atCommit(p.service, p.table, p.column, p.event, id, hold)
			go func() { _ = ask(ctx, t, w.shop, 0, http.MethodPost, "/v1/orders", r0(), "Idempotency-Key", key) }()
			w.awaitSleep(ctx, t, p.service)
			mend := w.cut(p.service)
			system.Eventually(ctx, t, "the held commit to end", func() bool { return w.sleeping(p.service) == 0 })
			mend()
			remove()
			a := w.eventually(ctx, t, key, r0())
			if a.Order.ID != id {
				t.Errorf("%s: got order %s, want %s", key, a.Order.ID, id)
			}
			if last := awaitRest(ctx, t, w.shop, id); last.Order.Status != verify.Confirmed {
				t.Errorf("%s: got %s, want CONFIRMED", key, last.Order.Status)
			}
			got := effects(ctx, t, w.System, id)
			for _, once := range []string{"payment_intents.confirm", "payment_intents.capture", "shipments.create", "shipments.dispatch"} {
				if got[once] != 1 {
					t.Errorf("%s: got %d effects of %s, want 1", key, got[once], once)
				}
			}
		}
	}
	if n := w.settled(ctx, t); n != 2*len(places) {
		t.Errorf("got %d orders, want %d", n, 2*len(places))
	}
}

// atCommit makes the first commit that touches the rows of an order do something, which is a statement of PL/pgSQL, and gives what takes it
// away again.
func (w *world) atCommit(service, table, column, event, id, statement string) (remove func()) {
	w.t.Helper()
	w.exec(service, fmt.Sprintf(`
		CREATE SEQUENCE t1_calls;
		CREATE FUNCTION t1() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF coalesce(NEW.%[2]s, OLD.%[2]s) = '%[4]s' AND nextval('t1_calls') = 1 THEN %[5]s; END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER t1 AFTER %[3]s ON %[1]s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION t1()`,
		table, column, event, id, statement))
	return func() {
		w.exec(service, fmt.Sprintf(`DROP TRIGGER t1 ON %s; DROP FUNCTION t1(); DROP SEQUENCE t1_calls`, table))
	}
}

func (w *world) sleeping(service string) int {
	return w.count(service, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`)
}

func (w *world) awaitSleep(ctx context.Context, t *testing.T, service string) {
	t.Helper()
	system.Eventually(ctx, t, "a commit to be held", func() bool { return w.sleeping(service) == 1 })
}
