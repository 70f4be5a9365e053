package e2e_test

import (
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/messaging"
)

// wire has the headers of all messages, by order.
type wire struct {
	mu      sync.Mutex
	headers map[string][]nats.Header
}

// listen notes the headers of all messages that are published from now on.
func (w *world) listen(t *testing.T) *wire {
	t.Helper()
	nc, err := nats.Connect(w.brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l := &wire{headers: map[string][]nats.Header{}}
	for _, subjects := range []string{"cmd.>", "rpl.>", "evt.>"} {
		if _, err := nc.Subscribe(subjects, func(m *nats.Msg) {
			l.mu.Lock()
			defer l.mu.Unlock()
			id := m.Header.Get(messaging.HeaderOrderID)
			l.headers[id] = append(l.headers[id], m.Header)
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return l
}

var validParent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$`)

// check wants messages of an order, all of one valid trace and none with baggage.
func (l *wire) check(t *testing.T, what, order string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.headers[order]) == 0 {
		t.Errorf("%s: got no messages of order %s", what, order)
	}
	traces := map[string]bool{}
	for _, h := range l.headers[order] {
		parent := h.Get(messaging.HeaderTraceParent)
		if !validParent.MatchString(parent) || strings.Contains(parent, strings.Repeat("0", 32)) {
			t.Errorf("%s: got a message with traceparent %q", what, parent)
			continue
		}
		traces[parent[3:35]] = true
		if n := len(h.Get(messaging.HeaderTraceState)); n > 512 {
			t.Errorf("%s: got a message with %d bytes of tracestate, want at most 512", what, n)
		}
		for name := range h {
			if http.CanonicalHeaderKey(name) == "Baggage" {
				t.Errorf("%s: got a message with baggage, want none", what)
			}
		}
	}
	if len(traces) != 1 {
		t.Errorf("%s: got messages of %d traces, want one", what, len(traces))
	}
}

// assertTraced wants a valid trace, and nothing else that a caller has sent along, in all rows of an order's outboxes.
func (w *world) assertTraced(t *testing.T, what, order string) {
	t.Helper()
	for _, service := range services {
		if n := w.count(service, `SELECT count(*) FROM outbox_message WHERE aggregate_id = $1 AND traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$'`, order); n == 0 {
			t.Errorf("%s: got no row of %s with a valid trace", what, service)
		}
		if n := w.count(service, `SELECT count(*) FROM outbox_message m WHERE aggregate_id = $1 AND
			(traceparent !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$' OR length(tracestate) > 512 OR m::text LIKE '%xxxxxxxxxx%')`, order); n != 0 {
			t.Errorf("%s: got %d rows of %s with something else than a valid trace", what, n, service)
		}
	}
}
