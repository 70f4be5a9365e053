package order_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/jsonpb"
	"github.com/throughline/throughline/services/internal/topology"
)

const (
	pending      = orderv1.OrderStatus_ORDER_STATUS_PENDING
	confirmed    = orderv1.OrderStatus_ORDER_STATUS_CONFIRMED
	compensating = orderv1.OrderStatus_ORDER_STATUS_COMPENSATING
	failed       = orderv1.OrderStatus_ORDER_STATUS_FAILED
	cancelled    = orderv1.OrderStatus_ORDER_STATUS_CANCELLED
)

func TestEndings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		verdict verdict
		status  orderv1.OrderStatus
		reason  string
		steps   []string
		events  []string
	}{
		{
			"confirmed", allDone, confirmed, "",
			[]string{"authorize_payment", "create_shipment", "capture_payment", "dispatch_shipment"},
			[]string{topology.OrderCreated, topology.OrderConfirmed},
		},
		{
			"card declined", refuse("authorize_payment", "card_declined"), failed, "card_declined",
			[]string{"authorize_payment"},
			[]string{topology.OrderCreated, topology.OrderCompensating, topology.OrderFailed},
		},
		{
			"address refused", refuse("create_shipment", "address_refused"), failed, "address_refused",
			[]string{"authorize_payment", "create_shipment", "void_payment"},
			[]string{topology.OrderCreated, topology.OrderCompensating, topology.OrderFailed},
		},
		{
			"capture refused", refuse("capture_payment", "expired_card"), failed, "expired_card",
			[]string{"authorize_payment", "create_shipment", "capture_payment", "cancel_shipment", "void_payment"},
			[]string{topology.OrderCreated, topology.OrderCompensating, topology.OrderFailed},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c, p := w.start(w.url), w.participants(tc.verdict)
			placed := c.must(c.create("storefront", "k", request()))
			if placed.order.GetStatus() != pending || placed.replayed {
				t.Errorf("got %v, replayed %v, want a pending order", placed.order, placed.replayed)
			}
			got := c.await("storefront", placed.order.GetOrderId(), tc.status)
			if got.GetFailureReason() != tc.reason {
				t.Errorf("got failure reason %q, want %q", got.GetFailureReason(), tc.reason)
			}
			if steps := p.of(got.GetOrderId()); !slices.Equal(steps, tc.steps) {
				t.Errorf("got steps %v, want %v", steps, tc.steps)
			}
			subjects, seqs := w.events(got.GetOrderId(), tc.events[len(tc.events)-1])
			if !slices.Equal(subjects, tc.events) {
				t.Errorf("got events %v, want %v", subjects, tc.events)
			}
			for i, seq := range seqs {
				if seq != int64(i+1) {
					t.Errorf("got sequence numbers %v, want them from 1 without a gap", seqs)
				}
			}
		})
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	for _, tc := range []struct {
		currency string
		price    int64
		total    int64
	}{{"EUR", 1250, 2500}, {"JPY", 500, 1000}, {"KWD", 1500, 3000}} {
		t.Run(tc.currency, func(t *testing.T) {
			t.Parallel()
			req := request(func(r *orderv1.CreateOrderRequest) {
				r.Currency, r.Lines[0].UnitPrice = tc.currency, tc.price
				r.Note, r.Metadata = "ring twice", map[string]string{"b": "2", "a": "1"}
			})
			key := "order-" + tc.currency
			placed := c.must(c.create("storefront", key, req))
			o := placed.order
			want := &orderv1.Order{
				OrderId: keys.OrderID("storefront", key).String(), Status: pending, Currency: tc.currency, Total: tc.total, Lines: req.GetLines(),
				ShipTo: req.GetShipTo(), PaymentMethod: req.GetPaymentMethod(), Note: req.GetNote(), Metadata: req.GetMetadata(),
				IdempotencyKey: key, CreatedAt: o.GetCreatedAt(), UpdatedAt: o.GetCreatedAt(),
			}
			if !proto.Equal(o, want) {
				t.Errorf("got order %v, want %v", o, want)
			}
			body, err := jsonpb.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if placed.body != string(body) {
				t.Errorf("got body %s, want %s", placed.body, body)
			}
			got, err := c.get("storefront", o.GetOrderId())
			if err != nil || !proto.Equal(got, want) {
				t.Errorf("got order %v, %v, want %v", got, err, want)
			}
		})
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	w.participants(allDone)
	placed := c.must(c.create("storefront", "k", request()))
	id := placed.order.GetOrderId()
	c.await("storefront", id, confirmed)

	again := c.must(c.create("storefront", "k", request(func(r *orderv1.CreateOrderRequest) { r.Metadata = map[string]string{} })))
	if !again.replayed || again.body != placed.body || !proto.Equal(again.order, placed.order) {
		t.Errorf("got replayed %v, body %s, want the first answer %s", again.replayed, again.body, placed.body)
	}

	// A hash of another release must not make the same request another one.
	if _, err := w.db.Exec(t.Context(), `UPDATE customer_order SET request_hash = '\x00', request_version = 0`); err != nil {
		t.Fatal(err)
	}
	if again := c.must(c.create("storefront", "k", request())); again.body != placed.body {
		t.Errorf("got body %s, want %s", again.body, placed.body)
	}

	// The key is the order's for ever, also after the stored answer is gone.
	if _, err := w.db.Exec(t.Context(), `DELETE FROM idempotency_record`); err != nil {
		t.Fatal(err)
	}
	late := c.must(c.create("storefront", "k", request()))
	if !late.expired || late.replayed || late.order.GetOrderId() != id || late.order.GetStatus() != confirmed || late.body == "" {
		t.Errorf("got %v, expired %v, replayed %v, want the order as it is now", late.order, late.expired, late.replayed)
	}
	c.wantReason(c.create("storefront", "k", request(func(r *orderv1.CreateOrderRequest) { r.Note = "x" })), grpcx.KeyMismatch)
	if n := w.count(`SELECT count(*) FROM customer_order`); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
}

func TestMismatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	c.must(c.create("storefront", "k", request()))
	for _, tc := range []struct {
		name   string
		change func(*orderv1.CreateOrderRequest)
		want   []string
	}{
		{"currency", func(r *orderv1.CreateOrderRequest) { r.Currency = "USD" }, []string{"currency"}},
		{"quantity", func(r *orderv1.CreateOrderRequest) { r.Lines[0].Quantity = 3 }, []string{"lines[0].quantity"}},
		{"one more line", func(r *orderv1.CreateOrderRequest) {
			r.Lines = append(r.Lines, &orderv1.Line{Sku: "B", Quantity: 1, UnitPrice: 1})
		}, []string{"lines"}},
		{"address", func(r *orderv1.CreateOrderRequest) { r.ShipTo.City = "Bonn"; r.ShipTo.Line2 = "rear" }, []string{"ship_to.line2", "ship_to.city"}},
		{"payment method", func(r *orderv1.CreateOrderRequest) { r.PaymentMethod = "pm_other" }, []string{"payment_method"}},
		{"note", func(r *orderv1.CreateOrderRequest) { r.Note = "secret words" }, []string{"note"}},
		{"metadata", func(r *orderv1.CreateOrderRequest) { r.Metadata = map[string]string{"secret": "words"} }, []string{"metadata"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := c.create("storefront", "k", request(tc.change))
			c.wantReason(r, grpcx.KeyMismatch)
			var got []string
			for _, v := range grpcx.Violations(r.err) {
				got = append(got, v.Path)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got members %v, want %v", got, tc.want)
			}
		})
	}
}

