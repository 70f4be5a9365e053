package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// A relay dies between the acknowledgement of a message and the removal of its row, with its statement under way. The row is published
// again, and within the broker's memory that leaves one copy.
func TestOPEN19CrashBeforeTheRemoval(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"order", "payment", "shipping"} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, system.Options{Separate: true})
			ctx := system.Context(t, patience)
			a := w.place(ctx, t, r0(), "Idempotency-Key", "open19")
			wantCreated(t, "order", a, false)
			system.Eventually(ctx, t, "a pending row of "+service, func() bool { return w.count(service, `SELECT count(*) FROM outbox`) > 0 })
			tx, err := w.db[service].Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(ctx, `LOCK TABLE outbox IN SHARE MODE`); err != nil {
				t.Fatal(err)
			}
			system.Eventually(ctx, t, "the removal to wait for the lock", func() bool {
				return w.count(service, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%DELETE FROM outbox%'`) > 0
			})
			w.Kill(service, 0)
			w.exec(service, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			if last := awaitRest(ctx, t, w.shop, a.Order.ID); last.Order.Status != verify.Confirmed {
				t.Errorf("got %s, want CONFIRMED", last.Order.Status)
			}
			system.Eventually(ctx, t, "all rows to be sent", func() bool { return w.count(service, `SELECT count(*) FROM outbox`) == 0 })
			w.settled(ctx, t)
			for id, copies := range w.copies(ctx, t) {
				if copies != 1 {
					t.Errorf("event %s: got %d copies in the stream, want 1", id, copies)
				}
			}
		})
	}
}

// copies counts the copies of each event in the stream, by message id.
func (w *world) copies(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	stream, err := w.jetstream(t).Stream(ctx, "EVT")
	if err != nil {
		t.Fatal(err)
	}
	state := stream.CachedInfo().State
	copies := make(map[string]int)
	for seq := state.FirstSeq; seq > 0 && seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		copies[m.Header.Get(messaging.HeaderCEID)]++
	}
	return copies
}

