package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// seen is a span as a trace store gives it.
type seen struct {
	service, name     string
	trace, id, parent string
	attributes        map[string]string
	links             []spot
}

type spot struct{ trace, id string }

func (s seen) String() string { return s.service + ": " + s.name }

// finder gives the traces that have a span with an attribute.
type finder func(ctx context.Context, attribute, value string) ([][]seen, error)

const (
	keyAttribute   = "throughline.idempotency_key"
	orderAttribute = "throughline.order_id"
)

// story is an order, and how many traces lead to it by its key: the one that it began, and those that link to it.
type story struct {
	name, key, id string
	status        string
	traces        int
	kept          bool // whatever the sampling is
}

// playStories plays an order that goes right, one that is asked for twice, one that is undone, one with a reply that is delivered again, one
// with a message that is given up and replayed, and one that ends with a person.
func playStories(ctx context.Context, t *testing.T, w *world) []story {
	t.Helper()
	stories := []story{
		{name: "happy", key: "story-happy", status: verify.Confirmed, traces: 1},
		{name: "retried", key: "story-retried", status: verify.Confirmed, traces: 2},
		{name: "undone", key: "story-undone", status: verify.Failed, traces: 1, kept: true},
		{name: "cancelled", key: "story-cancelled", status: verify.Cancelled, traces: 2, kept: true},
		{name: "redelivered", key: "story-redelivered", status: verify.Confirmed, traces: 1},
		{name: "dead-lettered", key: "story-dead", status: verify.Confirmed, traces: 2, kept: true},
		{name: "attention", key: "story-attention", status: verify.NeedsAttention, traces: 1, kept: true},
	}
	for i := range stories {
		s := &stories[i]
		s.id = keys.OrderID(w.shop.ID, s.key).String()
		switch s.name {
		case "undone":
			s.place(ctx, t, w, system.Order{PostalCode: "00000"})
		case "attention": // its payment is declined when the parcel is booked, and the carrier does not take that back
			if _, err := w.Carrier.AddFault(ctx, control.Fault{
				OrderID: s.id, Operation: "shipments.cancel", Action: control.AnswerWith, Status: 409,
				Body: `{"error":{"code":"already_dispatched","message":"it has left"}}`,
			}); err != nil {
				t.Fatal(err)
			}
			s.place(ctx, t, w, system.Order{PaymentMethod: "pm_sim_captureDeclined"})
		case "retried":
			s.place(ctx, t, w, system.Order{})
			s.place(ctx, t, w, system.Order{})
		case "cancelled":
			held := hold(ctx, t, w, "payment_intents.confirm", s.id)
			s.place(ctx, t, w, system.Order{})
			system.Eventually(ctx, t, "the payment to be held", func() bool { return calls(ctx, t, w.System, s.id)["payment_intents.confirm"] > 0 })
			if _, err := w.shop.Cancel(ctx, s.id, "cancel-of-"+s.key); err != nil {
				t.Fatal(err)
			}
			held()
		case "redelivered":
			held := hold(ctx, t, w, "payment_intents.confirm", s.id)
			s.place(ctx, t, w, system.Order{})
			// A saga of another release: its reply is given back, and comes again.
			const turn = `UPDATE saga_instance SET definition_hash = definition_hash || $2 WHERE saga_id = $1`
			w.exec("order", turn, s.id, []byte("x"))
			held()
			system.Eventually(ctx, t, "the reply to come again", func() bool {
				n := w.metric(ctx, t, "order-http", `throughline_consumer_redelivering{throughline_consumer="order-replies"}`)
				return n != "" && n != "0"
			})
			w.exec("order", `UPDATE saga_instance SET definition_hash = substring(definition_hash FROM 1 FOR length(definition_hash) - 1) WHERE saga_id = $1`, s.id)
		case "dead-lettered":
			s.place(ctx, t, w, system.Order{})
			w.misaddress(ctx, t, s.id)
			if out, err := w.operate(ctx, t, "dead-letters", "replay", "--execute", "--reason", "a test"); err == nil {
				t.Errorf("replay of what can not be handled: got no error and %q, want one", out)
			}
		default:
			s.place(ctx, t, w, system.Order{})
		}
		if last := awaitRest(ctx, t, w.shop, s.id); last.Order.Status != s.status {
			t.Errorf("%s: got %s, want %s", s.name, last.Order.Status, s.status)
		}
	}
	return stories
}

func (s *story) place(ctx context.Context, t *testing.T, w *world, o system.Order) {
	t.Helper()
	if _, err := w.shop.Place(ctx, s.key, o); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
}

