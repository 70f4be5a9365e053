package session

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// burst is how many wrong tries one address has at once; refill is when it has one more.
	burst  = 5
	refill = 10 * time.Second
	// allBurst and allRefill bound the tries of all addresses together, against many that guess at once. Sessions that are open go on.
	allBurst  = 50
	allRefill = time.Second
	// mostAddresses bounds what is remembered. Above it the addresses with nothing against them are forgotten.
	mostAddresses = 10000
)

// Tries bounds how often a wrong credential can be tried. A right one costs nothing.
type Tries struct {
	now func() time.Time

	mu        sync.Mutex
	all       *rate.Limiter
	addresses map[netip.Addr]*rate.Limiter
}

// NewTries makes Tries. A nil now is the clock.
func NewTries(now func() time.Time) *Tries {
	if now == nil {
		now = time.Now
	}
	return &Tries{now: now, all: rate.NewLimiter(rate.Every(allRefill), allBurst), addresses: make(map[netip.Addr]*rate.Limiter)}
}

// Try counts a try before it is made, so that many at once cannot slip through. It tells how long an address must wait before it may try;
// 0 lets it try now. forget takes the try back: it was a right one. Addresses of IPv6 are taken together by their first 64 bits, which
// one caller has to himself.
func (t *Tries) Try(addr netip.Addr) (wait time.Duration, forget func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, at := t.now(), group(addr)
	l := t.addresses[at]
	if l == nil {
		if len(t.addresses) >= mostAddresses {
			t.forgetLocked(now)
		}
		l = rate.NewLimiter(rate.Every(refill), burst)
		t.addresses[at] = l
	}
	if l.TokensAt(now) < 1 {
		return refill, func() {}
	}
	if t.all.TokensAt(now) < 1 {
		return allRefill, func() {}
	}
	own, all := l.ReserveN(now, 1), t.all.ReserveN(now, 1)
	return 0, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		own.CancelAt(now)
		all.CancelAt(now)
	}
}

func (t *Tries) forgetLocked(now time.Time) {
	for at, l := range t.addresses {
		if l.TokensAt(now) >= burst {
			delete(t.addresses, at)
		}
	}
	if len(t.addresses) >= mostAddresses {
		clear(t.addresses) // the bound over all addresses still holds
	}
}

func group(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if p, err := addr.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return addr
}
