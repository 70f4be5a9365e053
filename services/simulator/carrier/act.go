package carrier

import (
	"fmt"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
	sim "github.com/throughline/throughline/services/simulator/internal/control"
	"github.com/throughline/throughline/services/simulator/internal/webhook"
)

// Ledger returns the ledger of one order, or with "" of all, as
// control.CarrierLedger.
func (s *Server) Ledger(orderID string) any {
	l := control.CarrierLedger{Shipments: []control.Shipment{}}
	l.Calls, l.CallsDropped = s.engine.Calls(orderID)
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	list := s.store.ordered
	if orderID != "" {
		list = s.store.byOrder[orderID]
	}
	for _, sh := range list {
		l.Shipments = append(l.Shipments, control.Shipment{
			ID: sh.ID, Reference: sh.Reference, OrderID: sh.OrderID, Status: sh.Status, CreatedAt: sh.CreatedAt,
		})
	}
	return l
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

// acts are the things that happen at the carrier itself.
var acts = map[string]func(sh *Shipment, now time.Time) bool{
	"cancel": func(sh *Shipment, now time.Time) bool {
		changed, _ := sh.cancel(now)
		return changed
	},
	"lose": (*Shipment).lose,
}

// Act does what a person does at the carrier's own site, to all shipments of
// the order that it fits.
func (s *Server) Act(orderID, do string) ([]string, error) {
	act, ok := acts[do]
	if !ok {
		return nil, fmt.Errorf("do %q is none of cancel, lose", do)
	}
	acted, found := []string{}, false
	err := s.commit(func(t *tx) *control.Call {
		for _, sh := range t.s.byOrder[orderID] {
			found = true
			if act(sh, t.now) {
				t.put(sh)
				acted = append(acted, sh.ID)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("shipments of order %q: %w", orderID, sim.ErrNotFound)
	case len(acted) == 0:
		return nil, fmt.Errorf("no shipment of order %q is in a state to %s: %w", orderID, do, sim.ErrConflict)
	}
	return acted, nil
}

// Webhook repeats the newest event of that type about the order, or makes one
// about its newest shipment.
func (s *Server) Webhook(q control.WebhookRequest) (string, error) {
	if !s.hooks.On() {
		return "", fmt.Errorf("%w: %w", webhook.ErrOff, sim.ErrConflict)
	}
	e, ok := s.hooks.Last(q.Event, q.OrderID)
	if !ok {
		s.store.mu.Lock()
		list := s.store.byOrder[q.OrderID]
		if len(list) > 0 {
			e = s.build(q.Event, list[len(list)-1])
		}
		s.store.mu.Unlock()
		if len(list) == 0 {
			return "", fmt.Errorf("shipments of order %q: %w", q.OrderID, sim.ErrNotFound)
		}
	}
	err := s.hooks.Send(e, webhook.Options{
		Times: q.Times, Delay: time.Duration(q.DelayMS) * time.Millisecond, BadSignature: q.BadSignature,
	})
	if err != nil {
		return "", fmt.Errorf("%w: %w", err, sim.ErrConflict)
	}
	return e.ID, nil
}