// A request that is refused names what is wrong, and leaves its key unused.
func TestInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	r := c.create("storefront", "k", request(func(r *orderv1.CreateOrderRequest) {
		r.ShipTo.Country, r.Lines[0].Quantity, r.Currency = "XK", 0, "eur"
	}))
	c.wantReason(r, grpcx.RequestInvalid)
	var got []string
	for _, v := range grpcx.Violations(r.err) {
		got = append(got, v.Path)
	}
	if want := []string{"currency", "lines[0].quantity", "ship_to.country"}; !slices.Equal(got, want) {
		t.Errorf("got members %v, want %v", got, want)
	}
	future := request()
	future.ProtoReflect().SetUnknown([]byte{0xa0, 0x06, 0x01}) // field 100
	c.wantReason(c.create("storefront", "k", future), grpcx.RequestInvalid)
	c.wantReason(c.create("storefront", "", request()), grpcx.KeyMissing)
	c.wantReason(c.create("", "k", request()), grpcx.Internal)
	if first := c.must(c.create("storefront", "k", request())); first.replayed {
		t.Error("got a replay, want the first order of the key")
	}
}

// One key of two clients is two orders, and neither sees the other's.
func TestClientsAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	one := c.must(c.create("storefront", "k", request()))
	two := c.must(c.create("marketplace", "k", request(func(r *orderv1.CreateOrderRequest) { r.Lines[0].Quantity = 7 })))
	if one.order.GetOrderId() == two.order.GetOrderId() || two.replayed {
		t.Fatalf("got orders %v and %v, want two", one.order, two.order)
	}
	if again := c.must(c.create("marketplace", "k", request(func(r *orderv1.CreateOrderRequest) { r.Lines[0].Quantity = 7 }))); again.body != two.body {
		t.Errorf("got body %s, want %s", again.body, two.body)
	}
	for _, id := range []string{one.order.GetOrderId(), "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "x", "", "urn:uuid:" + two.order.GetOrderId()} {
		if _, err := c.get("marketplace", id); grpcx.ReasonOf(err) != grpcx.OrderNotFound {
			t.Errorf("got error %v for %q, want %s", err, id, grpcx.OrderNotFound)
		}
		c.wantReason(c.cancel("marketplace", "cancel-"+id, id, ""), grpcx.OrderNotFound)
	}
}

// Copies of one request at once, half to each of two instances: one order, and no answer that a client could not act on.
func TestFiftyAtOnce(t *testing.T) {
	t.Parallel()
	const copies, rounds = 50, 5
	w := newWorld(t)
	instances := []*client{w.start(w.url), w.start(w.url)}
	for _, tc := range []struct {
		name string
		half bool // the second half asks for something else
	}{{"identical", false}, {"two payloads", true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for round := range rounds {
				key := fmt.Sprintf("%s-%d", tc.name, round)
				replies := make([]reply, copies)
				barrier := make(chan struct{})
				var wg sync.WaitGroup
				for i := range copies {
					wg.Go(func() {
						<-barrier
						replies[i] = instances[i%2].create("storefront", key, request(func(r *orderv1.CreateOrderRequest) {
							if tc.half && i >= copies/2 {
								r.Lines[0].UnitPrice = 4950
							}
						}))
					})
				}
				close(barrier)
				wg.Wait()
				checkCopies(t, replies, tc.half)
				if n := w.count(`SELECT count(*) FROM customer_order WHERE idempotency_key = $1`, key); n != 1 {
					t.Errorf("got %d orders, want 1", n)
				}
				if n := w.count(`SELECT count(*) FROM saga_instance WHERE idempotency_key = $1`, key); n != 1 {
					t.Errorf("got %d sagas, want 1", n)
				}
			}
		})
	}
}

func checkCopies(t *testing.T, replies []reply, half bool) {
	t.Helper()
	var body string
	var placed, mismatched int
	for _, r := range replies {
		switch reason := grpcx.ReasonOf(r.err); {
		case r.err == nil:
			if !r.replayed {
				placed++
			}
			if body == "" {
				body = r.body
			}
			if r.body != body {
				t.Errorf("got body %s, want %s", r.body, body)
			}
		case reason == grpcx.KeyMismatch && half:
			mismatched++
		case reason != grpcx.KeyInProgress:
			t.Errorf("got error %v, want an order, a replay or %s", r.err, grpcx.KeyInProgress)
		}
	}
	if placed != 1 {
		t.Errorf("got %d first answers, want 1", placed)
	}
	if half && mismatched > len(replies)/2 {
		t.Errorf("got %d mismatches, want at most %d", mismatched, len(replies)/2)
	}
}

