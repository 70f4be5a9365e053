//go:build jaeger

package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/scripts/internal/browser"
	"github.com/throughline/throughline/scripts/internal/jaeger"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

const (
	alikeKey        = "one-key-one-story"
	alikeCredential = "a-credential-of-the-test"
	// cut is what two times differ by that were both cut to a microsecond.
	cut = 2 * time.Microsecond
	// noise is what the clock of a process and that of a database on the same machine may be seen to differ by: they are one clock, which is read as
	// time of day by the one and goes on as a monotonic clock in the other, while it is being set right by at most 500 parts per million. Trails
	// tell of what is more.
	noise = time.Millisecond
)

// TestJaegerTellsTheSame: of an order whose authorization's answer was lost, whose shipment was refused, and whose void failed twice, `throughline
// trace` (as JSON and as it is drawn), the console and Jaeger tell the same: the same facts, in the same sequence, at times that agree.
//
// The command line and the console tell what is on record, by the databases' clocks, and have to agree to the last digit that each shows. Jaeger
// tells of spans, by the clocks of the processes. What a row and a span may differ by follows from what lies within what:
//
//   - What a transaction has written has its time, which lies between the begin of the span that makes the transaction and that span's end.
//   - A message that was written lies within the span of its wait in the outbox, which begins with the millisecond that its id has.
//   - An attempt and its calls take the same time on record as in their spans, since both have it from one clock; and a call begins as long after its
//     attempt. An attempt begins on record at the database's time of its claim and what has passed since the answer to that, so earlier
//     than its span by what that answer was under way; and never before what led to it: the arrival of its command, or the end of the
//     attempt before.
func TestJaegerTellsTheSame(t *testing.T) {
	t.Parallel()
	j := launchJaeger(t, jaeger.Options{KeptPercent: 100, DecisionWait: 5 * time.Second})
	dir, err := filepath.Abs("../../.run/pictures")
	if err != nil {
		t.Fatal(err)
	}
	s := system.Start(t, system.Options{Environ: []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + j.OTLP, "OTEL_BSP_SCHEDULE_DELAY=200", "THROUGHLINE_UP_LOG_LEVEL=debug",
		"THROUGHLINE_CONSOLE_CREDENTIAL=" + alikeCredential, "THROUGHLINE_JAEGER_URL=" + j.Query,
	}})
	ctx := system.Context(t, patienceForTraces)
	playBadDay(ctx, t, s)
	var trail told
	system.Eventually(ctx, t, "all of it to be on record", func() bool {
		trail = timeline(ctx, t, s, 0, alikeKey)
		e := trail.of("EDGE", "")
		return len(e) == 1 && e[0].Attributes["replays"] == "1" && e[0].Attributes["mismatches"] == "1" &&
			!strings.Contains(trail.outcomes("SENT", ""), "pending") && len(trail.of("WEBHOOK", "")) == 3 // made, held, cancelled
	})
	theStory(t, &trail)
	drawn, complaint, code := throughline(ctx, t, s, "trace", alikeKey)
	if code != 0 {
		t.Fatalf("throughline trace: got code %d: %s", code, complaint)
	}
	drawnAlike(t, &trail, drawn)
	page := readPage(t, browser.Open(t, dir), fmt.Sprintf("http://127.0.0.1:%d", s.Ports()["console"]))
	shownAlike(t, &trail, page)
	tracedAlike(t, &trail, awaitTraces(ctx, t, j, &trail))
	pagesTell(ctx, t, j, &trail)
	linesTell(t, s, &trail)
	if t.Failed() {
		t.Logf("the story as it was drawn:\n%s", drawn)
	}
}

