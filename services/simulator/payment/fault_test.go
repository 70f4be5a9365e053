package payment_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/simulator/payment"
)

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

// What each action does to the first confirm, and what a repeat under the same
// key then gets.
func TestFaultActions(t *testing.T) {
	t.Parallel()
	const held, unheld = stripe.PaymentIntentStatusRequiresCapture, stripe.PaymentIntentStatusRequiresConfirmation
	tests := map[string]struct {
		fault    control.Fault
		status   int // of the first answer; 0: none
		body     string
		after    stripe.PaymentIntentStatus // right after it
		again    int                        // status of the repeat
		replayed bool
		finally  stripe.PaymentIntentStatus
	}{
		"delay":       {control.Fault{Action: control.Delay, DelayMS: 1}, 200, "requires_capture", held, 200, true, held},
		"delay after": {control.Fault{Action: control.Delay, DelayMS: 1, Effect: control.EffectBefore}, 200, "requires_capture", held, 200, true, held},
		"drop_after":  {control.Fault{Action: control.DropAfter}, 0, "", held, 200, true, held},
		"fail_before": {control.Fault{Action: control.FailBefore}, 500, "api_error", unheld, 200, false, held},
		"fail_before with body": {
			control.Fault{Action: control.FailBefore, Status: 503, Body: "busy", ContentType: "text/plain"},
			503, "busy", unheld, 200, false, held,
		},
		"fail_before, stored": {control.Fault{Action: control.FailBefore, Status: 503, Stored: yes()}, 503, "api_error", unheld, 503, true, unheld},
		"fail_after":          {control.Fault{Action: control.FailAfter}, 500, "api_error", held, 500, true, held},
		"fail_after, not stored": {
			control.Fault{Action: control.FailAfter, Status: 502, Stored: no()}, 502, "api_error", held, 200, true, held,
		},
		"fail_after, stored text": {
			control.Fault{Action: control.FailAfter, Status: 502, Body: "<h1>Bad & gone</h1>", ContentType: "text/html"},
			502, "<h1>Bad & gone</h1>", held, 502, true, held,
		},
		"answer":   {control.Fault{Action: control.AnswerWith, Body: `{"weird":true}`}, 200, `{"weird":true}`, unheld, 200, false, held},
		"no_dedup": {control.Fault{Action: control.NoDedup, Times: 2}, 200, "requires_capture", held, 400, false, held},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, payment.Config{})
			pi := s.mustCreate("o", "pm_card_visa")
			test.fault.Operation = "payment_intents.confirm"
			if test.fault.Times == 0 {
				test.fault.Times = 1
			}
			s.fault(test.fault)
			first, err := s.try("/v1/payment_intents/"+pi.ID+"/confirm", "k", "")
			if (err != nil) != (test.status == 0) || first.status != test.status || !strings.Contains(first.body, test.body) {
				t.Errorf("first: got %d %s, %v; want %d with %q", first.status, first.body, err, test.status, test.body)
			}
			if want := test.fault.ContentType; want != "" && first.header.Get("Content-Type") != want {
				t.Errorf("content type: got %s, want %s", first.header.Get("Content-Type"), want)
			}
			if got := s.retrieve(pi.ID).Status; got != test.after {
				t.Errorf("status after the first: got %s, want %s", got, test.after)
			}
			again := s.post("/v1/payment_intents/"+pi.ID+"/confirm", "k", "")
			if replayed := again.header.Get("Idempotent-Replayed") == "true"; again.status != test.again || replayed != test.replayed {
				t.Errorf("repeat: got %d, replayed %t; want %d, %t", again.status, replayed, test.again, test.replayed)
			}
			if test.replayed && test.status == test.again && test.status != 0 && again.body != first.body {
				t.Errorf("repeat: got body %s, want %s", again.body, first.body)
			}
			if got := s.retrieve(pi.ID).Status; got != test.finally {
				t.Errorf("status finally: got %s, want %s", got, test.finally)
			}
			call := s.ledger("o").Calls[1]
			if call.Status != test.status || call.Dropped != (test.status == 0) || call.Effect != (test.after == held) || call.Fault != test.fault.Action {
				t.Errorf("call: got %+v", call)
			}
		})
	}
}

