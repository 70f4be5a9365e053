//go:build jaeger

package e2e_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/scripts/internal/jaeger"
)

// spanOf finds the one span in which an entry happened, which is nil for what is told of no span: see [tracedAlike]. outer is where its time lies, and
// said what the span has to carry, by attribute.
func (tr *traces) spanOf(e *entry) (span, outer *jaeger.Span, said map[string]string) {
	find := func(name string, attributes map[string]string) *jaeger.Span {
		i := slices.IndexFunc(tr.main, func(s jaeger.Span) bool {
			for key, want := range attributes {
				if s.Tag(key) != want {
					return false
				}
			}
			return s.OperationName == name && (tr.service(&s) == e.Service || e.Kind == "ORDER")
		})
		if i < 0 {
			return nil
		}
		return &tr.main[i]
	}
	message := map[string]string{"messaging.message.id": e.MessageID}
	subject := e.Attributes["subject"]
	switch e.Kind {
	case "ORDER":
		return find("POST /v1/orders", nil), find("POST /v1/orders", nil), map[string]string{
			"throughline.client_id": e.Attributes["client_id"], "throughline.edge_answer": "new",
		}
	case "EDGE":
		s := find("throughline.order.v1.OrderService/CreateOrder", nil)
		return s, s, nil
	case "TRANSITION":
		s := find(e.Title, nil)
		return s, s, map[string]string{
			"throughline.from": e.Attributes["from"], "throughline.outcome": e.Outcome, "throughline.cause": e.Attributes["cause"],
			"throughline.undo": ifTrue(e.Undo), "throughline.reason": e.Reason, "throughline.step": e.Step,
		}
	case "SENT":
		return find("send "+subject, message), find("outbox "+subject, message), map[string]string{
			"throughline.outcome": e.Attributes["step_outcome"], "throughline.reason": e.Attributes["step_reason"],
		}
	case "RECEIVED", "STEP":
		i := slices.IndexFunc(tr.main, func(s jaeger.Span) bool {
			return strings.HasPrefix(s.OperationName, "process ") && s.Tag("messaging.message.id") == e.MessageID && tr.service(&s) == e.Service
		})
		if i < 0 {
			return nil, nil, nil
		}
		return &tr.main[i], &tr.main[i], map[string]string{"messaging.consumer.group.name": cmpConsumer(e, &tr.main[i])}
	case "ATTEMPT":
		s := find("perform "+e.Step, map[string]string{"throughline.attempt": e.Attributes["number"]})
		said = map[string]string{
			"throughline.outcome": e.Outcome, "throughline.reason": e.Reason, "throughline.undo": ifTrue(e.Undo), "throughline.step": e.Step,
		}
		if e.Outcome == "unknown" {
			said["otel.status_description"] = e.Detail
		} else {
			said["throughline.settled"] = e.Detail
		}
		return s, nil, said
	}
	return nil, nil, nil
}

// cmpConsumer is the consumer that a receipt names; a step names none.
func cmpConsumer(e *entry, s *jaeger.Span) string {
	if e.Kind == "STEP" {
		return s.Tag("messaging.consumer.group.name")
	}
	return e.Attributes["consumer"]
}

