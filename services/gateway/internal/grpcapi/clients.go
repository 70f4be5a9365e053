package grpcapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
)

// ErrAPIKeys says that a list of API keys cannot be used.
var ErrAPIKeys = errors.New("API keys are not a list of client=key")

// Clients says whose an API key is. It must take the same time for every key that it does not know.
type Clients interface {
	// Authenticate answers the id of the client with this API key, and false for a key that nobody has.
	Authenticate(apiKey string) (clientID string, ok bool)
}

const (
	maxClientID = 64
	// minAPIKey keeps keys that can be guessed out: 16 characters of a random base64 text are 96 bits.
	minAPIKey = 16
	maxAPIKey = 255
)

// KeyList is a fixed set of API keys, of which it keeps the hashes only.
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
		if !ok || !isClientID(client) {
			return nil, fmt.Errorf("%w: a client id has 1 to %d of the characters a-z, 0-9, - and _", ErrAPIKeys, maxClientID)
		}
		if !isAPIKey(key) {
			return nil, fmt.Errorf("%w: the key of %s must have %d to %d printable ASCII characters without blanks",
				ErrAPIKeys, client, minAPIKey, maxAPIKey)
		}
		hash := sha256.Sum256([]byte(key))
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
func (l *KeyList) Authenticate(apiKey string) (string, bool) {
	hash := sha256.Sum256([]byte(apiKey))
	found := -1
	for i := range l.entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], l.entries[i].hash[:]), i, found)
	}
	if found < 0 {
		return "", false
	}
	return l.entries[found].client, true
}

func isClientID(s string) bool {
	if s == "" || len(s) > maxClientID {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-_", r)
	}) < 0
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
