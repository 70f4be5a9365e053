package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// proof is what `throughline verify --json` prints.
type proof struct {
	Outcome    string  `json:"outcome"`
	Seconds    float64 `json:"seconds"`
	Orders     int     `json:"orders"`
	Messages   int     `json:"messages"`
	Payments   int     `json:"payments"`
	Parcels    int     `json:"parcels"`
	Open       int     `json:"open"`
	InFlight   int     `json:"in_flight"`
	Violations []struct {
		Rule    string `json:"rule"`
		OrderID string `json:"order_id"`
		Key     string `json:"idempotency_key"`
		Detail  string `json:"detail"`
	} `json:"violations"`
	Gaps  []gap `json:"gaps"`
	Money []struct {
		Currency  string `json:"currency"`
		Confirmed int64  `json:"confirmed"`
		Moved     int64  `json:"moved"`
	} `json:"money"`

	code int // that the program ended with
}

type gap struct {
	Service string `json:"service"`
	What    string `json:"what"`
	Why     string `json:"why"`
}

// broken gives the broken rules as lines.
func (p *proof) broken() []string {
	var lines []string
	for _, v := range p.Violations {
		lines = append(lines, v.Rule+" "+v.OrderID)
	}
	slices.Sort(lines)
	return lines
}

// verify runs the command. Later flags win.
func (w *world) verify(ctx context.Context, t *testing.T, args ...string) *proof {
	t.Helper()
	all := []string{"verify", "--json", "--data", w.Data()}
	for _, service := range services {
		all = append(all, "--"+service, fmt.Sprintf("127.0.0.1:%d", w.Ports()[service+"-grpc"]))
	}
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, system.Binary(t), append(all, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	p := new(proof)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		p.code = ended.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), p); err != nil {
		t.Fatalf("reading the proof: %v\n%s%s", err, &out, &complaints)
	}
	return p
}

// charge makes a payment for an order as somebody else with our key would, and does what follows to it.
func (w *world) charge(ctx context.Context, t *testing.T, order string, then ...string) {
	t.Helper()
	var intent struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	call := func(path string, form url.Values) {
		t.Helper()
		body := w.post(ctx, t, fmt.Sprintf("http://127.0.0.1:%d/v1/%s", w.Ports()["provider"], path), "application/x-www-form-urlencoded", form.Encode())
		if err := json.Unmarshal(body, &intent); err != nil {
			t.Fatalf("%s: %v: %s", path, err, body)
		}
	}
	call("payment_intents", url.Values{
		"amount": {"2500"}, "currency": {"eur"}, "capture_method": {"manual"}, "payment_method": {"pm_card_visa"}, "payment_method_types[]": {"card"},
		"metadata[order_id]": {order},
	})
	id := intent.ID
	for _, what := range then {
		if what == "refund" {
			call("refunds", url.Values{"payment_intent": {id}})
		} else {
			call("payment_intents/"+id+"/"+what, nil)
		}
	}
}

func (w *world) post(ctx context.Context, t *testing.T, url, contentType, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk_test_throughline")
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s: got %s %s, %v", url, resp.Status, answer, err)
	}
	return answer
}

// hang places an order whose payment does not come to an end.
func (w *world) hang(ctx context.Context, t *testing.T, key string) string {
	t.Helper()
	id := keys.OrderID(w.shop.ID, key).String()
	if _, err := w.Provider.AddFault(ctx, control.Fault{Operation: "payment_intents.confirm", OrderID: id, Action: control.Hold}); err != nil {
		t.Fatal(err)
	}
	wantCreated(t, key, w.place(ctx, t, r0(), "Idempotency-Key", key), false)
	system.Eventually(ctx, t, "a call to be held", func() bool { return calls(ctx, t, w.System, id)["payment_intents.confirm"] > 0 })
	return id
}

