package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/topology"
	proof "github.com/throughline/throughline/services/internal/verify"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/internal/stack"
	"github.com/throughline/throughline/services/throughline/verify"
)

// verifyPause is how soon what looks wrong is looked at again: the last acknowledgements are milliseconds away.
const verifyPause = 200 * time.Millisecond

// stage is where the scenes play.
type stage struct {
	out      io.Writer
	shop     *shop
	other    *shop
	provider *control.Client
	carrier  *control.Client
	verifier *proof.Verifier
	done     func() // ends the verifier
	nc       *nats.Conn
	consume  jetstream.ConsumeContext

	mu     sync.Mutex // guards what follows, which the event consumer writes
	events map[string][]entry
	moved  chan struct{} // closed and replaced at each event
}

// entry is one line of a timeline.
type entry struct {
	at    time.Time
	where string
	what  string
}

func newStage(ctx context.Context, s *stack.Stack, out io.Writer) (*stage, error) {
	st := &stage{
		out:      out,
		shop:     &shop{"storefront", "tl_dev_storefront", s.URL()},
		other:    &shop{"marketplace", "tl_dev_marketplace", s.URL()},
		provider: control.New(s.ProviderURL()),
		carrier:  control.New(s.CarrierURL()),
		events:   make(map[string][]entry),
		moved:    make(chan struct{}),
	}
	addrs := make(map[string]string)
	for _, service := range []string{stack.Order, stack.Payment, stack.Shipping} {
		addrs[service] = s.GRPCAddr(service)
	}
	var err error
	if st.verifier, st.done, err = proof.Dial(addrs, s.OperatorCredential()); err != nil {
		return nil, err
	}
	if st.nc, err = nats.Connect(s.NATSURL()); err != nil {
		return nil, fmt.Errorf("connecting to JetStream: %w", err)
	}
	js, err := jetstream.New(st.nc)
	if err != nil {
		return nil, fmt.Errorf("opening JetStream: %w", err)
	}
	consumer, err := js.OrderedConsumer(ctx, topology.Events, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("consuming events: %w", err)
	}
	if st.consume, err = consumer.Consume(st.note); err != nil {
		return nil, fmt.Errorf("consuming events: %w", err)
	}
	return st, nil
}

func (st *stage) close() {
	st.done()
	st.consume.Stop()
	st.nc.Close()
}

// note keeps an event.
func (st *stage) note(m jetstream.Msg) {
	order := m.Headers().Get(messaging.HeaderOrderID)
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.events[order] = append(st.events[order], entry{meta.Timestamp, "event", m.Subject()})
	close(st.moved)
	st.moved = make(chan struct{})
}

// awaitEvent waits for an event of an order.
func (st *stage) awaitEvent(ctx context.Context, order, subject string) error {
	for {
		st.mu.Lock()
		there := slices.ContainsFunc(st.events[order], func(e entry) bool { return e.what == subject })
		moved := st.moved
		st.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s of %s: %w", subject, order, ctx.Err())
		}
	}
}