// hold holds one call of the provider about an order until the returned function is called.
func hold(ctx context.Context, t *testing.T, w *world, operation, order string) (release func()) {
	t.Helper()
	rule, err := w.Provider.AddFault(ctx, control.Fault{Operation: operation, OrderID: order, Action: control.Hold, Times: 1})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		system.Eventually(ctx, t, "the call to be held", func() bool { return calls(ctx, t, w.System, order)[operation] > 0 })
		if _, err := w.Provider.Release(ctx, rule); err != nil {
			t.Fatal(err)
		}
	}
}

// misaddress sends a command of an order again with a step key that is not its own, and waits until it is given up.
func (w *world) misaddress(ctx context.Context, t *testing.T, order string) {
	t.Helper()
	var m messaging.Message
	err := w.db["order"].QueryRow(ctx, `
		SELECT subject, type, source, idempotency_key, step_name, payload, traceparent
		  FROM outbox_message WHERE aggregate_id = $1 AND step_name = 'authorize_payment'`, order).
		Scan(&m.Subject, &m.Type, &m.Source, &m.IdempotencyKey, &m.StepName, &m.Payload, &m.TraceParent)
	if err != nil {
		t.Fatal(err)
	}
	m.ID, m.AggregateID, m.StepKey = keys.NewMessageID(), uuid.MustParse(order), uuid.New()
	m.CreatedAt = keys.MessageTime(m.ID)
	m.Kind = messaging.KindOf(m.Subject)
	conn, err := messaging.Connect(messaging.Config{URL: w.brokerURL, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Publish(ctx, &m).Wait(ctx); err != nil {
		t.Fatal(err)
	}
	system.Eventually(ctx, t, "the message to be given up", func() bool {
		return w.count("payment", `SELECT count(*) FROM dead_letter WHERE message_id = $1`, m.ID) == 1
	})
}

// checkStories finds each order by its key and by its id, and looks at its traces.
func checkStories(ctx context.Context, t *testing.T, stories []story, find finder) {
	t.Helper()
	for _, s := range stories {
		var main []seen
		var others [][]seen
		whole := false
		defer func() {
			if !whole {
				t.Logf("%s: found one with the orphans %v:\n%s\nand others:\n%s", s.name, orphans(main), outline(main), outline(others...))
			}
		}()
		system.Eventually(ctx, t, s.name+" to be found, whole", func() bool {
			traces, err := find(ctx, keyAttribute, s.key)
			if err != nil {
				t.Fatal(err)
			}
			main, others = nil, nil
			var notices [][]seen
			traces = slices.DeleteFunc(traces, func(spans []seen) bool {
				if isNotice(spans) {
					notices = append(notices, spans)
				}
				return isRead(spans) || isNotice(spans)
			})
			for _, spans := range traces {
				if slices.ContainsFunc(spans, func(sp seen) bool { return strings.HasPrefix(sp.name, "perform ") }) && main == nil {
					main = spans
				} else {
					others = append(others, spans)
				}
			}
			whole = len(traces) == s.traces && main != nil && len(orphans(main)) == 0 && enough(s, main)
			if i := slices.IndexFunc(notices, func(spans []seen) bool { return whole && !leads(spans, main) }); i >= 0 {
				t.Errorf("%s: a notice, of %v, has no link to the order's trace", s.name, notices[i])
			}
			return whole
		})
		checkStory(t, s, main)
		for _, spans := range others {
			if got := orphans(spans); len(got) > 0 {
				t.Errorf("%s: a second trace with the orphans %v", s.name, got)
			}
			if !leads(spans, main) {
				t.Errorf("%s: a second trace, of %v, has no link to the first", s.name, spans)
			}
		}
		byID, err := find(ctx, orderAttribute, s.id)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(byID, func(spans []seen) bool { return spans[0].trace == main[0].trace && len(spans) == len(main) }) {
			t.Errorf("%s: its trace is found by its key and not by its order id %s", s.name, s.id)
		}
	}
}

// outline lists what is in traces.
func outline(traces ...[]seen) string {
	var b strings.Builder
	for _, spans := range traces {
		for _, sp := range spans {
			fmt.Fprintf(&b, "%s %s under %s: %s\n", sp.trace, sp.id, sp.parent, sp)
		}
	}
	return b.String()
}

// isRead says whether a trace is one of looking at an order, as the test itself does.
func isRead(spans []seen) bool {
	return slices.ContainsFunc(spans, func(sp seen) bool { return sp.parent == "" && strings.HasPrefix(sp.name, "GET ") })
}

// isNotice says whether a trace is of what the provider or the carrier has said by itself, which it does as often as it likes.
func isNotice(spans []seen) bool {
	return slices.ContainsFunc(spans, func(sp seen) bool { return sp.parent == "" && strings.HasPrefix(sp.name, "notice ") })
}

// enough says whether what came last in a story is there.
func enough(s story, spans []seen) bool {
	return slices.ContainsFunc(spans, func(sp seen) bool { return sp.name == "send "+lastEvent[s.status] })
}

var lastEvent = map[string]string{
	verify.Confirmed: "evt.order.confirmed", verify.Failed: "evt.order.failed", verify.Cancelled: "evt.order.cancelled",
	verify.NeedsAttention: "evt.order.needs_attention",
}

// checkStory looks at the trace of one order: who is in it, what each span carries, and what stands under what.
func checkStory(t *testing.T, s story, spans []seen) {
	t.Helper()
	byID := make(map[string]seen, len(spans))
	services := make(map[string]int)
	for _, sp := range spans {
		byID[sp.id] = sp
		services[sp.service]++
		if sp.attributes[keyAttribute] != s.key || sp.attributes[orderAttribute] != s.id {
			t.Errorf("%s: %s has the key %q and the order %q", s.name, sp, sp.attributes[keyAttribute], sp.attributes[orderAttribute])
		}
	}
	for _, service := range []string{"gateway", "order", "payment"} {
		if services[service] == 0 {
			t.Errorf("%s: no span of %s among %v", s.name, service, services)
		}
	}
	if services["shipping"] == 0 && s.name != "cancelled" {
		t.Errorf("%s: no span of shipping among %v", s.name, services)
	}
	roots := 0
	for _, sp := range spans {
		if sp.parent == "" {
			roots++
			continue
		}
		if problem := misplaced(sp, byID[sp.parent]); problem != "" {
			t.Errorf("%s: %s", s.name, problem)
		}
	}
	if roots != 1 {
		t.Errorf("%s: got %d roots, want 1", s.name, roots)
	}
	for _, want := range wanted[s.name] {
		if !slices.ContainsFunc(spans, func(sp seen) bool { return sp.name == want }) {
			t.Errorf("%s: no span %q", s.name, want)
		}
	}
	if s.name == "attention" && !slices.ContainsFunc(spans, func(sp seen) bool {
		return sp.attributes["throughline.attention"] == "cancel_shipment was refused: already_dispatched"
	}) {
		t.Errorf("%s: no span says why a person is needed", s.name)
	}
	again := slices.ContainsFunc(spans, func(sp seen) bool {
		return strings.HasPrefix(sp.name, "receive rpl.") && slices.Contains(sp.links, spot{sp.trace, sp.parent})
	})
	if again != (s.name == "redelivered") {
		t.Errorf("%s: a receipt that links to its message's publishing: got %v", s.name, again)
	}
}

// wanted are spans that tell what is particular about a story.
var wanted = map[string][]string{
	"happy":         {"send cmd.payment.authorize_payment", "process cmd.shipping.create_shipment", "perform capture_payment", "send rpl.order.place-order"},
	"undone":        {"perform void_payment", "perform create_shipment", "undo decided: saga running → compensating", "send evt.order.failed"},
	"cancelled":     {"cancel place-order", "perform void_payment"},
	"dead-lettered": {"dead-letter cmd.payment.authorize_payment"},
	"attention":     {"perform cancel_shipment", "carrier cancel shipment", "cancel_shipment, of create_shipment: undoing → undo_refused"},
}

// misplaced says what is wrong about where a span stands.
func misplaced(sp, parent seen) string {
	verb, object, _ := strings.Cut(sp.name, " ")
	want := ""
	switch {
	case parent.id == "":
		return fmt.Sprintf("%s is an orphan", sp)
	case verb == "send" && parent.name != "outbox "+object:
		want = "outbox " + object
	case verb == "process" && parent.name != "receive "+object:
		want = "receive " + object
	case verb == "receive" && parent.name != "send "+object && !strings.HasPrefix(parent.name, "throughline.order."): // sent by hand
		want = "send " + object
	case verb == "perform" && !strings.HasSuffix(parent.name, "."+object):
		want = "the processing of its command"
	case (verb == "payment_provider" || verb == "carrier") && !strings.HasPrefix(parent.name, "perform "):
		want = "an attempt"
	}
	if want == "" {
		return ""
	}
	return fmt.Sprintf("%s stands under %s, want it under %s", sp, parent, want)
}

// orphans are spans whose parent is not in the trace. A trace that our callers began has its root with them, and ours none.
func orphans(spans []seen) (lost []seen) {
	known := make(map[string]bool, len(spans))
	for _, sp := range spans {
		known[sp.id] = true
	}
	for _, sp := range spans {
		if sp.parent != "" && !known[sp.parent] {
			lost = append(lost, sp)
		}
	}
	return lost
}

// leads says whether a span of one trace links to one of another.
func leads(from, to []seen) bool {
	for _, sp := range from {
		for _, link := range sp.links {
			if slices.ContainsFunc(to, func(target seen) bool { return link == spot{target.trace, target.id} }) {
				return true
			}
		}
	}
	return false
}

// patienceForTraces covers the playing, and the time until what is sent in batches is there.
const patienceForTraces = 4 * time.Minute