// TestVerify breaks each rule by hand, for an order of its own, and wants each to be named, and nothing else.
func TestVerify(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{NoWebhooks: true, Environ: []string{"THROUGHLINE_VERIFY_EVERY=1s"}})
	ctx := system.Context(t, patience)
	order := func(key string, replace ...string) string {
		t.Helper()
		a := w.place(ctx, t, r0(replace...), "Idempotency-Key", key)
		wantCreated(t, key, a, false)
		return a.Order.ID
	}
	breakers := []struct {
		rules  []string
		failed bool // the order is one that fails
		do     func(id string)
	}{
		{[]string{"one-charge"}, false, func(id string) { w.charge(ctx, t, id, "confirm", "capture", "refund") }},
		{[]string{"confirmed-is-paid-and-shipped", "one-charge"}, false, func(id string) { w.charge(ctx, t, id, "confirm", "capture") }},
		{[]string{"confirmed-is-paid-and-shipped", "one-parcel"}, false, func(id string) {
			w.post(ctx, t, fmt.Sprintf("http://127.0.0.1:%d/v1/shipments", w.Ports()["carrier"]), "application/json", fmt.Sprintf(
				`{"reference":"by hand","order_id":%q,"name":"A","line1":"1","city":"B","postal_code":"10115","country":"DE","items":[{"sku":"A","quantity":1}]}`, id))
		}},
		{[]string{"confirmed-is-paid-and-shipped"}, false, func(id string) { w.byHand(ctx, t, w.Provider, id, "refund") }},
		{[]string{"closed-is-undone"}, true, func(id string) { w.charge(ctx, t, id, "confirm") }},
		{[]string{"own-record-agrees"}, false, func(id string) {
			w.exec("payment", `UPDATE payment SET amount_captured = amount_captured - 1 WHERE order_id = $1`, id)
		}},
		{[]string{"own-record-agrees"}, false, func(id string) {
			w.exec("shipping", `DELETE FROM shipment WHERE order_id = $1`, id)
		}},
		{[]string{"confirmed-is-paid-and-shipped", "own-record-agrees", "own-record-agrees", "own-record-agrees"}, true, func(id string) {
			w.exec("order", `UPDATE customer_order SET status = 'CONFIRMED' WHERE order_id = $1`, id)
		}},
		{[]string{"outbox-lost"}, false, func(id string) {
			w.exec("order", `DELETE FROM outbox_sent WHERE message_id = (SELECT message_id FROM outbox_message WHERE aggregate_id = $1 AND step_name = 'create_shipment')`, id)
		}},
		{[]string{"stream-lost"}, false, func(id string) {
			stream, err := w.jetstream(t).Stream(ctx, "EVT")
			if err != nil {
				t.Fatal(err)
			}
			at := w.count("payment", `SELECT stream_sequence FROM outbox_sent s JOIN outbox_message m USING (message_id) WHERE aggregate_id = $1 AND subject = 'evt.payment.captured'`, id)
			if err := stream.DeleteMsg(ctx, uint64(at)); err != nil {
				t.Fatal(err)
			}
		}},
		{[]string{"inbox-missing"}, false, func(id string) {
			w.exec("shipping", `DELETE FROM inbox WHERE message_id = $1`, w.messageOf(t, "order", id, "cmd.shipping.dispatch_shipment"))
		}},
		{[]string{"inbox-missing"}, false, func(id string) {
			w.exec("order", `DELETE FROM inbox WHERE message_id = (SELECT max(message_id::text)::uuid FROM inbox WHERE message_id = $1)`, w.messageOf(t, "payment", id, "rpl.order.place-order"))
		}},
	}
	ids := make([]string, len(breakers))
	for i, b := range breakers {
		if b.failed {
			ids[i] = order(fmt.Sprintf("verify-%d", i), `"10115"`, `"00000"`)
		} else {
			ids[i] = order(fmt.Sprintf("verify-%d", i))
		}
	}
	for _, id := range append(ids, order("sound"), order("sound and failed", `"10115"`, `"00000"`)) {
		awaitRest(ctx, t, w.shop, id)
	}
	system.Eventually(ctx, t, "all messages to be safe", func() bool {
		pending := 0
		for _, service := range services {
			pending += w.count(service, `SELECT count(*) FROM outbox`)
		}
		return pending == 0
	})
	late, forgotten, slow := w.hang(ctx, t, "late"), w.hang(ctx, t, "forgotten"), w.hang(ctx, t, "slow")
	if p := w.verify(ctx, t, "--all"); p.code != 0 || p.Outcome != "clean" || p.Orders != len(ids)+5 || p.InFlight != 3 || p.Messages == 0 || p.Payments == 0 || p.Parcels == 0 {
		t.Fatalf("before anything is broken: got code %d and %+v, want 0, clean, %d orders and 3 in flight", p.code, p, len(ids)+5)
	}

	var want []string
	for i, b := range breakers {
		b.do(ids[i])
		for _, rule := range b.rules {
			want = append(want, rule+" "+ids[i])
		}
	}
	nobody := uuid.NewString()
	w.charge(ctx, t, nobody, "confirm")
	w.exec("order", `UPDATE saga_timer SET due_at = now() + interval '1 hour' WHERE saga_id = $1`, late)
	w.exec("order", `UPDATE saga_instance SET state = jsonb_set(state, '{steps,0,due}', to_jsonb(now() - interval '10 minutes')) WHERE saga_id = $1`, late)
	w.exec("order", `DELETE FROM saga_timer WHERE saga_id = $1`, forgotten)
	want = append(want, "unknown-order "+nobody, "past-deadline "+late, "no-timer "+forgotten)
	slices.Sort(want)
	for name, args := range map[string][]string{"all": {"--all"}, "lately": {"--since", "1h"}} {
		p := w.verify(ctx, t, args...)
		if got := p.broken(); p.code != 6 || !slices.Equal(got, want) {
			t.Errorf("%s: got code %d and\n%s\nwant 6 and\n%s\ndetails: %+v", name, p.code, strings.Join(got, "\n"), strings.Join(want, "\n"), p.Violations)
		}
		if p.InFlight != 3 {
			t.Errorf("%s: got %d in flight, want 3: %s moves", name, p.InFlight, slow)
		}
	}

	// The service's own proofs count the same, and see what is mended.
	counted := func(rule string) string {
		return w.metric(ctx, t, "order-http", `throughline_verify_violations{rule="`+rule+`"`)
	}
	for rule, want := range map[string]string{"one-charge": "2", "own-record-agrees": "5", "inbox-missing": "2", "unknown-order": "1", "money-adds-up": "0"} {
		system.Eventually(ctx, t, fmt.Sprintf("%s to be counted %s times", rule, want), func() bool { return counted(rule) == want })
	}
	w.exec("payment", `UPDATE payment SET amount_captured = amount_captured + 1 WHERE order_id = $1`, ids[5])
	system.Eventually(ctx, t, "a record that is mended not to be counted", func() bool { return counted("own-record-agrees") == "4" })
	if age := w.metric(ctx, t, "order-http", "throughline_verify_age_seconds"); age == "" {
		t.Error("the age of the last proof is not told")
	}
}