// ifTrue is how a tag tells what it does not tell otherwise.
func ifTrue(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// tracedAlike compares Jaeger's traces with the story. Not all entries have a span of their own: a tombstone, and the record of a payment or a
// shipment, are written together with an entry that has one, at the same time to the microsecond. What the provider says by itself is in traces of
// its own, with a link to the order's.
func tracedAlike(t *testing.T, trail *told, tr *traces) {
	t.Helper()
	seen := make(map[string]bool) // the spans that an entry tells of
	at := make(map[time.Time]bool)
	var sequence []string // of what was done and decided, on record
	for i := range trail.Entries {
		e := &trail.Entries[i]
		switch e.Kind {
		case "WEBHOOK", "TOMBSTONE", "RECORD":
			continue
		case "CALL":
			sequence = append(sequence, e.Title)
			continue // with its attempt
		case "ATTEMPT", "TRANSITION":
			sequence = append(sequence, e.Title)
		}
		at[e.At] = true
		span, outer, said := tr.spanOf(e)
		if span == nil {
			t.Errorf("on record, and not in Jaeger: %s %s", e.Service, e.Title)
			continue
		}
		carries(t, e, span, said)
		if outer != nil && (e.At.Before(outer.Began().Add(-noise)) || e.At.After(outer.Ended().Add(noise))) {
			t.Errorf("%s at %s: got it outside of %q, from %s for %s", e.Title, e.At, outer.OperationName, outer.Began(), outer.Took())
		}
		if e.Kind != "STEP" && e.Kind != "EDGE" {
			seen[span.SpanID] = true
		}
		if e.Kind == "ATTEMPT" {
			attemptAlike(t, trail, tr, e, span, seen)
		}
	}
	for _, e := range trail.Entries {
		if (e.Kind == "TOMBSTONE" || e.Kind == "RECORD") && !at[e.At] {
			t.Errorf("%s at %s: got nothing that was written with it", e.Title, e.At)
		}
	}
	var shown []string
	for i := range tr.main {
		s := &tr.main[i]
		title, fact := titleOf(s)
		if fact && !seen[s.SpanID] {
			t.Errorf("in Jaeger, and not on record: %s %q", tr.service(s), s.OperationName)
		}
		if title != "" {
			shown = append(shown, title)
		}
	}
	if !slices.Equal(shown, sequence) {
		t.Errorf("sequence: got\n%s\nin Jaeger, want\n%s", strings.Join(shown, "\n"), strings.Join(sequence, "\n"))
	}
	ended := tr.named("saga: compensating → compensated")
	if len(ended) != 1 || ended[0].Tag("throughline.order_status") != trail.Status || ended[0].Tag("throughline.reason") != trail.of("ORDER", "")[0].Reason {
		t.Errorf("end in Jaeger: got %+v, want one with the status %s and why", ended, trail.Status)
	}
	repeatsAlike(t, trail, tr)
	noticesAlike(t, trail, tr)
}

// noticesAlike compares what the provider has said by itself with the spans of that.
func noticesAlike(t *testing.T, trail *told, tr *traces) {
	t.Helper()
	recorded := trail.of("WEBHOOK", "")
	if len(recorded) != len(tr.notices) || len(recorded) == 0 {
		t.Errorf("notices: got %d in Jaeger, want %d, and some", len(tr.notices), len(recorded))
	}
	for _, e := range recorded {
		i := slices.IndexFunc(tr.notices, func(s jaeger.Span) bool {
			return s.OperationName == "notice "+e.Attributes["type"] && !e.At.Before(s.Began().Add(-noise)) && !e.At.After(s.Ended().Add(noise))
		})
		if i < 0 {
			t.Errorf("on record, and not in Jaeger: %s at %s, of %+v", e.Title, e.At, tr.notices)
			continue
		}
		carries(t, &e, &tr.notices[i], map[string]string{"throughline.outcome": "applied", "span.kind": "server"})
		if !slices.ContainsFunc(tr.notices[i].References, func(r jaeger.Reference) bool { return r.TraceID == tr.main[0].TraceID }) {
			t.Errorf("%s: got no link to the order's trace in %+v", e.Title, tr.notices[i].References)
		}
	}
}

// carries looks for what a span has to tell of an entry.
func carries(t *testing.T, e *entry, s *jaeger.Span, said map[string]string) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(said)) {
		if got := s.Tag(key); got != said[key] {
			t.Errorf("%s: %q has %s %q, want %q", e.Title, s.OperationName, key, got, said[key])
		}
	}
	for key, want := range map[string]string{keyAttribute: alikeKey, orderAttribute: orderOf(e, s)} {
		if got := s.Tag(key); got != want {
			t.Errorf("%s: %q has %s %q, want %q", e.Title, s.OperationName, key, got, want)
		}
	}
}

func orderOf(e *entry, s *jaeger.Span) string {
	if e.OrderID == "" {
		return s.Tag(orderAttribute)
	}
	return e.OrderID
}

// titleOf tells whether a span is of a kind that must be on record, and for what was done and decided its title there.
func titleOf(s *jaeger.Span) (title string, fact bool) {
	verb, object, _ := strings.Cut(s.OperationName, " ")
	switch {
	case strings.Contains(s.OperationName, "→"):
		return s.OperationName, true
	case verb == "perform":
		return "attempt " + s.Tag("throughline.attempt") + " at " + object + ": " + s.Tag("throughline.outcome"), true
	case s.Tag("throughline.operation") != "":
		return s.Tag("throughline.provider") + ": " + s.Tag("throughline.operation"), true
	case verb == "send", verb == "process":
		return "", true
	}
	return "", false
}

