package grpcapi

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	// DefaultRate and DefaultBurst are how often one client may call, of one gateway: in the long run a second, and at once. They are above what
	// one machine can place, so that they keep a client that has run wild from the others and are met by nobody else.
	DefaultRate  = 2000
	DefaultBurst = 4000
	// maxLimited bounds the clients that are counted. Beyond it those who have not called for long enough to have their burst again are
	// forgotten, which changes nothing for them.
	maxLimited = 10_000
)

// limits counts the calls of each client.
type limits struct {
	rate  rate.Limit
	burst int
	now   func() time.Time

	mu      sync.Mutex
	clients map[string]*rate.Limiter
}

func newLimits(perSecond float64, burst int) *limits {
	return &limits{rate: rate.Limit(perSecond), burst: burst, now: time.Now, clients: make(map[string]*rate.Limiter)}
}

// allow takes one call of a client's, or fails with RATE_LIMITED and says when there is room for the next.
func (l *limits) allow(client string) error {
	if l.rate <= 0 {
		return nil
	}
	now := l.now()
	r := l.of(client, now).ReserveN(now, 1)
	after := r.DelayFrom(now)
	if after == 0 {
		return nil
	}
	r.CancelAt(now)
	return grpcx.Error(grpcx.RateLimited, "the client calls too often", grpcx.WithRetryAfter(after))
}

func (l *limits) of(client string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.clients[client]
	if limiter == nil {
		if len(l.clients) >= maxLimited {
			l.forgetLocked(now)
		}
		limiter = rate.NewLimiter(l.rate, l.burst)
		l.clients[client] = limiter
	}
	return limiter
}

func (l *limits) forgetLocked(now time.Time) {
	for client, limiter := range l.clients {
		if math.Round(limiter.TokensAt(now)) >= float64(l.burst) {
			delete(l.clients, client)
		}
	}
}
