package placeorder

import (
	"sync"

	"github.com/google/uuid"
)

// latelyHalf bounds half of what is remembered: at 24 bytes an order some hundred kB in all, and some minutes of a busy shop, which is when
// clients repeat themselves.
const latelyHalf = 8192

// lately remembers the orders that were placed, or asked for, here a short time ago. It is a hint that saves work, and no more: other
// instances place orders, too, and the primary key is the truth. Its zero value is empty. It is safe for concurrent use.
type lately struct {
	mu          sync.Mutex
	now, before map[uuid.UUID]struct{}
}

// add remembers the orders of a batch, and tells whether all of them are new to it.
func (l *lately) add(batch []*entry) (fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh = true
	for _, e := range batch {
		id := e.Row.OrderID
		_, now := l.now[id]
		_, before := l.before[id]
		fresh = fresh && !now && !before
		if now {
			continue
		}
		if l.now == nil || len(l.now) >= latelyHalf {
			l.before, l.now = l.now, make(map[uuid.UUID]struct{}, latelyHalf)
		}
		l.now[id] = struct{}{}
	}
	return fresh
}
