package payment

import (
	"fmt"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
	sim "github.com/throughline/throughline/services/simulator/internal/control"
	"github.com/throughline/throughline/services/simulator/internal/webhook"
)

// Ledger returns the ledger of one order, or with "" of all, as
// control.PaymentLedger.
func (s *Server) Ledger(orderID string) any {
	l := control.PaymentLedger{Intents: []control.Intent{}, Refunds: []control.Refund{}}
	l.Calls, l.CallsDropped = s.engine.Calls(orderID)
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	intents := s.store.ordered
	if orderID != "" {
		intents = s.store.byOrder[orderID]
	}
	for _, in := range intents {
		l.Intents = append(l.Intents, control.Intent{
			ID: in.ID, OrderID: in.OrderID, Status: in.Status, Currency: in.Currency, Amount: in.Amount,
			AmountCapturable: in.Capturable, AmountCaptured: in.Captured, AmountRefunded: in.Refunded,
			PaymentMethod: in.PaymentMethod, CreatedAt: in.CreatedAt,
		})
		if orderID != "" {
			for _, r := range s.store.byIntent[in.ID] {
				l.Refunds = append(l.Refunds, r.ledger())
			}
		}
	}
	if orderID == "" {
		for _, r := range s.store.refundOrder {
			l.Refunds = append(l.Refunds, r.ledger())
		}
	}
	return l
}

func (r *refund) ledger() control.Refund {
	return control.Refund{
		ID: r.ID, IntentID: r.IntentID, OrderID: r.OrderID, Status: r.Status, Currency: r.Currency,
		Amount: r.Amount, CreatedAt: r.CreatedAt,
	}
}

// Reset forgets everything. Calls that wait in a rule go on, and find nothing.
func (s *Server) Reset() error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.store.journal != nil {
		if err := s.store.journal.Truncate(); err != nil {
			return err
		}
	}
	s.store.clear()
	s.engine.Reset()
	return nil
}

// acts are the things a person does at the provider's site. Each returns
// false where it does not fit the intent.
var acts = map[string]func(t *tx, in *intent) bool{
	"void": func(t *tx, in *intent) bool {
		return in.Status == requiresCapture && actCancel(t, in, "requested_by_customer")
	},
	"cancel": func(t *tx, in *intent) bool { return actCancel(t, in, "requested_by_customer") },
	"expire": func(t *tx, in *intent) bool {
		held := in.Capturable > 0
		if !actCancel(t, in, "automatic") {
			return false
		}
		if held {
			t.emit("charge.expired", in.OrderID, in.renderCharge())
		}
		return true
	},
	"refund": func(t *tx, in *intent) bool {
		return refundNow(t, in, 0, "requested_by_customer", nil).err == nil
	},
	"confirm": func(t *tx, in *intent) bool { return actAuthenticate(t, in, true) },
	"refuse":  func(t *tx, in *intent) bool { return actAuthenticate(t, in, false) },
}

func actCancel(t *tx, in *intent, reason string) bool {
	if in.cancel(reason, t.now) != nil {
		return false
	}
	t.changed(in, "payment_intent.canceled")
	return true
}

func actAuthenticate(t *tx, in *intent, passed bool) bool {
	if in.Status != requiresAction {
		return false
	}
	in.authenticate(passed, t.now)
	t.changed(in, eventOf(in.Status))
	return true
}

// Act does what a person does at the provider's own site, to all intents of
// the order that it fits.
func (s *Server) Act(orderID, do string) ([]string, error) {
	act, ok := acts[do]
	if !ok {
		return nil, fmt.Errorf("do %q is none of void, refund, expire, confirm, refuse, cancel", do)
	}
	acted, found := []string{}, false
	err := s.change(func(t *tx) {
		for _, in := range t.s.byOrder[orderID] {
			found = true
			if act(t, in) {
				acted = append(acted, in.ID)
			}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("intents of order %q: %w", orderID, sim.ErrNotFound)
	case len(acted) == 0:
		return nil, fmt.Errorf("no intent of order %q is in a state to %s: %w", orderID, do, sim.ErrConflict)
	}
	return acted, nil
}

// Webhook repeats the newest event of that type about the order, or makes one
// about its newest object.
func (s *Server) Webhook(q control.WebhookRequest) (string, error) {
	if !s.hooks.On() {
		return "", fmt.Errorf("%w: %w", webhook.ErrOff, sim.ErrConflict)
	}
	e, ok := s.hooks.Last(q.Event, q.OrderID)
	if !ok {
		object := s.newest(q.Event, q.OrderID)
		if object == nil {
			return "", fmt.Errorf("object for %s of order %q: %w", q.Event, q.OrderID, sim.ErrNotFound)
		}
		e = s.build(event{kind: q.Event, orderID: q.OrderID, object: object})
	}
	err := s.hooks.Send(e, webhook.Options{
		Times: q.Times, Delay: time.Duration(q.DelayMS) * time.Millisecond, BadSignature: q.BadSignature,
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", err, sim.ErrConflict)
	}
	return e.ID, nil
}
