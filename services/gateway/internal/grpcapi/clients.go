package grpcapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// ErrAPIKeys says that a list of API keys cannot be used.
var ErrAPIKeys = errors.New("API keys are not a list of client=key")

// Clients says whose an API key is. How long it takes must not depend on how much of a key is right.
type Clients interface {
	// Authenticate answers the client with this API key. Errors have a reason: UNAUTHENTICATED for a key that nobody has, or UNAVAILABLE.
	Authenticate(ctx context.Context, apiKey string) (Client, error)
}

// Client is who calls, and what for the API key may be used.
type Client struct {
	ID     string
	Scopes []apikey.Scope
}

// May tells whether the key may be used for a scope.
func (c Client) May(s apikey.Scope) bool { return slices.Contains(c.Scopes, s) }

var errUnknownKey = grpcx.Error(grpcx.Unauthenticated, "the API key is not known")

const (
	// minAPIKey keeps keys that can be guessed out: 16 characters of a random base64 text are 96 bits.
	minAPIKey = 16
	maxAPIKey = 255
)

// KeyList is a fixed set of API keys, of which it keeps the hashes only. They may be used for everything.
type KeyList struct {
	entries []keyEntry
}

type keyEntry struct {
	hash   [sha256.Size]byte
	client string
}

// ParseKeyList reads "client=key,client=key". A client may have several keys, so that one can be exchanged for another
// without a gap; a key belongs to one client. Errors name clients, never keys.
func ParseKeyList(list string) (*KeyList, error) {
	l := new(KeyList)
	owner := map[[sha256.Size]byte]string{}
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		client, key, ok := strings.Cut(item, "=")
		if !ok || !apikey.ValidClientID(client) {
			return nil, fmt.Errorf("%w: a client id has 1 to 64 of the characters a-z, 0-9, - and _", ErrAPIKeys)
		}
		if !isAPIKey(key) {
			return nil, fmt.Errorf("%w: the key of %s must have %d to %d printable ASCII characters without blanks",
				ErrAPIKeys, client, minAPIKey, maxAPIKey)
		}
		hash := apikey.Hash(key)
		if other, taken := owner[hash]; taken {
			return nil, fmt.Errorf("%w: %s and %s have the same key", ErrAPIKeys, other, client)
		}
		owner[hash] = client
		l.entries = append(l.entries, keyEntry{hash: hash, client: client})
	}
	return l, nil
}

// Len answers how many keys there are.
func (l *KeyList) Len() int { return len(l.entries) }

// Authenticate compares hashes, all of them and each in constant time, so that the time tells nothing of how much of a
// key was right or whose it is.
func (l *KeyList) Authenticate(_ context.Context, apiKey string) (Client, error) {
	hash := apikey.Hash(apiKey)
	found := -1
	for i := range l.entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], l.entries[i].hash[:]), i, found)
	}
	if found < 0 {
		return Client{}, errUnknownKey
	}
	return Client{ID: l.entries[found].client, Scopes: apikey.Scopes()}, nil
}

func isAPIKey(s string) bool {
	if len(s) < minAPIKey || len(s) > maxAPIKey {
		return false
	}
	for _, c := range []byte(s) {
		if c <= 0x20 || c > 0x7e {
			return false
		}
	}
	return true
}
