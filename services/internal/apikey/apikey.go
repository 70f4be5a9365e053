// Package apikey is the form of API keys, and what is kept of them.
//
//	tl_k3v9x2m8qd4f_R0lGODlhAQABAIAAAAUEBAAAACwAAAAAAQABAAA…
//
// The first two parts are the key's prefix: it is not secret, tells people which key they have before them, and finds the key. The last part
// is 256 random bits. Because of these a plain SHA-256 of the whole key is all that is kept: nobody can try them all, so that nothing
// slower is needed, and there is nothing to salt.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"slices"
	"strings"
)

const (
	intro = "tl_"
	// prefixChars are 60 bits: no two keys of one installation share a prefix.
	prefixChars = 12
	secretBytes = 32
	// maxClientID keeps client ids short enough for every place that shows them.
	maxClientID = 64
)

// Key is a new key and what is kept of it.
type Key struct {
	// Text is the key itself. It is shown once and kept nowhere.
	Text   string
	Prefix string
	Hash   [sha256.Size]byte
}

// Mint makes a key.
func Mint() Key {
	var b [8 + secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	name := strings.ToLower(base32.StdEncoding.EncodeToString(b[:8]))[:prefixChars]
	k := Key{Prefix: intro + name}
	k.Text = k.Prefix + "_" + base64.RawURLEncoding.EncodeToString(b[8:])
	k.Hash = Hash(k.Text)
	return k
}

// Hash is what is kept of a key.
func Hash(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

// Prefix finds the prefix of a key; false if the text is no key of this form.
func Prefix(key string) (string, bool) {
	const n = len(intro) + prefixChars
	if len(key) != n+1+base64.RawURLEncoding.EncodedLen(secretBytes) || key[n] != '_' || !ValidPrefix(key[:n]) {
		return "", false
	}
	return key[:n], true
}

// ValidPrefix tells whether a text is the prefix of a key.
func ValidPrefix(prefix string) bool {
	name, ok := strings.CutPrefix(prefix, intro)
	return ok && len(name) == prefixChars && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// ValidClientID tells whether a text can name a client: 1 to 64 of the characters a-z, 0-9, - and _.
func ValidClientID(s string) bool {
	return s != "" && len(s) <= maxClientID && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// Scope is what a key may be used for.
type Scope string

// The scopes. Neither includes the other.
const (
	OrdersRead  Scope = "orders:read"
	OrdersWrite Scope = "orders:write"
)

// Scopes lists all scopes.
func Scopes() []Scope { return []Scope{OrdersRead, OrdersWrite} }

// Valid tells whether there is such a scope.
func (s Scope) Valid() bool { return slices.Contains(Scopes(), s) }
