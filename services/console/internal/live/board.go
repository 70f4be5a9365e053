// Package live knows what happens now: the newest orders, how many come and end, and how deep outboxes and consumers are.
//
// Events of the order service say which orders are the newest and count what happens; they are hints. What is shown of an order is asked
// of the order service, so that a lost or late event costs freshness and never truth. The depths are asked, every two seconds.
package live

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/throughline/throughline/pkg/messaging"
)

const (
	// shown is how many orders the list has.
	shown = 50
	// bucket is how long events are counted together, and buckets how many are kept: ten minutes.
	bucket  = 10 * time.Second
	buckets = 60
)

// Fact is what an event of the order service says.
type Fact string

// The facts that are counted. Others are noted as something that has changed.
const (
	Created        Fact = "created"
	Compensating   Fact = "compensating"
	Confirmed      Fact = "confirmed"
	Failed         Fact = "failed"
	Cancelled      Fact = "cancelled"
	NeedsAttention Fact = "needs_attention"
)

// factOf reads the fact out of a subject such as evt.order.created.
func factOf(subject string) Fact {
	return Fact(subject[strings.LastIndexByte(subject, '.')+1:])
}

// Board is what the events have told. Feed writes it, everybody reads it.
type Board struct {
	now func() time.Time

	mu     sync.Mutex
	orders []string // the newest last
	at     map[Fact]*counts
	turned chan struct{} // closed and replaced when an event has come
	away   error         // why no events come; nil if they do
}

// counts are the events of one kind, by time.
type counts struct {
	n [buckets]int
	// last is the number of the newest bucket, counted from the beginning of the epoch.
	last int64
}

// NewBoard makes a Board that nothing is on. A nil now is the clock.
func NewBoard(now func() time.Time) *Board {
	if now == nil {
		now = time.Now
	}
	return &Board{now: now, at: make(map[Fact]*counts), turned: make(chan struct{}), away: errNoEvents}
}

// Note takes an event in.
func (b *Board) Note(fact Fact, orderID string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if fact == Created && !slices.Contains(b.orders, orderID) { // an event may come again
		b.orders = append(b.orders, orderID)
		if len(b.orders) > 2*shown {
			b.orders = append(b.orders[:0], b.orders[len(b.orders)-shown:]...)
		}
	}
	c := b.at[fact]
	if c == nil {
		c = &counts{}
		b.at[fact] = c
	}
	c.add(at)
	close(b.turned)
	b.turned = make(chan struct{})
}

// forget empties the board, because what it was told is told again.
func (b *Board) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orders, b.at = nil, make(map[Fact]*counts)
}

func (b *Board) setAway(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if (b.away == nil) != (err == nil) {
		close(b.turned)
		b.turned = make(chan struct{})
	}
	b.away = err
}

// Away tells why no events come; nil if they do.
func (b *Board) Away() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.away
}

// Newest gives the ids of the newest orders, the newest first.
func (b *Board) Newest() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]string, 0, shown)
	for i := len(b.orders) - 1; i >= 0 && len(ids) < shown; i-- {
		ids = append(ids, b.orders[i])
	}
	return ids
}

// Turned gives a channel that is closed at the next event.
func (b *Board) Turned() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turned
}

// Rate gives how many of some facts there were in the last minute, which is 50 to 60 s up to now; and in each ten seconds of the last ten
// minutes, the oldest first, without those that are not over.
func (b *Board) Rate(facts ...Fact) (perMinute int, series []float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	series = make([]float64, buckets-1)
	end := number(b.now()) - 1
	for _, fact := range facts {
		c := b.at[fact]
		if c == nil {
			continue
		}
		for i := range series {
			series[len(series)-1-i] += float64(c.get(end - int64(i)))
		}
		for i := range int64(time.Minute / bucket) {
			perMinute += c.get(end + 1 - i)
		}
	}
	return perMinute, series
}

func number(at time.Time) int64 { return at.UnixNano() / int64(bucket) }

func (c *counts) add(at time.Time) {
	n := number(at)
	if n <= c.last-buckets {
		return
	}
	for ; c.last < n; c.last++ {
		if n-c.last > buckets {
			c.last = n - buckets
		}
		c.n[(c.last+1)%buckets] = 0
	}
	c.n[n%buckets]++
}

func (c *counts) get(n int64) int {
	if n > c.last || n <= c.last-buckets {
		return 0
	}
	return c.n[n%buckets]
}

// orderOf reads which order an event is about.
func orderOf(headers map[string][]string) string {
	if values := headers[messaging.HeaderOrderID]; len(values) > 0 {
		return values[0]
	}
	return ""
}