// Different orders at once share transactions, and each gets its own answer.
func TestManyOrdersAtOnce(t *testing.T) {
	t.Parallel()
	const many = 200
	w := newWorld(t)
	c := w.start(w.url)
	w.participants(allDone)
	replies := make([]reply, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() { replies[i] = c.create("storefront", fmt.Sprint("k-", i), request()) })
	}
	wg.Wait()
	for i, r := range replies {
		if want := keys.OrderID("storefront", fmt.Sprint("k-", i)).String(); r.err != nil || r.replayed || r.order.GetOrderId() != want {
			t.Errorf("got %v, %v, replayed %v, want order %s", r.order.GetOrderId(), r.err, r.replayed, want)
		}
	}
	for _, r := range replies {
		c.await("storefront", r.order.GetOrderId(), confirmed)
	}
}

// Another transaction that holds the key for longer than one waits for a lock is a request in progress.
func TestInProgress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `
		INSERT INTO customer_order (order_id, client_id, idempotency_key, status, currency, total, request, request_hash, request_version, created_at, updated_at)
		VALUES ($1, 'storefront', 'k', 'PENDING', 'EUR', 1, '', '', 1, now(), now())`, keys.OrderID("storefront", "k"))
	if err != nil {
		t.Fatal(err)
	}
	held := c.create("storefront", "k", request())
	c.wantReason(held, grpcx.KeyInProgress)
	if after, ok := grpcx.RetryDelay(held.err); !ok || after <= 0 {
		t.Errorf("got retry delay %v, want one", after)
	}
	if other := c.must(c.create("storefront", "other", request())); other.replayed {
		t.Error("got a replay, want a first order")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := c.must(c.create("storefront", "k", request())); r.replayed {
		t.Error("got a replay, want the first order of the key")
	}
}

// The commit happened and its answer was lost: the client gets the order all the same, and it exists once.
func TestCommitAnswerLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, databaseURL := newProxy(t, w.url)
	c := w.start(databaseURL)
	c.must(c.create("storefront", "before", request())) // prepares the statements
	lost := p.loseAnswerTo("lost-answer-key")
	r := c.create("storefront", "lost-answer-key", request())
	select {
	case <-lost:
	default:
		t.Fatal("no answer was lost: the test proves nothing")
	}
	if r.err != nil {
		c.wantReason(r, grpcx.Unavailable) // a connection that was broken too may keep the service from reading
	}
	again := c.must(c.create("storefront", "lost-answer-key", request()))
	if again.order.GetOrderId() != keys.OrderID("storefront", "lost-answer-key").String() || !again.replayed {
		t.Errorf("got %v, replayed %v, want a replay", again.order, again.replayed)
	}
	if r.err == nil && (r.body != again.body || r.replayed) {
		t.Errorf("got body %s, replayed %v, want %s as a first answer", r.body, r.replayed, again.body)
	}
	if n := w.count(`SELECT count(*) FROM customer_order WHERE idempotency_key = 'lost-answer-key'`); n != 1 {
		t.Errorf("got %d orders, want 1", n)
	}
	// What the lost commit wrote is published by the sweep.
	w.participants(allDone)
	c.await("storefront", again.order.GetOrderId(), confirmed)
}