// playBadDay plays the order, asks for it again, and asks for another one under its key.
func playBadDay(ctx context.Context, t *testing.T, s *system.System) {
	t.Helper()
	shop := s.Storefront()
	id := keys.OrderID(shop.ID, alikeKey).String()
	for _, f := range []control.Fault{
		{Operation: "payment_intents.confirm", Action: control.DropAfter, Times: 1},
		{Operation: "payment_intents.cancel", Action: control.FailBefore, Status: 500, Times: 2},
	} {
		f.OrderID = id
		if _, err := s.Provider.AddFault(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := shop.Place(ctx, alikeKey, system.Order{PostalCode: "00000"}); err != nil {
			t.Fatal(err)
		}
	}
	if a := ask(ctx, t, shop, 0, http.MethodPost, "/v1/orders", r0("1250", "1251"), "Idempotency-Key", alikeKey); a.Status != http.StatusUnprocessableEntity {
		t.Fatalf("another order under the key: got %d, want 422", a.Status)
	}
	awaitStatus(ctx, t, shop, id, verify.Failed, verify.Confirmed, verify.Cancelled)
}

// theStory looks at what must be told, whoever tells it: the others are compared with this.
func theStory(t *testing.T, trail *told) {
	t.Helper()
	if o := trail.of("ORDER", "")[0]; trail.Status != verify.Failed || o.Reason != "address_refused" || o.Attributes["idempotency_key"] != alikeKey ||
		o.Attributes["client_id"] != "storefront" || len(trail.Gaps) > 0 {
		t.Errorf("order: got %s, %+v, gaps %v, want it failed, since the address was refused", trail.Status, o, trail.Gaps)
	}
	var got []string
	for _, e := range trail.Entries {
		switch e.Kind {
		case "ATTEMPT":
			got = append(got, strings.TrimSpace(e.Title+" "+e.Reason))
		case "CALL":
			if e.Step == "authorize_payment" || e.Outcome == "no_answer" || !strings.HasPrefix(e.Attributes["status"], "2") {
				got = append(got, strings.Join(strings.Fields(e.Title+" "+cmp.Or(e.Attributes["status"], e.Outcome)+" "+e.Attributes["answer"]), " "))
			}
		case "TRANSITION":
			if e.Step == "" {
				got = append(got, strings.TrimSpace(e.Title+" "+e.Reason))
			}
		}
	}
	want := []string{
		"saga: idle → running",
		"attempt 1 at authorize_payment: done",
		"payment_provider: create 200 requires_confirmation", "payment_provider: confirm no_answer", "payment_provider: retrieve 200 requires_capture",
		"attempt 1 at create_shipment: refused address_refused", "carrier: create shipment 422",
		"undo decided: saga running → compensating address_refused",
		"attempt 1 at void_payment: unknown", "payment_provider: cancel 500",
		"attempt 2 at void_payment: unknown", "payment_provider: cancel 500",
		"attempt 3 at void_payment: done",
		"saga: compensating → compensated address_refused",
	}
	if !slices.Equal(got, want) {
		t.Errorf("story: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, want := trail.of("ATTEMPT", "authorize_payment")[0].Detail, "confirm was not answered; retrieve found it requires capture"; got != want {
		t.Errorf("what became of the lost answer: got %q, want %q", got, want)
	}
	for _, e := range trail.of("ATTEMPT", "void_payment")[:2] {
		if !strings.HasPrefix(e.Detail, "cancel: status 500: ") {
			t.Errorf("%s: got the error %q, want what the provider said", e.Title, e.Detail)
		}
	}
}

// pagesTell looks for the story in the page that stands before a Jaeger without pages of its own, by all that one may have of the order.
func pagesTell(ctx context.Context, t *testing.T, j *jaeger.Jaeger, trail *told) {
	t.Helper()
	page, err := j.Page()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	trace := trail.of("ORDER", "")[0].TraceID
	for path, tells := range map[string]bool{
		"/?q=" + alikeKey: true, "/?q=" + trail.OrderID: true, "/trace/" + trace: true, "/api/traces/" + trace: true, "/?q=nobody-has-this": false,
		"/trace/00000000000000000000000000000001": false,
	} {
		status, _, body := look(ctx, t, &system.Client{URLs: []string{server.URL}, HTTP: server.Client()}, path)
		if status != http.StatusOK {
			t.Errorf("%s: got %d, want 200: %s", path, status, body)
		}
		for _, want := range []string{"undo decided: saga running", "confirm was not answered; retrieve found it requires capture", "a fault rule of the simulator"} {
			if strings.Contains(body, want) != tells {
				t.Errorf("%s: it tells %q: got %v, want %v", path, want, !tells, tells)
			}
		}
	}
}

// aboutAnOrder are the keys of a line of the log that is about an order.
var aboutAnOrder = regexp.MustCompile(` (order_id|idempotency_key|saga|step|step_key|message_id|event_id)=`)

// linesTell looks at the log: each line about an order has its id and a trace, and one service; and what decides about the order is in its trace.
func linesTell(t *testing.T, s *system.System, trail *told) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(s.Data(), "log", "throughline.log"))
	if err != nil {
		t.Fatal(err)
	}
	inTrace := make(map[string]int)
	for line := range strings.Lines(string(log)) {
		if strings.Count(line, " service=") > 1 {
			t.Errorf("log: two services in %s", line)
		}
		if !aboutAnOrder.MatchString(line) {
			continue
		}
		if !strings.Contains(line, " order_id="+trail.OrderID) || !strings.Contains(line, " trace_id=") {
			t.Errorf("log: no order, or no trace, in %s", line)
		}
		if strings.Contains(line, " trace_id="+trail.of("ORDER", "")[0].TraceID) {
			_, message, _ := strings.Cut(line, " msg=")
			message, _, _ = strings.Cut(message, " service=")
			inTrace[strings.Trim(message, `"`)]++
		}
	}
	for message, want := range map[string]int{
		"order placed": 1, "order changed": 2, "saga changed": 2, "step changed": 5, "outcome at the provider is unknown": 2,
	} {
		if inTrace[message] != want {
			t.Errorf("log: got %q %d times in the order's trace, want %d times: %v", message, inTrace[message], want, inTrace)
		}
	}
}

