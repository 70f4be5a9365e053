package payment

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/simulator/internal/journal"
)

// store is everything the simulator remembers. One mutex guards it all: an
// operation holds it for some microseconds, and atomicity per intent, per key
// and between the two then needs no thought.
type store struct {
	mu      sync.Mutex
	journal *journal.Journal // nil: memory only
	closed  bool

	searchLag time.Duration // fixed at start

	intents  map[string]*intent
	ordered  []*intent            // by creation; their CreatedAt never goes back
	byOrder  map[string][]*intent // by creation
	byCharge map[string]*intent

	refunds      map[string]*refund
	refundOrder  []*refund
	byIntent     map[string][]*refund
	keys         map[string]*keyRecord
	nextKeySweep time.Time
}

// line is one journal line: what one request changed, whole or not at all.
// Objects are written as they are afterwards; the last line of an id counts.
type line struct {
	Intents []*intent     `json:"intents,omitempty"`
	Refunds []*refund     `json:"refunds,omitempty"`
	Key     *keyRecord    `json:"key,omitempty"`
	Call    *control.Call `json:"call,omitempty"`
}

func (s *store) clear() {
	s.intents, s.ordered = map[string]*intent{}, nil
	s.byOrder, s.byCharge = map[string][]*intent{}, map[string]*intent{}
	s.refunds, s.refundOrder, s.byIntent = map[string]*refund{}, nil, map[string][]*refund{}
	s.keys = map[string]*keyRecord{}
}

func (s *store) putIntent(in *intent) {
	if in.Charge != nil {
		s.byCharge[in.Charge.ID] = in
	}
	if old := s.intents[in.ID]; old != nil {
		if old != in {
			*old = *in // read back: the slices hold the first one
			if in.Charge != nil {
				s.byCharge[in.Charge.ID] = old
			}
		}
		return
	}
	if n := len(s.ordered); n > 0 && in.CreatedAt.Before(s.ordered[n-1].CreatedAt) {
		in.CreatedAt = s.ordered[n-1].CreatedAt // the clock was put back; lists are cut by time
	}
	s.intents[in.ID] = in
	s.ordered = append(s.ordered, in)
	if in.OrderID != "" {
		s.byOrder[in.OrderID] = append(s.byOrder[in.OrderID], in)
	}
}

func (s *store) putRefund(r *refund) {
	if old := s.refunds[r.ID]; old != nil {
		if old != r {
			*old = *r
		}
		return
	}
	s.refunds[r.ID] = r
	s.refundOrder = append(s.refundOrder, r)
	s.byIntent[r.IntentID] = append(s.byIntent[r.IntentID], r)
}

// open reads the ledger at path and makes the file small again if most of it
// is history. restore gets the calls.
func (s *store) open(path string, restore func(control.Call), live func() []control.Call) error {
	lines := 0
	j, err := journal.Open(path, func(raw []byte) error {
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("decoding: %w", err)
		}
		lines++
		for _, in := range l.Intents {
			s.putIntent(in)
		}
		for _, r := range l.Refunds {
			s.putRefund(r)
		}
		if l.Key != nil {
			s.keys[l.Key.Key] = l.Key
		}
		if l.Call != nil {
			restore(*l.Call)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("opening ledger: %w", err)
	}
	s.journal = j
	calls := live()
	// A tenth of slack, and never for a small file, so that most starts read only.
	if alive := len(s.ordered) + len(s.refundOrder) + len(s.keys) + len(calls); lines < 1000 || lines < alive*11/10 {
		return nil
	}
	return j.Rewrite(s.snapshot(calls))
}

// snapshot is the shortest journal that gives the same state.
func (s *store) snapshot(calls []control.Call) []any {
	lines := make([]any, 0, len(s.ordered)+len(s.refundOrder)+len(s.keys)+len(calls))
	for _, in := range s.ordered {
		lines = append(lines, line{Intents: []*intent{in}})
	}
	for _, r := range s.refundOrder {
		lines = append(lines, line{Refunds: []*refund{r}})
	}
	for _, k := range s.keys {
		if !k.inUse {
			lines = append(lines, line{Key: k})
		}
	}
	for i := range calls {
		lines = append(lines, line{Call: &calls[i]})
	}
	return lines
}

// append adds l to the journal; s.mu is held, which makes the journal's order
// that of the changes.
func (s *store) append(l line) (uint64, error) {
	if s.journal == nil {
		return 0, nil
	}
	return s.journal.Append(l)
}

// wait returns when line n is written; s.mu is not held.
func (s *store) wait(n uint64, err error) error {
	if err != nil || s.journal == nil {
		return err
	}
	return s.journal.Wait(n)
}

// tx collects what one operation changes while the store is locked.
type tx struct {
	s       *store
	now     time.Time
	intents []*intent
	refunds []*refund
	pending []string // ids of refunds that are still to settle
	events  []event
}

// event is a webhook to be sent once the change is durable.
type event struct {
	kind    string
	orderID string
	object  any
}

func (t *tx) changed(in *intent, events ...string) {
	t.s.putIntent(in)
	t.intents = append(t.intents, in)
	for _, kind := range events {
		t.emit(kind, in.OrderID, in.render(false))
	}
}

func (t *tx) refunded(r *refund, events ...string) {
	t.s.putRefund(r)
	t.refunds = append(t.refunds, r)
	if r.Ends != "" {
		t.pending = append(t.pending, r.ID)
	}
	for _, kind := range events {
		t.emit(kind, r.OrderID, r.render())
	}
}

func (t *tx) emit(kind, orderID string, object any) {
	t.events = append(t.events, event{kind: kind, orderID: orderID, object: object})
}