// An outage of the database is not pinned to the key.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, databaseURL := newProxy(t, w.url)
	c := w.start(databaseURL)
	c.must(c.create("storefront", "before", request()))
	p.setDown(true)
	for range 2 {
		c.wantReason(c.create("storefront", "k", request()), grpcx.Unavailable)
	}
	p.setDown(false)
	var placed reply
	for placed = c.create("storefront", "k", request()); placed.err != nil; placed = c.create("storefront", "k", request()) {
		c.wantReason(placed, grpcx.Unavailable) // the pool finds its broken connections one by one
	}
	if placed.replayed {
		t.Error("got a replay, want the first order of the key")
	}
	if again := c.must(c.create("storefront", "k", request())); !again.replayed || again.body != placed.body {
		t.Errorf("got body %s, replayed %v, want a replay of %s", again.body, again.replayed, placed.body)
	}
}

// Clients that hang up at any moment, and ask again: one order each, and an answer at once.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	const clients = 40
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			key := fmt.Sprint("k-", i)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*250*time.Microsecond)
			defer cancel()
			_, _ = c.api.CreateOrder(grpcx.Outgoing(ctx, grpcx.Entries{ClientID: "storefront", IdempotencyKey: key}), request())
			if r := c.create("storefront", key, request()); r.err != nil {
				t.Errorf("got error %v for %s, want an order", r.err, key)
			}
		})
	}
	wg.Wait()
	if n := w.count(`SELECT count(*) FROM customer_order`); n != clients {
		t.Errorf("got %d orders, want %d", n, clients)
	}
}

// Orders are taken while the broker is away, and go on when it is back.
func TestWithoutTheBroker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	messagingtest.Stop(t, w.broker)
	placed := c.must(c.create("storefront", "k", request()))
	if again := c.must(c.create("storefront", "k", request())); again.body != placed.body || !again.replayed {
		t.Errorf("got body %s, want %s", again.body, placed.body)
	}
	w.broker = messagingtest.Restart(t, w.broker)
	w.participants(allDone)
	c.await("storefront", placed.order.GetOrderId(), confirmed)
}

