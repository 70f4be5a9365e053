package payment_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/simulator/internal/journal"
	"github.com/throughline/throughline/services/simulator/payment"
)

// text is a ledger for comparing; JSON, so that times compare by value.
func text(t *testing.T, l control.PaymentLedger) string {
	t.Helper()
	b, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// story plays one order of each ending and returns the ledger after it.
func story(t *testing.T, s *simulator) string {
	t.Helper()
	pi := s.in("paid", stripe.PaymentIntentStatusSucceeded)
	if _, err := s.refund(pi.ID, "r", 99); err != nil {
		t.Fatal(err)
	}
	s.in("held", stripe.PaymentIntentStatusRequiresCapture)
	s.in("gone", stripe.PaymentIntentStatusCanceled)
	declined := s.mustCreate("declined", "pm_card_chargeDeclined")
	if _, err := s.confirm(declined.ID, "confirm-declined"); err == nil {
		t.Fatal("declined card was accepted")
	}
	return text(t, s.ledger(""))
}

func TestStopAndStartAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, payment.Config{DataDir: dir})
	before := story(t, s)
	declined := s.ledger("declined").Intents[0].ID
	s.stop()

	s = start(t, payment.Config{DataDir: dir})
	if after := text(t, s.ledger("")); after != before {
		t.Errorf("ledger after restart: got %s, want %s", after, before)
	}
	// Keys, errors included, are remembered; so is what they were used for.
	if r := s.post("/v1/payment_intents/"+declined+"/confirm", "confirm-declined", ""); r.status != 402 || r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("stored decline: got %d %s, want a replay of 402", r.status, r.body)
	}
	if r := s.post("/v1/payment_intents/"+declined+"/cancel", "confirm-declined", ""); r.status != 400 || !strings.Contains(r.body, "idempotency_error") {
		t.Errorf("key at another endpoint: got %d %s", r.status, r.body)
	}
	if got := s.retrieve(declined); got.LastPaymentError == nil || got.LastPaymentError.DeclineCode != "generic_decline" {
		t.Errorf("last_payment_error: got %+v", got.LastPaymentError)
	}
	if _, err := s.capture(s.ledger("held").Intents[0].ID, "later"); err != nil {
		t.Errorf("capturing what was held before: %v", err)
	}
}

// The process is killed: whatever was answered is in the file without any
// closing, and a line that was being written is cut off.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, payment.Config{DataDir: dir})
	before := story(t, s)
	answered, err := os.ReadFile(filepath.Join(dir, "payment.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tail := range map[string]string{
		"between lines": "", "in a line": `{"intents":[{"id":"pi_torn","status":"requires_capt`, "with garbage": "\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := t.TempDir()
			if err := os.WriteFile(filepath.Join(copied, "payment.jsonl"), append(answered[:len(answered):len(answered)], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			s := start(t, payment.Config{DataDir: copied})
			if after := text(t, s.ledger("")); after != before {
				t.Errorf("ledger: got %s, want %s", after, before)
			}
			s.mustCreate("next", "pm_card_visa")
			s.stop()
			if n := len(start(t, payment.Config{DataDir: copied}).ledger("next").Intents); n != 1 {
				t.Errorf("written after the torn line: got %d intents, want 1", n)
			}
		})
	}
}

func TestTwoOnOneLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, payment.Config{DataDir: dir})
	if _, err := payment.New(payment.Config{DataDir: dir}); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("got %v, want %v", err, journal.ErrLocked)
	}
}

func TestHistoryIsDroppedAtStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := payment.Config{DataDir: dir, Calls: 10}
	s := start(t, config)
	pi := s.in("o", stripe.PaymentIntentStatusRequiresCapture)
	for range 1100 {
		s.retrieve(pi.ID)
	}
	s.stop()
	path := filepath.Join(dir, "payment.jsonl")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s = start(t, config)
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if after.Size() > before.Size()/10 {
		t.Errorf("size: got %d after %d, want a tenth at most", after.Size(), before.Size())
	}
	if got := s.retrieve(pi.ID).Status; got != stripe.PaymentIntentStatusRequiresCapture {
		t.Errorf("status: got %s", got)
	}
	if r := s.post("/v1/payment_intents/"+pi.ID+"/confirm", "confirm-o", ""); r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("key was lost: %d %s", r.status, r.body)
	}
	if n := len(s.ledger("o").Calls); n < 10 || n > 20 {
		t.Errorf("calls kept: got %d, want between 10 and 20", n)
	}
}

func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{Calls: 10})
	for n := range 25 {
		s.mustCreate(strconv.Itoa(n), "")
	}
	l := s.ledger("")
	if len(l.Calls)+l.CallsDropped != 25 || len(l.Calls) > 20 || l.Calls[len(l.Calls)-1].OrderID != "24" {
		t.Errorf("got %d calls and %d dropped, the newest of order %s", len(l.Calls), l.CallsDropped, l.Calls[len(l.Calls)-1].OrderID)
	}
}
