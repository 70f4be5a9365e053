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
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

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
// without a restart of anything. So it is when nothing happens meanwhile.
func TestOPEN22BrokerAway(t *testing.T) {
	t.Parallel()
	const away, idle = 5 * time.Minute, 10 * time.Minute
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, patience+either(0, away+idle))
	messagingtest.Stop(t, w.broker)
	orders := either(40, 300)
	atEach(t, orders, away, func(i int) {
		wantCreated(t, "an order without a broker", w.place(ctx, t, r0(), "Idempotency-Key", fmt.Sprintf("open22-%d", i)), false)
	})
	w.awaitUnready(ctx, t)
	if got := w.count("order", `SELECT count(*) FROM outbox`); got < orders {
		t.Errorf("got %d rows that wait, want at least one for each order", got)
	}
	w.broker = messagingtest.Restart(t, w.broker)
	w.awaitReturn(ctx, t, orders)

	messagingtest.Stop(t, w.broker)
	system.Eventually(ctx, t, "readiness to say that the broker is away", func() bool {
		status, body := w.probe(ctx, t, "order-http", "/readyz")
		return status != http.StatusOK && strings.Contains(body, "broker")
	})
	atEach(t, 1, idle, func(int) {})
	w.broker = messagingtest.Restart(t, w.broker)
	wantCreated(t, "an order after a rest", w.place(ctx, t, r0(), "Idempotency-Key", "open22-rest"), false)
	w.awaitReturn(ctx, t, orders+1)
}

// One command reaches two instances at one moment, in copies that the broker takes for messages of their own. It is performed once,
// whatever the provider makes of a key that it sees twice.
func TestOPEN23OneMessageTwoConsumers(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]*control.Fault{
		"a provider that deduplicates": nil,
		"a provider that says that the key is in use": {
			Operation: "payment_intents.confirm", Action: control.AnswerWith, Status: http.StatusConflict, Times: 1,
			Body: `{"error":{"type":"idempotency_error","code":"idempotency_key_in_use","message":"in use"}}`,
		},
		"a provider that does not deduplicate": {Operation: control.AnyOperation, Action: control.NoDedup},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, system.Options{Separate: true, Instances: 2})
			ctx := system.Context(t, patience)
			faults := []control.Fault{{Operation: control.AnyOperation, Action: control.Delay, DelayMS: 30}, {Operation: "payment_intents.confirm", Action: control.Delay, DelayMS: 2000}}
			if fault != nil {
				faults = append(faults, *fault)
			}
			for _, f := range faults {
				if _, err := w.Provider.AddFault(ctx, f); err != nil {
					t.Fatal(err)
				}
			}
			w.authorizeTogether(ctx, t, "open23")
		})
	}
}

// authorizeTogether places an order and lets both instances of payment have its first command at one moment, several times over.
func (w *world) authorizeTogether(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	for i := range 2 {
		w.Signal("payment", i, syscall.SIGSTOP)
		defer w.Signal("payment", i, syscall.SIGCONT)
	}
	a := w.place(ctx, t, r0(), "Idempotency-Key", key)
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
	if got := effects(ctx, t, w.System, a.Order.ID)["payment_intents.confirm"]; got != 1 {
		t.Errorf("got %d confirmations with an effect, want 1", got)
	}
	if n := w.count("payment", `SELECT count(*) FROM dead_letter`); n != 0 {
		t.Errorf("got %d dead letters, want none", n)
	}
	if n := w.count("payment", `SELECT count(*) FROM outbox_message WHERE subject = 'evt.payment.authorized'`); n != 1 {
		t.Errorf("got %d events of an authorization, want 1", n)
	}
	if n := w.count("payment", `SELECT count(*) FROM outbox_message WHERE outcome = 'refused'`); n != 0 {
		t.Errorf("got %d refusals, want none", n)
	}
	system.Eventually(ctx, t, "all copies to be acknowledged", func() bool {
		stream, err := js.Stream(ctx, "CMD")
		return err == nil && stream.CachedInfo().State.Msgs == 0
	})
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
			deadLetterCommands(ctx, t, w, a.Order.ID)
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