// A transaction that commits late is published late, and holds up nobody.
func TestOPEN20LateCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, patience)
	tx, err := w.db["order"].Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(20)`); err != nil {
		t.Fatal(err)
	}
	id := keys.OrderID("storefront", "late")
	remove := w.atCommit("order", "customer_order", "order_id", "INSERT", id.String(), `SET LOCAL lock_timeout = 0; PERFORM pg_advisory_xact_lock(20)`)
	late := make(chan answer, 1)
	go func() { late <- w.place(ctx, t, r0(), "Idempotency-Key", "late") }()
	system.Eventually(ctx, t, "the commit to be held", func() bool {
		return w.count("order", `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`) == 1
	})
	for i := range 20 {
		a := w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("early-%d", i))
		wantCreated(t, "an order beside a late one", a, false)
		if last := awaitRest(ctx, t, w.shop, a.Order.ID); last.Order.Status != verify.Confirmed {
			t.Errorf("an order beside a late one: got %s, want CONFIRMED", last.Order.Status)
		}
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	first := <-late
	if first.err != nil || first.Status != http.StatusCreated {
		first.Answer = w.eventually(ctx, t, "late", r0()) // its commit took longer than a call may
	}
	if last := awaitRest(ctx, t, w.shop, id.String()); last.Order.Status != verify.Confirmed {
		t.Errorf("the late order: got %s, want CONFIRMED", last.Order.Status)
	}
	if took := time.Since(released); took > recovery {
		t.Errorf("the late order: took %s from its commit on, want at most %s", took, recovery)
	}
	remove()
	w.settled(ctx, t)
}

// A row that the broker will never take is set aside, with its reason and a metric. Everything else goes on.
func TestOPEN21RowTheBrokerNeverTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, patience)
	w.exec("order", `
		WITH m AS (INSERT INTO outbox_message (message_id, aggregate_id, aggregate_seq, subject, payload)
		           VALUES ($1, $2, 1, 'evt.order.created', $3) RETURNING *)
		INSERT INTO outbox (message_id, aggregate_id, aggregate_seq, created_at) SELECT message_id, aggregate_id, aggregate_seq, created_at FROM m`,
		keys.NewMessageID(), uuid.New(), make([]byte, 2<<20))
	for i := range 20 {
		a := w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("open21-%d", i))
		wantCreated(t, "an order beside the row", a, false)
	}
	if n := w.settled(ctx, t); n != 20 {
		t.Errorf("got %d orders, want 20", n)
	}
	if got := len(w.byStatus(ctx, t)[verify.Confirmed]); got != 20 {
		t.Errorf("got %d confirmed orders beside the row, want 20", got)
	}
	system.Eventually(ctx, t, "the row to be set aside", func() bool {
		return w.count("order", `SELECT count(*) FROM outbox WHERE set_aside_at IS NOT NULL AND set_aside_reason <> ''`) == 1
	})
	if got := w.metric(ctx, t, "order-http", "throughline_outbox_set_aside"); got != "1" {
		t.Errorf("throughline_outbox_set_aside: got %q, want 1", got)
	}
	out, err := w.operate(ctx, t, "doctor")
	if err == nil || !strings.Contains(out, "1 set aside") {
		t.Errorf("doctor: got %v and %q, want an error and the row", err, out)
	}
}

// metric reads one metric of a service.
func (w *world) metric(ctx context.Context, t *testing.T, port, name string) string {
	t.Helper()
	_, body := w.probe(ctx, t, port, "/metrics")
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, name) {
			fields := strings.Fields(line)
			return fields[len(fields)-1]
		}
	}
	return ""
}

func (w *world) probe(ctx context.Context, t *testing.T, port, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", w.Ports()[port], path), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// operate runs a command of an operator against the system.
func (w *world) operate(ctx context.Context, t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append(args, "--data", w.Data())
	for _, service := range []string{"order", "payment", "shipping"} {
		args = append(args, "--"+service, fmt.Sprintf("127.0.0.1:%d", w.Ports()[service+"-grpc"]))
	}
	out, err := exec.CommandContext(ctx, system.Binary(t), args...).CombinedOutput()
	return string(out), err
}

// The broker is away for as long as it likes: orders are taken and wait, readiness says what is wrong, and on its return all of them go on
// without a restart of anything.
func TestOPEN22BrokerAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, patience)
	messagingtest.Stop(t, w.broker)
	const orders = 40
	for i := range orders {
		wantCreated(t, "an order without a broker", w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("open22-%d", i)), false)
	}
	system.Eventually(ctx, t, "readiness to say that the broker is away", func() bool {
		status, body := w.probe(ctx, t, "order-http", "/readyz")
		return status != http.StatusOK && strings.Contains(body, "broker")
	})
	if got := w.count("order", `SELECT count(*) FROM outbox`); got < orders {
		t.Errorf("got %d rows that wait, want at least one for each order", got)
	}
	if got := w.metric(ctx, t, "order-http", "throughline_outbox_oldest_age"); got == "0" || got == "" {
		t.Errorf("age of the oldest row: got %q, want it to rise", got)
	}
	w.broker = messagingtest.Restart(t, w.broker)
	back := time.Now()
	if n := w.settled(ctx, t); n != orders {
		t.Errorf("got %d orders, want %d", n, orders)
	}
	if got := len(w.byStatus(ctx, t)[verify.Confirmed]); got != orders {
		t.Errorf("got %d confirmed orders, want %d", got, orders)
	}
	if took := time.Since(back); took > time.Minute {
		t.Errorf("orders went on for %s after the broker's return, want at most a minute", took)
	}
	system.Eventually(ctx, t, "readiness and metrics to be well again", func() bool {
		status, _ := w.probe(ctx, t, "order-http", "/readyz")
		return status == http.StatusOK && w.metric(ctx, t, "order-http", "throughline_outbox_oldest_age") == "0"
	})
}

// One command reaches two instances at one moment, in two copies that the broker takes for two messages. It is performed once.
func TestOPEN23OneMessageTwoConsumers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{Separate: true, Instances: 2})
	ctx := system.Context(t, patience)
	slow(ctx, t, w.System)
	for i := range 2 {
		w.Signal("payment", i, syscall.SIGSTOP)
		defer w.Signal("payment", i, syscall.SIGCONT)
	}
	a := w.place(ctx, t, r0(), "Idempotency-Key", "open23")
	wantCreated(t, "order", a, false)
	js := w.jetstream(t)
	var command *jetstream.RawStreamMsg
	system.Eventually(ctx, t, "the command in the stream", func() bool {
		stream, err := js.Stream(ctx, "CMD")
		if err != nil {
			return false
		}
		command, err = stream.GetLastMsgForSubject(ctx, "cmd.payment.authorize_payment")
		return err == nil
	})
	for range 4 {
		again := &nats.Msg{Subject: command.Subject, Header: nats.Header{}, Data: command.Data}
		for name, values := range command.Header {
			again.Header[name] = values
		}
		again.Header[nats.MsgIdHdr] = []string{uuid.NewString()}
		if _, err := js.PublishMsg(ctx, again); err != nil {
			t.Fatal(err)
		}
	}
	var together sync.WaitGroup
	for i := range 2 {
		together.Go(func() { w.Signal("payment", i, syscall.SIGCONT) })
	}
	together.Wait()
	if last := awaitRest(ctx, t, w.shop, a.Order.ID); last.Order.Status != verify.Confirmed {
		t.Errorf("got %s, want CONFIRMED", last.Order.Status)
	}
	if intents, _, captured, refunded := w.charged(ctx, t, a.Order.ID); intents != 1 || captured != 2500 || refunded != 0 {
		t.Errorf("got %d intents, %d captured, %d refunded, want 1, 2500 and 0", intents, captured, refunded)
	}
	if n := w.count("payment", `SELECT count(*) FROM dead_letter`); n != 0 {
		t.Errorf("got %d dead letters, want none", n)
	}
	w.settled(ctx, t)
}

// A dead letter is replayed although its effect is there, and the data that would tell is gone: the step's own record answers. After the
// order was undone the action meets its tombstone.
func TestOPEN24ReplayWithoutInbox(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body   string
		status string
		total  int64
	}{
		"a step that is done":     {r0(), verify.Confirmed, 2500},
		"an order that is undone": {r0(`"10115"`, `"00000"`), verify.Failed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, system.Options{})
			ctx := system.Context(t, patience)
			a := w.place(ctx, t, tt.body, "Idempotency-Key", "open24")
			wantCreated(t, "order", a, false)
			if last := awaitRest(ctx, t, w.shop, a.Order.ID); last.Order.Status != tt.status {
				t.Fatalf("got %s, want %s", last.Order.Status, tt.status)
			}
			w.deadLetter(t, a.Order.ID, "authorize_payment")
			replies := func() int {
				return w.count("payment", `SELECT count(*) FROM outbox_message WHERE aggregate_id = $1 AND step_name = 'authorize_payment'`, a.Order.ID)
			}
			before := replies()
			out, err := w.operate(ctx, t, "dead-letters", "replay")
			if err != nil || !strings.Contains(out, "would") || replies() != before {
				t.Errorf("dry run: got %v, %q and %d replies, want no error, what it would do, and nothing done", err, out, replies()-before)
			}
			out, err = w.operate(ctx, t, "dead-letters", "replay", "--execute", "--reason", "a test")
			if err != nil || !strings.Contains(out, "done") {
				t.Errorf("replay: got %v, %q, want it done", err, out)
			}
			if got := replies() - before; got != 1 {
				t.Errorf("got %d replies after the replay, want that of the first time again", got)
			}
			for range 2 {
				if out, err := w.operate(ctx, t, "dead-letters", "replay", "payment/1", "--execute", "--reason", "a test"); err == nil || !strings.Contains(out, "refused") {
					t.Errorf("replay of what is settled: got %v, %q, want it refused", err, out)
				}
			}
			if out, err := w.operate(ctx, t, "dead-letters", "show", "payment/1"); err != nil || !strings.Contains(out, "replayed") || !strings.Contains(out, "a test") {
				t.Errorf("show: got %v, %q, want what was done and why", err, out)
			}
			w.settled(ctx, t)
			if last := awaitRest(ctx, t, w.shop, a.Order.ID); last.Order.Status != tt.status {
				t.Errorf("after the replays: got %s, want %s still", last.Order.Status, tt.status)
			}
			if _, _, captured, refunded := w.charged(ctx, t, a.Order.ID); captured-refunded != tt.total {
				t.Errorf("got %d captured and %d refunded, want %d in all", captured, refunded, tt.total)
			}
		})
	}
}

// deadLetter makes a dead letter of a command that payment has dealt with, long ago, and takes away its inbox row.
func (w *world) deadLetter(t *testing.T, order, step string) {
	t.Helper()
	ctx := context.Background()
	var (
		m       messaging.Message
		message string
		key     string
	)
	err := w.db["order"].QueryRow(ctx, `
		SELECT message_id, subject, type, source, idempotency_key, step_key, payload FROM outbox_message WHERE aggregate_id = $1 AND step_name = $2`,
		order, step).Scan(&message, &m.Subject, &m.Type, &m.Source, &m.IdempotencyKey, &key, &m.Payload)
	if err != nil {
		t.Fatal(err)
	}
	m.ID, m.AggregateID, m.StepName, m.StepKey = uuid.MustParse(message), uuid.MustParse(order), step, uuid.MustParse(key)
	d := messaging.NewDelivery(m, 1)
	headers, err := json.Marshal(d.Headers())
	if err != nil {
		t.Fatal(err)
	}
	w.exec("payment", `DELETE FROM inbox WHERE message_id = $1`, m.ID)
	w.exec("payment", `
		INSERT INTO dead_letter (consumer, message_id, aggregate_id, aggregate_seq, subject, headers, payload, error, attempts, stream_sequence, stored_at)
		VALUES ('payment-commands', $1, $2, 0, $3, $4, $5, 'no answer', 8, 1, now() - interval '90 days')`, m.ID, m.AggregateID, m.Subject, headers, m.Payload)
}
