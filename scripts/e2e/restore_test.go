package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/postgres/pgcluster"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestDumpAndRestore moves all databases, with orders and messages under way, into a new cluster, whose transaction ids begin again. What
// waited goes out, once and in order; nobody takes an old message for a new one; and new orders go through.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	old := newWorld(t, system.Options{})
	ctx := system.Context(t, 2*patience)
	slow(ctx, t, old.System)
	const under, waiting, fresh = 12, 8, 4
	placeOrders := func(w *world, prefix string, n int) {
		t.Helper()
		for i := range n {
			wantCreated(t, prefix, w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("%s-%d", prefix, i)), false)
		}
	}
	placeOrders(old, "under way", under)
	old.awaitConfirmed(ctx, t, 2)
	messagingtest.Stop(t, old.broker)
	placeOrders(old, "waiting", waiting)
	var neverSent []string
	rows, err := old.db["order"].Query(ctx, `SELECT o.message_id::text FROM outbox o JOIN customer_order c ON c.order_id = o.aggregate_id
		WHERE o.aggregate_seq > 0 AND c.idempotency_key LIKE 'waiting%'`)
	if err == nil {
		neverSent, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(neverSent) != waiting {
		t.Fatalf("events that wait: got %v, %v, want %d", neverSent, err, waiting)
	}
	if status := old.Stop(); status != 0 {
		t.Fatalf("stopping the system: got exit status %d, want 0", status)
	}
	before := old.count("order", `SELECT pg_current_xact_id()::text::bigint`)

	databases := restore(ctx, t, old)
	broker := messagingtest.Restart(t, old.broker)
	w := newWorldAt(t, system.Options{Data: old.Data()}, broker.URL(), broker.URL(), databases)
	if now := w.count("order", `SELECT pg_current_xact_id()::text::bigint`); now >= before {
		t.Fatalf("transaction id in the new cluster: got %d after %d in the old one, want a lower one", now, before)
	}
	seen := watchAt(t, broker.URL())
	placeOrders(w, "fresh", fresh)
	if n := w.settled(ctx, t); n != under+waiting+fresh {
		t.Errorf("got %d orders, want %d", n, under+waiting+fresh)
	}
	byStatus := w.byStatus(ctx, t)
	if got := len(byStatus[verify.Confirmed]); got != under+waiting+fresh {
		t.Errorf("got %d confirmed orders, want %d", got, under+waiting+fresh)
	}
	for _, service := range services {
		system.Eventually(ctx, t, "all messages of "+service+" to be sent", func() bool { return w.count(service, `SELECT count(*) FROM outbox`) == 0 })
	}
	for _, o := range byStatus[verify.Confirmed] {
		seen.awaitEnd(ctx, t, o.ID, verify.Confirmed)
		got := effects(ctx, t, w.System, o.ID)
		for _, once := range []string{"payment_intents.confirm", "payment_intents.capture", "shipments.create", "shipments.dispatch"} {
			if got[once] != 1 {
				t.Errorf("order %s: got %d effects of %s, want 1", o.ID, got[once], once)
			}
		}
	}
	seen.check(t, byStatus)
	copies := w.copies(ctx, t)
	for _, id := range neverSent {
		if copies[id] != 1 {
			t.Errorf("event %s, which waited: got %d copies, want 1", id, copies[id])
		}
	}
}

// restore makes a new cluster with copies of all databases of a world, and gives their addresses.
func restore(ctx context.Context, t *testing.T, old *world) map[string]string {
	t.Helper()
	dir := system.DataDir(t)
	programs, err := pgcluster.Find(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := pgcluster.Start(ctx, pgcluster.Config{Dir: dir, NoFsync: true, Trust: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := cluster.Stop(stop); err != nil {
			t.Errorf("stopping the new cluster: %v", err)
		}
	})
	run := func(in []byte, program string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(ctx, filepath.Join(programs.Dir, program), args...)
		var out, told bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &told
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", program, err, told.String())
		}
		return out.Bytes()
	}
	databases := make(map[string]string)
	for _, service := range services {
		if err := cluster.CreateDatabase(ctx, service, service, "p"); err != nil {
			t.Fatal(err)
		}
		databases[service] = cluster.URL(service, service, "p")
		dump := run(nil, "pg_dump", "--no-owner", "--no-privileges", old.databases[service])
		run(dump, "psql", "--no-psqlrc", "--quiet", "--single-transaction", "--set", "ON_ERROR_STOP=1", databases[service])
	}
	return databases
}
