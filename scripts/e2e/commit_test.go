package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// openFor is how long a transaction stays open in the long form.
const openFor = 3 * time.Minute

// A transaction that commits late is published late, and holds up nobody; one that is rolled back leaves a gap that holds up nobody.
func TestOPEN20LateCommit(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]string{
		"committed":   "",
		"rolled back": "; PERFORM pg_terminate_backend(pg_backend_pid())",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, system.Options{})
			ctx := system.Context(t, patience+either(0, openFor))
			tx, err := w.db["order"].Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(20)`); err != nil {
				t.Fatal(err)
			}
			id := keys.OrderID("storefront", "late")
			remove := w.atCommit("order", "customer_order", "order_id", "INSERT", id.String(), `SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; PERFORM pg_advisory_xact_lock(20)`+then)
			late := make(chan answer, 1)
			go func() { late <- w.place(ctx, t, r0(), "Idempotency-Key", "late") }()
			system.Eventually(ctx, t, "the commit to be held", func() bool {
				return w.count("order", `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 1
			})
			w.throughAtOnce(ctx, t, "early")
			if n := w.count("order", `SELECT count(*) FROM customer_order WHERE order_id = $1`, id); n != 0 {
				t.Errorf("got the late order before its commit")
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			released := time.Now()
			if first := <-late; first.err != nil || first.Status != 201 {
				w.eventually(ctx, t, "late", r0()) // its commit took longer than a call may, or did not happen
			}
			if last := awaitRest(ctx, t, w.shop, id.String()); last.Order.Status != verify.Confirmed {
				t.Errorf("the late order: got %s, want CONFIRMED", last.Order.Status)
			}
			if took := time.Since(released); took > recovery {
				t.Errorf("the late order: took %s from its commit on, want at most %s", took, recovery)
			}
			remove()
			w.settled(ctx, t)
		})
	}
}

// A transaction that somebody else holds open, with a number and a snapshot of its own, stalls nothing: orders go through, and their
// messages leave the outboxes.
func TestOPEN20TransactionHeldOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, patience+either(0, openFor))
	for _, service := range services {
		tx, err := w.db[service].BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if _, err := tx.Exec(ctx, `SELECT pg_current_xact_id(), count(*) FROM outbox_message`); err != nil {
			t.Fatal(err)
		}
	}
	w.throughAtOnce(ctx, t, "beside")
	for _, service := range services {
		system.Eventually(ctx, t, "all messages of "+service+" to be sent", func() bool { return w.count(service, `SELECT count(*) FROM outbox`) == 0 })
	}
	w.settled(ctx, t)
}

// throughAtOnce places orders, in the long form for as long as a transaction is open, and fails the test if one has to wait.
func (w *world) throughAtOnce(ctx context.Context, t *testing.T, prefix string) {
	t.Helper()
	atEach(t, 20, openFor, func(i int) {
		began := time.Now()
		a := w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("%s-%d", prefix, i))
		wantCreated(t, "an order beside an open transaction", a, false)
		if last := awaitRest(ctx, t, w.shop, a.Order.ID); last.Order.Status != verify.Confirmed {
			t.Errorf("an order beside an open transaction: got %s, want CONFIRMED", last.Order.Status)
		}
		if took := time.Since(began); took > recovery {
			t.Errorf("an order beside an open transaction: took %s, want at most %s", took, recovery)
		}
	})
}