func TestFaultsMatchByOperationOrderAndCount(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi, other := s.mustCreate("o", "pm_card_visa"), s.mustCreate("other", "pm_card_visa")
	// Calls before the rule do not count.
	s.fault(control.Fault{Operation: "payment_intents.retrieve", OrderID: "o", Nth: 2, Times: 2, Action: control.FailBefore, Status: 503})
	status := func(id string) int {
		_, err := s.stripe.V1PaymentIntents.Retrieve(t.Context(), id, nil)
		if err == nil {
			return 200
		}
		return asStripe(t, err).HTTPStatusCode
	}
	var got []int
	for range 5 {
		got = append(got, status(pi.ID))
		if code := status(other.ID); code != 200 {
			t.Errorf("other order: got %d, want 200", code)
		}
	}
	want := []int{200, 503, 503, 200, 200}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	states, err := s.control.Faults(t.Context())
	if err != nil || len(states) != 1 || states[0].Matched != 5 || states[0].Fired != 2 {
		t.Errorf("states: got %+v, %v; want one, matched 5, fired 2", states, err)
	}
}

func TestAnyOperationAndCombinedRules(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_visa")
	s.fault(control.Fault{Operation: control.AnyOperation, Action: control.NoDedup})
	s.fault(control.Fault{Operation: "payment_intents.create", Action: control.DropAfter, Times: 1})
	s.fault(control.Fault{Operation: "payment_intents.create", Action: control.FailBefore, Times: 1})
	if _, err := s.create("o", "pm_card_visa", "create-o"); err == nil {
		t.Error("dropped create: got an answer, want none")
	}
	_, err := s.create("o", "pm_card_visa", "create-o")
	if e := asStripe(t, err); e.HTTPStatusCode != 500 {
		t.Errorf("younger rule on the next call: got %d, want 500", e.HTTPStatusCode)
	}
	second, err := s.create("o", "pm_card_visa", "create-o")
	if err != nil || second.ID == pi.ID {
		t.Errorf("without deduplication: got %v, %v; want another intent", second, err)
	}
	if n := len(s.ledger("o").Intents); n != 3 {
		t.Errorf("intents: got %d, want 3", n)
	}
}

// The heart of the matter: a confirm that is held looks again when it goes on.
func TestHeldConfirmMeetsTheCancel(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_visa")
	rule := s.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Hold})
	done := make(chan error, 1)
	go func() { _, err := s.confirm(pi.ID, "k"); done <- err }()
	s.held(rule, 1)
	if l := s.ledger("o"); len(l.Calls) != 2 || l.Calls[1].Status != 0 || l.Calls[1].Effect {
		t.Errorf("held call: got %+v, want it listed without outcome", l.Calls)
	}
	if _, err := s.cancel(pi.ID, "c"); err != nil {
		t.Fatalf("cancelling meanwhile: %v", err)
	}
	if n, err := s.control.Release(t.Context(), ""); n != 1 || err != nil {
		t.Fatalf("release: got %d, %v", n, err)
	}
	if e := asStripe(t, <-done); e.Code != stripe.ErrorCodePaymentIntentUnexpectedState {
		t.Errorf("released confirm: got %s, want payment_intent_unexpected_state", e.Code)
	}
	if in := s.ledger("o").Intents[0]; in.Status != "canceled" || in.AmountCapturable != 0 {
		t.Errorf("ledger: got %+v, want nothing held", in)
	}
}

func TestHeldCallHappensAlthoughItsClientHasGone(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_visa")
	rule := s.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Hold})
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.stripe.V1PaymentIntents.Confirm(ctx, pi.ID, &stripe.PaymentIntentConfirmParams{})
		done <- err
	}()
	s.held(rule, 1)
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("client: got %v, want context.Canceled", err)
	}
	if got := s.retrieve(pi.ID).Status; got != "requires_confirmation" {
		t.Errorf("before release: got %s, want requires_confirmation", got)
	}
	// Removing the rule releases as well.
	if err := s.control.RemoveFault(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the effect", func() bool { return s.retrieve(pi.ID).Status == "requires_capture" })
}