// attemptAlike compares an attempt and its calls with their spans.
func attemptAlike(t *testing.T, trail *told, tr *traces, e *entry, s *jaeger.Span, seen map[string]bool) {
	t.Helper()
	took := lasted(e)
	if (took - s.Took()).Abs() > cut {
		t.Errorf("%s: took %s on record, and %s in Jaeger", e.Title, took, s.Took())
	}
	if e.At.After(s.Began().Add(noise)) {
		t.Errorf("%s: got %s on record, want it not later than its span began, %s", e.Title, e.At, s.Began())
	}
	// What led to it: the arrival of its command, with which the steps are read before it is processed, or the attempt before.
	var led time.Time
	for i := range tr.main {
		before := &tr.main[i]
		if before.OperationName == "receive cmd."+e.Service+"."+e.Step && tr.service(before) == e.Service {
			led = later(led, before.Began())
		}
		if before.OperationName == s.OperationName && before.StartTime < s.StartTime {
			led = later(led, before.Began().Add(before.Took()))
		}
	}
	if led.IsZero() || e.At.Before(led.Add(-noise)) {
		t.Errorf("%s: got %s on record, want it not before what led to it, %s", e.Title, e.At, led)
	}
	calls := slices.DeleteFunc(slices.Clone(tr.main), func(c jaeger.Span) bool {
		return c.Tag("throughline.operation") == "" || !slices.ContainsFunc(c.References, func(r jaeger.Reference) bool { return r.SpanID == s.SpanID })
	})
	recorded := slices.DeleteFunc(trail.of("CALL", e.Step), func(c entry) bool { return c.CausedBy != e.ID })
	if len(calls) != len(recorded) {
		t.Errorf("%s: got %d calls in Jaeger, want %d", e.Title, len(calls), len(recorded))
		return
	}
	for i := range calls {
		c, r := &calls[i], &recorded[i]
		seen[c.SpanID] = true
		status := r.Attributes["status"]
		if status == "" && c.Tag("otel.status_code") != "ERROR" {
			t.Errorf("%s %s: got no error in Jaeger, want that it was not answered", e.Title, r.Title)
		}
		carries(t, r, c, map[string]string{
			"throughline.provider": r.Attributes["peer"], "throughline.operation": r.Attributes["operation"], "throughline.provider_key": r.Attributes["key"],
			"throughline.provider_reference": r.Attributes["reference"], "throughline.provider_answer": r.Attributes["answer"],
			"throughline.provider_error": r.Detail, "http.response.status_code": status, "span.kind": "client",
		})
		if took := lasted(r); (took - c.Took()).Abs() > cut {
			t.Errorf("%s, %s: took %s on record, and %s in Jaeger", e.Title, r.Title, took, c.Took())
		}
		// Both are told from their attempt on: here by the monotonic clock, there by the time of day, which is being set right.
		after, inJaeger := r.At.Sub(e.At), c.Began().Sub(s.Began())
		if (after - inJaeger).Abs() > 2*cut+after/2000 {
			t.Errorf("%s, %s: got it %s after the attempt's begin on record, and %s in Jaeger", e.Title, r.Title, after, inJaeger)
		}
	}
}

// lasted is how long an entry took.
func lasted(e *entry) time.Duration {
	d, _ := time.ParseDuration(e.Duration) // nothing is none
	return d
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// repeatsAlike compares when the key came again with the traces of these requests, which lead to the first.
func repeatsAlike(t *testing.T, trail *told, tr *traces) {
	t.Helper()
	edge := trail.of("EDGE", "")[0]
	for name, root := range map[string]*jaeger.Span{"last_replay_at": &tr.replay, "last_mismatch_at": &tr.another} {
		// It was counted in memory, and written later as so long ago: later than it was by what that statement was under way, which nobody knows. The
		// count was read when the story was told, so it cannot be later than that.
		at, err := time.Parse(time.RFC3339Nano, edge.Attributes[name])
		if err != nil || at.Before(root.Began().Add(-noise)) || at.After(trail.AssembledAt.Add(noise)) {
			t.Errorf("%s: got %s on record, %v, want it from %s on", name, at, err, root.Began())
		}
		if root.Tag(orderAttribute) != trail.OrderID || root.Tag(keyAttribute) != alikeKey {
			t.Errorf("%s: got the order %s and the key %s in Jaeger", name, root.Tag(orderAttribute), root.Tag(keyAttribute))
		}
	}
}
