package verify

import (
	"bytes"
	"slices"

	"github.com/google/uuid"
)

// entry is what a run keeps of one order: 56 bytes.
type entry struct {
	id                              uuid.UUID
	total, held, captured, refunded int64
	currency                        uint16 // in book.currencies
	status                          stage
	charges, live, lost             uint8
	flags                           uint8
}

// The flags of an entry.
const (
	overcaptured uint8 = 1 << iota
	overrefunded
	foreign
	ownDiffers // a service's own row contradicts the order or the outside
)

// stage is an order's status in one byte.
type stage uint8

const (
	moving stage = iota // on its way, or of a status that nobody planned for
	confirmed
	failed
	cancelled
	open // it needs a person
)

func stageOf(status string) stage {
	switch status {
	case Confirmed:
		return confirmed
	case Failed:
		return failed
	case Cancelled:
		return cancelled
	case NeedsAttention:
		return open
	default:
		return moving
	}
}

func (s stage) status() string {
	return [...]string{Pending, Confirmed, Failed, Cancelled, NeedsAttention}[s]
}

// atRest tells whether an order of that stage must have its effects.
func (s stage) atRest() bool { return s == confirmed || s == failed || s == cancelled }

// book is all orders of a run, and what was found of them outside. It is filled first, then sealed, then looked up.
type book struct {
	entries    []entry
	currencies []string
}

// add notes an order as it was read. The last reading counts.
func (b *book) add(id uuid.UUID, status, currency string, total int64) {
	b.entries = append(b.entries, entry{id: id, total: total, status: stageOf(status), currency: b.currency(currency)})
}

// currency gives the number of a currency. There are few.
func (b *book) currency(name string) uint16 {
	if i := slices.Index(b.currencies, name); i >= 0 {
		return uint16(i)
	}
	b.currencies = append(b.currencies, name)
	return uint16(len(b.currencies) - 1)
}

// seal sorts the book, and keeps of each order the last reading.
func (b *book) seal() {
	slices.SortStableFunc(b.entries, func(x, y entry) int { return bytes.Compare(x.id[:], y.id[:]) })
	kept := b.entries[:0]
	for i, e := range b.entries {
		if i+1 < len(b.entries) && b.entries[i+1].id == e.id {
			continue
		}
		kept = append(kept, e)
	}
	b.entries = kept
}

// find gives the entry of an order; nil if it was not read.
func (b *book) find(id uuid.UUID) *entry {
	i, ok := slices.BinarySearchFunc(b.entries, id, func(e entry, id uuid.UUID) int { return bytes.Compare(e.id[:], id[:]) })
	if !ok {
		return nil
	}
	return &b.entries[i]
}

// account is what the outside holds for an entry.
func (e *entry) account() Account {
	return Account{
		Charges: int(e.charges), Held: e.held, Captured: e.captured, Refunded: e.refunded, Live: int(e.live), Lost: int(e.lost),
		Overcaptured: e.flags&overcaptured != 0, Overrefunded: e.flags&overrefunded != 0, Foreign: e.flags&foreign != 0,
	}
}

// put stores an account in an entry. Counts end at 255, which is too many for any rule.
func (e *entry) put(a Account) {
	few := func(n int) uint8 { return uint8(min(n, 255)) } //nolint:gosec // bounded
	e.charges, e.live, e.lost = few(a.Charges), few(a.Live), few(a.Lost)
	e.held, e.captured, e.refunded = a.Held, a.Captured, a.Refunded
	e.mark(overcaptured, a.Overcaptured)
	e.mark(overrefunded, a.Overrefunded)
	e.mark(foreign, a.Foreign)
}

func (e *entry) mark(flag uint8, set bool) {
	if set {
		e.flags |= flag
	}
}
