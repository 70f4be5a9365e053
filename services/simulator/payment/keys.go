package payment

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"time"

	sim "github.com/throughline/throughline/services/simulator/internal/control"
)

// maxKey is the provider's bound on the length of a key.
const maxKey = 255

// keyRecord is an idempotency key: in use, or with the answer it is bound to.
type keyRecord struct {
	Key         string    `json:"key"`
	Endpoint    string    `json:"endpoint"` // its path; keys are for POST only
	Params      string    `json:"params"`   // fingerprint
	CreatedAt   time.Time `json:"created_at"`
	Status      int       `json:"status"`
	ContentType string    `json:"content_type,omitempty"`
	// Bytes, not JSON: a replay is the first answer byte for byte, whatever a
	// fault rule made it.
	Body []byte `json:"body"`

	inUse bool
}

// fingerprint is equal for equal parameters, in whatever order they came.
func fingerprint(v url.Values) string {
	sum := sha256.Sum256([]byte(v.Encode())) // Encode sorts
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// claim takes the key for one request. An answer means that the request ends
// with it. Otherwise the returned record is in use until settle or abandon.
func (s *store) claim(key, endpoint string, params url.Values, now time.Time, lifetime time.Duration) (*keyRecord, *sim.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepKeys(now, lifetime)
	print := fingerprint(params)
	old := s.keys[key]
	if old == nil || !old.inUse && now.Sub(old.CreatedAt) >= lifetime {
		rec := &keyRecord{Key: key, Endpoint: endpoint, Params: print, CreatedAt: now, inUse: true}
		s.keys[key] = rec
		return rec, nil
	}
	switch {
	case old.Endpoint != endpoint:
		return nil, refusal(idempotencyError(http.StatusBadRequest, "", fmt.Sprintf(
			"Keys for idempotent requests can only be used for the same endpoint they were first used for ('%s' vs '%s'). "+
				"Try using a key other than '%s' if you meant to execute a different request.", endpoint, old.Endpoint, key)))
	case old.Params != print:
		return nil, refusal(idempotencyError(http.StatusBadRequest, "", fmt.Sprintf(
			"Keys for idempotent requests can only be used with the same parameters they were first used with. "+
				"Try using a key other than '%s' if you meant to execute a different request.", key)))
	case old.inUse:
		return nil, refusal(idempotencyError(http.StatusConflict, "idempotency_key_in_use", fmt.Sprintf(
			"There is currently another in-progress request using this Idempotency-Key (%s). Please try again later.", key)))
	}
	return nil, &sim.Answer{Status: old.Status, Body: old.Body, ContentType: old.ContentType, Replayed: true}
}

func refusal(e *apiError) *sim.Answer { return &sim.Answer{Status: e.status, Body: e.body()} }

// settle binds the key to its answer; s.mu is held. It reports false if a
// reset has forgotten the key meanwhile.
func (s *store) settle(rec *keyRecord, a sim.Answer) bool {
	if s.keys[rec.Key] != rec {
		return false
	}
	rec.Status, rec.Body, rec.ContentType, rec.inUse = a.Status, a.Body, a.ContentType, false
	return true
}

// abandon gives a key up that came to nothing.
func (s *store) abandon(rec *keyRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[rec.Key] == rec {
		delete(s.keys, rec.Key)
	}
}

// sweepKeys forgets expired keys now and then, so that a long run does not
// keep the answers of all its days; s.mu is held.
func (s *store) sweepKeys(now time.Time, lifetime time.Duration) {
	if now.Before(s.nextKeySweep) {
		return
	}
	s.nextKeySweep = now.Add(lifetime / 24)
	for key, rec := range s.keys {
		if !rec.inUse && now.Sub(rec.CreatedAt) >= lifetime {
			delete(s.keys, key)
		}
	}
}