func TestHoldAfterTheEffect(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_visa")
	rule := s.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Hold, Effect: control.EffectBefore})
	done := make(chan error, 1)
	go func() { _, err := s.confirm(pi.ID, "k"); done <- err }()
	s.held(rule, 1)
	if got := s.retrieve(pi.ID).Status; got != "requires_capture" {
		t.Errorf("while held: got %s, want requires_capture", got)
	}
	if _, err := s.control.Release(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("released: %v", err)
	}
	// The rule ended with its release.
	if states, err := s.control.Faults(t.Context()); err != nil || len(states) != 0 {
		t.Errorf("rules: got %+v, %v; want none", states, err)
	}
}

func TestStopEndsHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, payment.Config{DataDir: dir})
	pi := s.mustCreate("o", "pm_card_visa")
	rule := s.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Hold})
	done := make(chan error, 1)
	go func() { _, err := s.confirm(pi.ID, "k"); done <- err }()
	s.held(rule, 1)
	s.stop()
	if err := <-done; err == nil {
		t.Error("held call was answered at stop")
	}
	s = start(t, payment.Config{DataDir: dir})
	if got := s.retrieve(pi.ID).Status; got != "requires_confirmation" {
		t.Errorf("after restart: got %s, want requires_confirmation", got)
	}
	if _, err := s.confirm(pi.ID, "k"); err != nil {
		t.Errorf("the key of the call that came to nothing: %v", err)
	}
}

func TestControlRefusesBadInput(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	tests := map[string]struct {
		method, path, body string
		status             int
	}{
		"unknown operation":   {"POST", "/faults", `{"operation":"shipments.create","action":"hold"}`, 400},
		"unknown action":      {"POST", "/faults", `{"operation":"*","action":"explode"}`, 400},
		"no action":           {"POST", "/faults", `{"operation":"*"}`, 400},
		"unknown member":      {"POST", "/faults", `{"operation":"*","action":"hold","colour":"red"}`, 400},
		"negative nth":        {"POST", "/faults", `{"operation":"*","action":"hold","nth":-1}`, 400},
		"delay without time":  {"POST", "/faults", `{"operation":"*","action":"delay"}`, 400},
		"delay of an hour":    {"POST", "/faults", `{"operation":"*","action":"delay","delay_ms":3600000}`, 400},
		"status out of range": {"POST", "/faults", `{"operation":"*","action":"answer","status":99}`, 400},
		"status for a hold":   {"POST", "/faults", `{"operation":"*","action":"hold","status":500}`, 400},
		"unknown effect":      {"POST", "/faults", `{"operation":"*","action":"hold","effect":"never"}`, 400},
		"effect for a drop":   {"POST", "/faults", `{"operation":"*","action":"drop_after","effect":"before"}`, 400},
		"no JSON":             {"POST", "/faults", `hold everything`, 400},
		"two objects":         {"POST", "/faults", `{"operation":"*","action":"hold"}{}`, 400},
		"body as an object":   {"POST", "/faults", `{"operation":"*","action":"answer","body":{"a":1}}`, 200},
		"unknown rule":        {"DELETE", "/faults/flt_9", ``, 404},
		"release unknown":     {"POST", "/release", `{"id":"flt_9"}`, 404},
		"release nothing":     {"POST", "/release", ``, 200},
		"act without order":   {"POST", "/act", `{"do":"void"}`, 400},
		"act unknown":         {"POST", "/act", `{"order_id":"o","do":"lose"}`, 400},
		"act on nothing":      {"POST", "/act", `{"order_id":"o","do":"void"}`, 404},
		"webhook, none set":   {"POST", "/webhooks", `{"order_id":"o","event":"payment_intent.succeeded"}`, 409},
		"webhook, no event":   {"POST", "/webhooks", `{"order_id":"o"}`, 400},
		"unknown path":        {"GET", "/nope", ``, 404},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequestWithContext(t.Context(), test.method, s.url+"/_control"+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			r, err := do(req)
			if err != nil {
				t.Fatal(err)
			}
			if r.status != test.status {
				t.Errorf("got %d %s, want %d", r.status, r.body, test.status)
			}
			if r.status >= 400 && !strings.HasPrefix(r.body, `{"error":{"message":"`) {
				t.Errorf("refusal without a message: %s", r.body)
			}
		})
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, payment.Config{DataDir: dir})
	pi := s.mustCreate("o", "pm_card_visa")
	rule := s.fault(control.Fault{Operation: "payment_intents.confirm", Action: control.Hold})
	done := make(chan error, 1)
	go func() { _, err := s.confirm(pi.ID, "k"); done <- err }()
	s.held(rule, 1)
	if err := s.control.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := asStripe(t, <-done); e.HTTPStatusCode != 404 {
		t.Errorf("held call after reset: got %d, want 404", e.HTTPStatusCode)
	}
	if l := s.ledger(""); len(l.Intents) != 0 {
		t.Errorf("intents: got %d, want none", len(l.Intents))
	}
	if next := s.mustCreate("o", "pm_card_visa"); next.ID == pi.ID {
		t.Error("a key survived the reset")
	}
	s.stop()
	s = start(t, payment.Config{DataDir: dir})
	if n := len(s.ledger("").Intents); n != 1 {
		t.Errorf("intents after a restart: got %d, want 1", n)
	}
}

