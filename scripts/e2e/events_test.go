package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/scripts/asyncapicheck"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// seedVariable repeats a run of a test that chooses at random.
const seedVariable = "THROUGHLINE_E2E_SEED"

func seed(t *testing.T) *rand.Rand {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("reading %s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d", seedVariable, n)
	return rand.New(rand.NewPCG(n, 0))
}

// TestEventOrder kills and freezes instances of every service at random, while one consumer reads all events: it sees those of each order
// and service in sequence, at first sight, none missing, each as the document for those who consume says. The broker hardly remembers ids,
// so that the consumer sees also what is published again.
func TestEventOrder(t *testing.T) {
	t.Parallel()
	chance := seed(t)
	const instances = 3
	orders, rounds := either(90, 900), either(12, 120)
	s := system.Start(t, system.Options{Separate: true, Instances: instances})
	ctx := system.Context(t, either(5*time.Minute, time.Hour))
	slow(ctx, t, s)
	w := watch(t, s)
	forgetSoon(t, fmt.Sprintf("nats://127.0.0.1:%d", s.Ports()["nats"]))
	placed := place(ctx, t, s, orders)
	for i := range rounds {
		victim, instance := services[chance.IntN(len(services))], chance.IntN(instances)
		if chance.IntN(2) == 0 {
			t.Logf("killing %s %d", victim, instance)
			s.Kill(victim, instance)
		} else {
			t.Logf("freezing %s %d", victim, instance)
			s.Signal(victim, instance, syscall.SIGSTOP)
			// Longer than any lease of the relay lasts, by the progress of others.
			awaitConfirmed(ctx, t, s, min(4*(i+1), orders/2))
			s.Signal(victim, instance, syscall.SIGCONT)
		}
	}
	placed.Wait()
	byStatus := s.Check(ctx)
	assertEndings(t, byStatus, orders)
	for _, status := range []string{verify.Confirmed, verify.Failed} {
		for _, o := range byStatus[status] {
			w.awaitEnd(ctx, t, o.ID, status)
		}
	}
	w.check(t, byStatus)
	if w.repeat == 0 {
		t.Error("got no repeats: the test says little")
	}
}

// forgetSoon keeps the duplicate window of the stream of events short, which each service that starts makes long again.
func forgetSoon(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	const window = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	keeping.Go(func() {
		tick := time.NewTicker(window)
		defer tick.Stop()
		for ctx.Err() == nil {
			if stream, err := js.Stream(ctx, "EVT"); err == nil && stream.CachedInfo().Config.Duplicates != window {
				cfg := stream.CachedInfo().Config
				cfg.Duplicates = window
				_, _ = js.UpdateStream(ctx, cfg) // the next tick tries again
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		keeping.Wait()
		nc.Close()
	})
}

// sighting is the first sight of an event.
type sighting struct {
	subject string
	seq     int64
}

// watcher reads all events from the beginning.
type watcher struct {
	document *asyncapicheck.Document
	stop     context.CancelFunc
	done     chan struct{}

	mu     sync.Mutex
	seen   map[string]bool       // by message id
	lines  map[string][]sighting // by order and service
	repeat int
	errs   []error
}

func watch(t *testing.T, s *system.System) *watcher {
	t.Helper()
	return watchAt(t, fmt.Sprintf("nats://127.0.0.1:%d", s.Ports()["nats"]))
}

func watchAt(t *testing.T, url string) *watcher {
	t.Helper()
	document, err := asyncapicheck.Load()
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	consumer, err := js.OrderedConsumer(ctx, "EVT", jetstream.OrderedConsumerConfig{})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	w := &watcher{document: document, stop: cancel, done: make(chan struct{}), seen: make(map[string]bool), lines: make(map[string][]sighting)}
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			m, err := consumer.Next(jetstream.FetchContext(ctx))
			if err == nil {
				w.note(m)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-w.done })
	return w
}

func lineName(order, subject string) string {
	return order + " " + strings.Split(subject, ".")[1]
}

func (w *watcher) note(raw jetstream.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.document.Check(raw.Subject(), raw.Headers(), raw.Data()); err != nil {
		w.errs = append(w.errs, fmt.Errorf("%s is not as documented: %w", raw.Subject(), err))
	}
	m, err := messaging.Parse(raw.Subject(), raw.Headers(), raw.Data())
	if err != nil {
		w.errs = append(w.errs, err)
		return
	}
	if w.seen[m.ID.String()] {
		w.repeat++
		return
	}
	w.seen[m.ID.String()] = true
	name := lineName(m.AggregateID.String(), m.Subject)
	w.lines[name] = append(w.lines[name], sighting{m.Subject, m.AggregateSeq})
}

// last gives the last event of a service about an order.
func (w *watcher) last(order, service string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.lines[order+" "+service]
	if len(line) == 0 {
		return ""
	}
	return line[len(line)-1].subject
}

func (w *watcher) has(order, subject string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.lines[lineName(order, subject)], func(s sighting) bool { return s.subject == subject })
}

// awaitEnd waits for the last event of an order that has come to rest.
func (w *watcher) awaitEnd(ctx context.Context, t *testing.T, order, status string) {
	t.Helper()
	want := map[string]string{verify.Confirmed: "evt.order.confirmed", verify.Failed: "evt.order.failed"}[status]
	system.Eventually(ctx, t, want+" about "+order, func() bool { return w.last(order, "order") == want })
	if status == verify.Confirmed {
		for _, fact := range []string{"evt.payment.authorized", "evt.shipping.created", "evt.payment.captured", "evt.shipping.dispatched"} {
			system.Eventually(ctx, t, fact+" about "+order, func() bool { return w.has(order, fact) })
		}
	}
}

// check fails for every line that is out of sequence or has a gap.
func (w *watcher) check(t *testing.T, byStatus map[string][]verify.Order) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := errors.Join(w.errs...); err != nil {
		t.Error(err)
	}
	events := 0
	for name, line := range w.lines {
		for i, s := range line {
			if s.seq != int64(i+1) {
				t.Errorf("events of %s: got %v at first sight, want 1, 2, 3, …", name, line)
				break
			}
		}
		events += len(line)
	}
	orders := 0
	for _, list := range byStatus {
		orders += len(list)
		for _, o := range list {
			if !slices.ContainsFunc(w.lines[o.ID+" order"], func(s sighting) bool { return s.subject == "evt.order.created" }) {
				t.Errorf("order %s: got no evt.order.created, want one", o.ID)
			}
		}
	}
	t.Logf("%d events about %d orders, and %d repeats", events, orders, w.repeat)
}