// awaitHeld waits until the carrier holds a call.
func (st *stage) awaitHeld(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		faults, err := st.carrier.Faults(ctx)
		if err != nil {
			return fmt.Errorf("asking the carrier for its faults: %w", err)
		}
		if slices.ContainsFunc(faults, func(f control.FaultState) bool { return f.Held > 0 }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the carrier to hold the call: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func (st *stage) say(format string, a ...any) { fmt.Fprintf(st.out, "   "+format+"\n", a...) }

// ends waits until an order has come to rest, prints its timeline, and checks how it ended.
func (st *stage) ends(ctx context.Context, id, want string) error {
	a, err := st.shop.settled(ctx, id)
	if err != nil {
		return err
	}
	if err := st.awaitEvent(ctx, id, "evt.order."+strings.ToLower(a.order.Status)); err != nil {
		return err
	}
	if err := st.timeline(ctx, id); err != nil {
		return err
	}
	ending := a.order.Status
	if a.order.FailureReason != "" {
		ending += " (" + a.order.FailureReason + ")"
	}
	st.say("order %s is %s", id, ending)
	if a.order.Status != want {
		return fmt.Errorf("the order is %s, want %s", a.order.Status, want)
	}
	return nil
}

// timeline prints what happened to an order: its events, and what the provider and the carrier saw.
func (st *stage) timeline(ctx context.Context, id string) error {
	payments, err := st.provider.PaymentLedger(ctx, id)
	if err != nil {
		return fmt.Errorf("reading the provider's ledger: %w", err)
	}
	shipments, err := st.carrier.CarrierLedger(ctx, id)
	if err != nil {
		return fmt.Errorf("reading the carrier's ledger: %w", err)
	}
	st.mu.Lock()
	entries := slices.Clone(st.events[id])
	st.mu.Unlock()
	entries = append(entries, calls("provider", payments.Calls)...)
	entries = append(entries, calls("carrier", shipments.Calls)...)
	slices.SortStableFunc(entries, func(a, b entry) int { return a.at.Compare(b.at) })
	if len(entries) == 0 {
		return nil
	}
	for _, e := range entries {
		fmt.Fprintf(st.out, "     %+8.1f ms  %-9s %s\n", float64(e.at.Sub(entries[0].at).Microseconds())/1000, e.where, e.what)
	}
	return nil
}

func calls(where string, list []control.Call) []entry {
	entries := make([]entry, len(list))
	for i, c := range list {
		what := fmt.Sprintf("%s: %d", c.Operation, c.Status)
		if c.Dropped {
			what = c.Operation + ": answer dropped"
		}
		if c.Replayed {
			what += " (replayed)"
		}
		if c.Effect {
			what += " *"
		}
		entries[i] = entry{c.At, where, what}
	}
	return entries
}

// settle prints the orders beside both ledgers, and checks the rules.
func (st *stage) settle(ctx context.Context, took time.Duration) error {
	ours, err := st.shop.all(ctx)
	if err != nil {
		return err
	}
	theirs, err := st.other.all(ctx)
	if err != nil {
		return err
	}
	orders := append(ours, theirs...)
	payments, err := st.provider.PaymentLedger(ctx, "")
	if err != nil {
		return fmt.Errorf("reading the provider's ledger: %w", err)
	}
	shipments, err := st.carrier.CarrierLedger(ctx, "")
	if err != nil {
		return fmt.Errorf("reading the carrier's ledger: %w", err)
	}
	st.table(orders, verify.Accounts(payments, shipments))
	violations := verify.Settled(orders, payments, shipments)
	for _, v := range violations {
		fmt.Fprintf(st.out, "VIOLATION %s\n", v)
	}
	if len(violations) > 0 {
		return fmt.Errorf("%d rules are broken", len(violations))
	}
	const wantOrders = 7 // eight scenes, one of which must not make an order
	if len(orders) != wantOrders {
		return fmt.Errorf("there are %d orders, want %d", len(orders), wantOrders)
	}
	if err := st.prove(ctx); err != nil {
		return err
	}
	fmt.Fprintf(st.out, "\nAll rules hold (played in %s): each order was charged and shipped at most once; CONFIRMED means paid and shipped;\n"+
		"FAILED and CANCELLED mean that nothing is held, captured or under way; no order is left unfinished.\n", took.Round(100*time.Millisecond))
	return nil
}

// prove lets the services compare what they know, as operators do: orders, money, parcels, and each message on its way from an outbox to an inbox.
func (st *stage) prove(ctx context.Context) error {
	report, err := st.verifier.Run(grpcx.Outgoing(ctx, grpcx.Entries{}), proof.Options{Pause: verifyPause})
	if err != nil {
		return fmt.Errorf("verifying: %w", err)
	}
	for _, v := range report.Violations {
		fmt.Fprintf(st.out, "VIOLATION %s of %s: %s\n", v.Rule, v.OrderID, v.Detail)
	}
	for _, g := range report.Gaps {
		fmt.Fprintf(st.out, "NOT SEEN %s\n", g)
	}
	if report.Outcome() != proof.Clean {
		return fmt.Errorf("throughline verify would find %d violations, and could not see %d parts", len(report.Violations), len(report.Gaps))
	}
	fmt.Fprintf(st.out, "\nverify: %d orders, %d messages, %d payments and %d parcels agree\n", report.Orders, report.Messages, report.Payments, report.Parcels)
	return nil
}

func (st *stage) table(orders []verify.Order, accounts map[string]verify.Account) {
	type sum struct {
		orders, live               int
		total, held, captured, net int64
	}
	sums := make(map[string]*sum)
	for _, o := range orders {
		s := sums[o.Status]
		if s == nil {
			s = &sum{}
			sums[o.Status] = s
		}
		a := accounts[o.ID]
		s.orders++
		s.total += o.Total
		s.held += a.Held
		s.captured += a.Captured
		s.net += a.Net()
		s.live += a.Live
	}
	states := make([]string, 0, len(sums))
	for state := range sums {
		states = append(states, state)
	}
	slices.SortFunc(states, cmp.Compare)
	fmt.Fprintln(st.out, "\nOrders by state, beside what the provider and the carrier hold (EUR, minor units)")
	w := tabwriter.NewWriter(st.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "  state\torders\ttotal\theld\tcaptured\tnet\tlive parcels\t")
	for _, state := range states {
		s := sums[state]
		fmt.Fprintf(w, "  %s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", state, s.orders, s.total, s.held, s.captured, s.net, s.live)
	}
	if err := w.Flush(); err != nil {
		st.say("the table could not be written: %v", err)
	}
}