// messageOf gives the last message about an order with a subject that a service has written.
func (w *world) messageOf(t *testing.T, service, order, subject string) uuid.UUID {
	t.Helper()
	var id uuid.UUID
	err := w.db[service].QueryRow(context.Background(),
		`SELECT message_id FROM outbox_message WHERE aggregate_id = $1 AND subject = $2 ORDER BY message_id DESC LIMIT 1`, order, subject).Scan(&id)
	if err != nil {
		t.Fatalf("%s of %s: %v", subject, order, err)
	}
	return id
}

// TestVerifyWhileOrdersFlow: orders that move, fail, are cancelled and lose answers are never a violation.
func TestVerifyWhileOrdersFlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, system.Options{})
	ctx := system.Context(t, patience)
	for c, operations := range map[*control.Client][]string{
		w.Provider: {"payment_intents.create", "payment_intents.confirm", "payment_intents.capture"}, w.Carrier: {"shipments.create", "shipments.dispatch"},
	} {
		for _, operation := range operations {
			for nth := 7; nth < 400; nth += 19 { // an answer is lost now and then
				if _, err := c.AddFault(ctx, control.Fault{Operation: operation, Nth: nth, Times: 1, Action: control.DropAfter}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	flowing, stop := context.WithCancel(ctx)
	var flow sync.WaitGroup
	for i := range 4 {
		flow.Go(func() {
			pace := time.NewTicker(100 * time.Millisecond) // the runs are to have a part of the machine, too
			defer pace.Stop()
			for n := 0; flowing.Err() == nil; n++ {
				select {
				case <-pace.C:
				case <-flowing.Done():
					return
				}
				key := fmt.Sprintf("flow-%d-%d", i, n)
				o := system.Order{}
				switch n % 7 {
				case 2:
					o.PostalCode = "00000"
				case 4:
					o.PaymentMethod = "pm_card_chargeDeclined"
				}
				a, err := w.shop.Place(flowing, key, o)
				if err == nil && n%7 == 5 {
					_, _ = w.shop.Cancel(flowing, a.Order.ID, key+"-cancel") // it may be too late
				}
			}
		})
	}
	runs, moving := 0, 0
	for range 20 {
		p := w.verify(ctx, t, "--since", "5s")
		if p.code != 0 {
			t.Errorf("run %d: got code %d and %+v, want 0", runs, p.code, p)
		}
		runs++
		t.Logf("run %d took %.1f s for %d orders and %d messages, with %d in flight", runs, p.Seconds, p.Orders, p.Messages, p.InFlight)
		if p.InFlight > 0 {
			moving++
		}
	}
	stop()
	flow.Wait()
	if moving == 0 {
		t.Errorf("no run of %d has met an order on its way: the test shows nothing", runs)
	}
	n := w.settled(ctx, t)
	p := w.verify(ctx, t, "--all")
	if p.code != 0 || p.Orders != n || len(p.Money) != 1 || p.Money[0].Confirmed == 0 || p.Money[0].Confirmed != p.Money[0].Moved {
		t.Errorf("at the end: got code %d and %+v, want 0, %d orders, and money that adds up", p.code, p, n)
	}
	took := p.Seconds
	p = w.verify(ctx, t, "--all", "--shipping", "127.0.0.1:1")
	if p.code != 4 || p.Outcome != "incomplete" || !slices.ContainsFunc(p.Gaps, func(g gap) bool { return g.Service == "shipping" && g.Why != "" }) {
		t.Errorf("without shipping: got code %d and %+v, want 4, and that shipping was not seen", p.code, p)
	}
	byStatus := map[string]int{}
	for _, status := range []string{verify.Confirmed, verify.Failed, verify.Cancelled} {
		if byStatus[status] = w.count("order", `SELECT count(*) FROM customer_order WHERE status = $1`, status); byStatus[status] == 0 {
			t.Errorf("no order is %s: the test shows nothing of those", status)
		}
	}
	t.Logf("%d orders (all of them in %.2f s), %d of %d runs with some on their way: %v", n, took, moving, runs, byStatus)
}