func TestList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	const orders = 7
	var want []string
	for i := range orders {
		r := c.must(c.create("storefront", fmt.Sprint("k-", i), request()))
		want = append(want, r.order.GetOrderId())
	}
	slices.Reverse(want)
	c.must(c.create("marketplace", "theirs", request()))
	list := func(size int32, token string) (*orderv1.ListOrdersResponse, error) {
		return c.api.ListOrders(grpcx.Outgoing(t.Context(), grpcx.Entries{ClientID: "storefront"}),
			&orderv1.ListOrdersRequest{PageSize: size, PageToken: token})
	}
	for _, size := range []int32{1, 3, 7, 100, 0} {
		var got []string
		token, pages := "", 0
		for {
			resp, err := list(size, token)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range resp.GetOrders() {
				got = append(got, o.GetOrderId())
			}
			if token = resp.GetNextPageToken(); token == "" || pages > orders {
				break
			}
			pages++
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v with pages of %d, want %v", got, size, want)
		}
	}
	for _, tc := range []struct {
		size  int32
		token string
		want  string
	}{{101, "", "page_size"}, {-1, "", "page_size"}, {1, "x", "page_token"}, {1, "AQAAAAAAAAAA", "page_token"}, {1, "AgAAAAAAAAAB", "page_token"}} {
		_, err := list(tc.size, tc.token)
		if vs := grpcx.Violations(err); grpcx.ReasonOf(err) != grpcx.RequestInvalid || len(vs) != 1 || vs[0].Path != tc.want {
			t.Errorf("got %v for size %d, token %q, want %s refused", err, tc.size, tc.token, tc.want)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	// Payment is silent on the authorization, so that the order can be cancelled.
	p := w.participants(func(step string) (string, string) {
		if step == "authorize_payment" {
			return "", ""
		}
		return messaging.OutcomeDone, ""
	})
	placed := c.must(c.create("storefront", "k", request()))
	other := c.must(c.create("storefront", "k2", request()))
	id := placed.order.GetOrderId()

	done := c.must(c.cancel("storefront", "c", id, "ordered twice"))
	if done.order.GetStatus() != compensating || done.order.GetFailureReason() != "cancelled" || done.replayed || done.body == "" {
		t.Errorf("got %v, replayed %v, want an order that is being undone", done.order, done.replayed)
	}
	c.await("storefront", id, cancelled)
	again := c.must(c.cancel("storefront", "c", id, "ordered twice"))
	if !again.replayed || again.body != done.body {
		t.Errorf("got replayed %v, body %s, want a replay of %s", again.replayed, again.body, done.body)
	}
	c.wantReason(c.cancel("storefront", "c", other.order.GetOrderId(), "ordered twice"), grpcx.KeyMismatch)
	c.wantReason(c.cancel("storefront", "c", id, "changed my mind"), grpcx.KeyMismatch)
	c.wantReason(c.cancel("storefront", "", id, ""), grpcx.KeyMissing)
	// Cancelled already, under a key of its own, which may even be the order's.
	if r := c.must(c.cancel("storefront", "k", id, "")); r.replayed || r.order.GetStatus() != cancelled {
		t.Errorf("got %v, replayed %v, want the cancelled order", r.order, r.replayed)
	}
	if got, want := p.of(id), []string{"authorize_payment", "void_payment"}; !slices.Equal(got, want) {
		t.Errorf("got steps %v, want %v", got, want)
	}
	subjects, _ := w.events(id, topology.OrderCancelled)
	if want := []string{topology.OrderCreated, topology.OrderCompensating, topology.OrderCancelled}; !slices.Equal(subjects, want) {
		t.Errorf("got events %v, want %v", subjects, want)
	}
	// Its record has expired, and the reaper has not come or has: the key is used up all the same.
	for _, sql := range []string{
		`UPDATE idempotency_record SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day'`,
		`DELETE FROM idempotency_record`,
	} {
		if _, err := w.db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		late := c.must(c.cancel("storefront", "c", id, "ordered twice"))
		if !late.expired || late.replayed || late.order.GetStatus() != cancelled || late.body == "" {
			t.Errorf("got %v, expired %v, replayed %v, want the order as it is now", late.order, late.expired, late.replayed)
		}
		c.wantReason(c.cancel("storefront", "c", id, "anew"), grpcx.KeyMismatch)
		c.wantReason(c.cancel("storefront", "c", other.order.GetOrderId(), "ordered twice"), grpcx.KeyMismatch)
	}
}

func TestCancelTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	w.participants(allDone)
	placed := c.must(c.create("storefront", "k", request()))
	id := placed.order.GetOrderId()
	c.await("storefront", id, confirmed)
	for range 2 { // nothing is stored, so it is decided again
		c.wantReason(c.cancel("storefront", "c", id, ""), grpcx.CancelTooLate)
	}
	if n := w.count(`SELECT count(*) FROM idempotency_record WHERE operation = 'orders.cancel'`); n != 0 {
		t.Errorf("got %d records of cancellations, want none", n)
	}
}

// Cancels at once, with one key and with many: one effect, and the same answer for the same key.
func TestCancelsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	instances := []*client{w.start(w.url), w.start(w.url)}
	c := instances[0]
	placed := c.must(c.create("storefront", "k", request()))
	id := placed.order.GetOrderId()
	const many = 20
	replies := make([]reply, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() { replies[i] = instances[i%2].cancel("storefront", fmt.Sprint("c-", i%4/2), id, "") })
	}
	wg.Wait()
	bodies := map[int]string{}
	for i, r := range replies {
		if r.err != nil {
			t.Errorf("got error %v, want none", r.err)
			continue
		}
		key := i % 4 / 2
		if bodies[key] == "" {
			bodies[key] = r.body
		}
		if r.body != bodies[key] {
			t.Errorf("got body %s, want %s", r.body, bodies[key])
		}
	}
	if n := w.count(`SELECT count(*) FROM saga_transition WHERE step = 'void_payment' AND to_state = 'undoing'`); n != 1 {
		t.Errorf("got %d undos, want 1", n)
	}
}
