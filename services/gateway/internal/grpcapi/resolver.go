package grpcapi

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	// knownLife is how long a key that was found is let in without asking again: what a revoked key may go on at most.
	knownLife = 10 * time.Second
	// unknownLife is how long a key that nobody has is refused without asking: what a new key may have to wait after it was tried too soon.
	unknownLife = 2 * time.Second
	// maxCached bounds the keys that are remembered: under 2 MB.
	maxCached = 10_000
	// maxAsking bounds the questions at one time, so that those who try keys cannot occupy the connection to the order service.
	maxAsking = 32
	// askTimeout bounds one question, which is one look at an index.
	askTimeout = 2 * time.Second
)

// Directory finds clients by their API keys: first in a fixed list, then at the order service, which owns the clients.
type Directory struct {
	fixed   *KeyList
	service orderv1.AccessServiceClient
	now     func() time.Time

	flights singleflight.Group
	asking  chan struct{}

	mu     sync.Mutex
	cached map[[sha256.Size]byte]cachedClient
}

var _ Clients = (*Directory)(nil)

type cachedClient struct {
	client Client
	known  bool
	until  time.Time
}

// NewDirectory makes a Directory. A nil service leaves the fixed list alone.
func NewDirectory(fixed *KeyList, service orderv1.AccessServiceClient) *Directory {
	return &Directory{
		fixed: fixed, service: service, now: time.Now,
		asking: make(chan struct{}, maxAsking), cached: make(map[[sha256.Size]byte]cachedClient),
	}
}

// Authenticate answers whose a key is. Errors: UNAUTHENTICATED; UNAVAILABLE when nobody can say now.
func (d *Directory) Authenticate(ctx context.Context, apiKey string) (Client, error) {
	if c, err := d.fixed.Authenticate(ctx, apiKey); err == nil {
		return c, nil
	}
	prefix, ok := apikey.Prefix(apiKey)
	if !ok || d.service == nil {
		return Client{}, errUnknownKey
	}
	hash := apikey.Hash(apiKey)
	if found, ok := d.remembered(hash); ok {
		return found.answer()
	}
	// One question for all who come with the key at once. It outlives each of them, and is bounded by itself.
	result, err, _ := d.flights.Do(string(hash[:]), func() (any, error) {
		return d.ask(context.WithoutCancel(ctx), prefix, hash)
	})
	if err != nil {
		return Client{}, err
	}
	return result.(cachedClient).answer()
}

func (c cachedClient) answer() (Client, error) {
	if !c.known {
		return Client{}, errUnknownKey
	}
	return c.client, nil
}

func (d *Directory) ask(ctx context.Context, prefix string, hash [sha256.Size]byte) (cachedClient, error) {
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	default:
		return cachedClient{}, grpcx.Error(grpcx.Unavailable, "too many API keys are looked for at this moment",
			grpcx.WithRetryAfter(outageRetryAfter))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := retry(grpcx.Outgoing(ctx, grpcx.Entries{}), pause, func() (*orderv1.ResolveKeyResponse, error) {
		return d.service.ResolveKey(grpcx.Outgoing(ctx, grpcx.Entries{}), &orderv1.ResolveKeyRequest{Prefix: prefix, Sha256: hash[:]})
	})
	if err != nil {
		return cachedClient{}, grpcx.Error(grpcx.Unavailable, "it cannot be told now whose the API key is; try again with the same key",
			grpcx.WithRetryAfter(outageRetryAfter))
	}
	found := cachedClient{known: resp.GetClientId() != "", until: d.now().Add(unknownLife)}
	if found.known {
		found.client, found.until = Client{ID: resp.GetClientId(), Scopes: scopesOf(resp.GetScopes())}, d.now().Add(knownLife)
	}
	d.remember(hash, found)
	return found, nil
}

func scopesOf(all []orderv1.Scope) []apikey.Scope {
	var scopes []apikey.Scope
	for _, s := range all {
		switch s {
		case orderv1.Scope_SCOPE_ORDERS_READ:
			scopes = append(scopes, apikey.OrdersRead)
		case orderv1.Scope_SCOPE_ORDERS_WRITE:
			scopes = append(scopes, apikey.OrdersWrite)
		case orderv1.Scope_SCOPE_UNSPECIFIED:
		}
	}
	return scopes
}

func (d *Directory) remembered(hash [sha256.Size]byte) (cachedClient, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.cached[hash]
	if !ok || !d.now().Before(c.until) {
		return cachedClient{}, false
	}
	return c, true
}

func (d *Directory) remember(hash [sha256.Size]byte, c cachedClient) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.cached[hash]; !there && len(d.cached) >= maxCached {
		d.makeRoomLocked()
	}
	d.cached[hash] = c
}

// makeRoomLocked forgets what is over, else what nobody has, else anything: a key that is forgotten is asked for again.
func (d *Directory) makeRoomLocked() {
	now := d.now()
	for hash, c := range d.cached {
		if !now.Before(c.until) {
			delete(d.cached, hash)
		}
	}
	for _, known := range []bool{false, true} {
		for hash, c := range d.cached {
			if len(d.cached) < maxCached {
				return
			}
			if c.known == known {
				delete(d.cached, hash)
			}
		}
	}
}
