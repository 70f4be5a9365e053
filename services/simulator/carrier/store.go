package carrier

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/simulator/internal/journal"
)

// store is everything the simulator remembers, guarded by one mutex.
type store struct {
	mu      sync.Mutex
	journal *journal.Journal // nil: memory only

	shipments   map[string]*Shipment
	ordered     []*Shipment // by creation, as are the next two; their CreatedAt never goes back
	byReference map[string][]*Shipment
	byOrder     map[string][]*Shipment
}

// line is one journal line: what one request changed, whole or not at all.
type line struct {
	Shipments []*Shipment   `json:"shipments,omitempty"` // as they are afterwards
	Call      *control.Call `json:"call,omitempty"`
}

func (s *store) clear() {
	s.shipments, s.ordered = map[string]*Shipment{}, nil
	s.byReference, s.byOrder = map[string][]*Shipment{}, map[string][]*Shipment{}
}

func (s *store) put(sh *Shipment) {
	if old := s.shipments[sh.ID]; old != nil {
		if old != sh {
			*old = *sh // read back: the slices hold the first one
		}
		return
	}
	if n := len(s.ordered); n > 0 && sh.CreatedAt.Before(s.ordered[n-1].CreatedAt) {
		sh.CreatedAt = s.ordered[n-1].CreatedAt // the clock was put back; lists are cut by time
	}
	s.shipments[sh.ID] = sh
	s.ordered = append(s.ordered, sh)
	s.byReference[sh.Reference] = append(s.byReference[sh.Reference], sh)
	s.byOrder[sh.OrderID] = append(s.byOrder[sh.OrderID], sh)
}

// open reads the ledger at path and makes the file small again if most of it
// is history. restore gets the calls, live returns them.
func (s *store) open(path string, restore func(control.Call), live func() []control.Call) error {
	lines := 0
	j, err := journal.Open(path, func(raw []byte) error {
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("decoding: %w", err)
		}
		lines++
		for _, sh := range l.Shipments {
			s.put(sh)
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
	if alive := len(s.ordered) + len(calls); lines < 1000 || lines < alive*11/10 {
		return nil
	}
	snapshot := make([]any, 0, len(s.ordered)+len(calls))
	for _, sh := range s.ordered {
		snapshot = append(snapshot, line{Shipments: []*Shipment{sh}})
	}
	for i := range calls {
		snapshot = append(snapshot, line{Call: &calls[i]})
	}
	return j.Rewrite(snapshot)
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