// traces are those that lead to the order by its key: the one that it began, and those of the requests that came later.
type traces struct {
	main            []jaeger.Span
	replay, another jaeger.Span // the spans at the edge
	notices         []jaeger.Span
	services        map[string]string
}

// service names who made a span.
func (tr *traces) service(s *jaeger.Span) string { return tr.services[s.ProcessID+s.TraceID] }

// named gives the spans of a name, or of names that begin so, in their sequence.
func (tr *traces) named(prefix string) []jaeger.Span {
	return slices.DeleteFunc(slices.Clone(tr.main), func(s jaeger.Span) bool { return !strings.HasPrefix(s.OperationName, prefix) })
}

// awaitTraces waits until all spans are there.
func awaitTraces(ctx context.Context, t *testing.T, j *jaeger.Jaeger, trail *told) *traces {
	t.Helper()
	var tr *traces
	system.Eventually(ctx, t, "the three requests with the key to be in Jaeger", func() bool {
		tr = &traces{services: make(map[string]string)}
		found, err := j.FindNamed(ctx, "gateway", "POST /v1/orders", keyAttribute, alikeKey)
		if err != nil {
			t.Fatal(err)
		}
		for _, trace := range found {
			for id, p := range trace.Processes {
				tr.services[id+trace.TraceID] = p.ServiceName
			}
			root := trace.Spans[slices.IndexFunc(trace.Spans, func(s jaeger.Span) bool { return len(s.References) == 0 })]
			switch kind := root.Tag("throughline.edge_answer"); kind {
			case "new":
				tr.main = trace.Spans
			case "replay":
				tr.replay = root
			case "mismatch":
				tr.another = root
			default:
				t.Fatalf("trace %s begins with %s, answered as %q", trace.TraceID, root.OperationName, kind)
			}
		}
		slices.SortStableFunc(tr.main, func(a, b jaeger.Span) int { return cmp.Compare(a.StartTime, b.StartTime) })
		said, err := j.Find(ctx, "payment", keyAttribute, alikeKey)
		if err != nil {
			t.Fatal(err)
		}
		for _, trace := range said {
			for _, s := range trace.Spans {
				if strings.HasPrefix(s.OperationName, "notice ") {
					tr.notices = append(tr.notices, s)
				}
			}
		}
		return len(tr.notices) >= len(trail.of("WEBHOOK", "")) && len(tr.named("send evt.order.failed")) == 1 && tr.another.SpanID != "" && tr.replay.SpanID != ""
	})
	if got, want := tr.main[0].TraceID, trail.of("ORDER", "")[0].TraceID; got != want {
		t.Errorf("trace: got %s in Jaeger, want %s, as it is told", got, want)
	}
	return tr
}