// What a person does at the provider's own site.
func TestActs(t *testing.T) {
	t.Parallel()
	const conflict = "conflict"
	tests := []struct {
		from stripe.PaymentIntentStatus
		do   string
		to   stripe.PaymentIntentStatus
	}{
		{"requires_capture", "void", "canceled"},
		{"requires_capture", "expire", "canceled"},
		{"requires_capture", "cancel", "canceled"},
		{"requires_capture", "refund", conflict},
		{"requires_capture", "confirm", conflict},
		{"requires_action", "confirm", "requires_capture"},
		{"requires_action", "refuse", "requires_payment_method"},
		{"requires_action", "void", conflict},
		{"requires_action", "cancel", "canceled"},
		{"succeeded", "refund", "succeeded"},
		{"succeeded", "void", conflict},
		{"succeeded", "expire", conflict},
		{"canceled", "cancel", conflict},
	}
	s := start(t, payment.Config{})
	for _, test := range tests {
		order := string(test.from) + "-" + test.do
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			pi := s.in(order, test.from)
			acted, err := s.control.Act(t.Context(), order, test.do)
			if test.to == conflict {
				var e *control.Error
				if !errors.As(err, &e) || e.Status != 409 {
					t.Errorf("got %v, %v; want a conflict", acted, err)
				}
				return
			}
			if err != nil || len(acted) != 1 || acted[0] != pi.ID {
				t.Fatalf("got %v, %v; want [%s]", acted, err, pi.ID)
			}
			if got := s.retrieve(pi.ID).Status; got != test.to {
				t.Errorf("status: got %s, want %s", got, test.to)
			}
			if in := s.ledger(order).Intents[0]; test.do == "refund" && in.AmountRefunded != 1099 {
				t.Errorf("refunded: got %d, want 1099", in.AmountRefunded)
			}
		})
	}
}

// The customer follows next_action in a browser.
func TestAuthenticationPage(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", "pm_card_threeDSecure2Required")
	got, err := s.stripe.V1PaymentIntents.Confirm(t.Context(), pi.ID, &stripe.PaymentIntentConfirmParams{
		ReturnURL: stripe.String(s.url + "/back?x=1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	link := got.NextAction.RedirectToURL.URL
	get := func(url string) raw {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r, err := do(req)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := get(link); r.status != 200 || !strings.Contains(r.body, "Approve") {
		t.Errorf("page: got %d %s", r.status, r.body)
	}
	if r := get(strings.Split(link, "?")[0]); r.status != 404 {
		t.Errorf("page without the secret: got %d, want 404", r.status)
	}
	client := &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, link, strings.NewReader("do=confirm"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if to := resp.Header.Get("Location"); !strings.HasPrefix(to, s.url+"/back?payment_intent="+pi.ID) || !strings.Contains(to, "x=1") {
		t.Errorf("sent to %q", to)
	}
	if got := s.retrieve(pi.ID); got.Status != "requires_capture" || got.NextAction != nil {
		t.Errorf("afterwards: got %s, %v", got.Status, got.NextAction)
	}
}
