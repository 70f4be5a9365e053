// Package session knows who has logged in, and slows down who guesses.
package session

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"sync"
	"time"
)

const (
	// idle is how long a session lasts without a request, life how long at most: a shift, and the time that a forgotten browser
	// stays open.
	idle = time.Hour
	life = 12 * time.Hour
	// most bounds the sessions; the one that was unused for longest makes room.
	most = 1000
)

// Session is somebody who has logged in.
type Session struct {
	// Operator is the name that was given at login; actions are on record under it.
	Operator string
	id       [sha256.Size]byte
	began    time.Time
	used     time.Time
}

// Store keeps the sessions of one process, in memory: a restart ends them all, and so does nothing else that an operator cannot see.
// Tokens are kept as their hashes.
type Store struct {
	credential [sha256.Size]byte
	now        func() time.Time

	mu       sync.Mutex
	sessions map[[sha256.Size]byte]*Session
}

// NewStore makes a Store that the credential opens. A nil now is the clock.
func NewStore(credential string, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{credential: sha256.Sum256([]byte(credential)), now: now, sessions: make(map[[sha256.Size]byte]*Session)}
}

// Check tells whether a credential is the right one, in a time that does not depend on it.
func (s *Store) Check(credential string) bool {
	got := sha256.Sum256([]byte(credential))
	return subtle.ConstantTimeCompare(got[:], s.credential[:]) == 1
}

// Begin begins a session, and gives the token that a browser keeps.
func (s *Store) Begin(operator string) (token string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	token = base64.RawURLEncoding.EncodeToString(b[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.sweepLocked(now)
	id := sha256.Sum256([]byte(token))
	s.sessions[id] = &Session{Operator: operator, id: id, began: now, used: now}
	return token
}

// Find gives the session of a token, and notes that it was used.
func (s *Store) Find(token string) (Session, bool) {
	id := sha256.Sum256([]byte(token))
	s.mu.Lock()
	defer s.mu.Unlock()
	found, now := s.sessions[id], s.now()
	if found == nil {
		return Session{}, false
	}
	if found.over(now) {
		delete(s.sessions, id)
		return Session{}, false
	}
	found.used = now
	return *found, true
}

// Lives tells whether a session is still there, without using it.
func (s *Store) Lives(session Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sessions[session.id]
	return found != nil && !found.over(s.now())
}

// End ends a session.
func (s *Store) End(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, sha256.Sum256([]byte(token)))
}

func (s *Session) over(now time.Time) bool {
	return now.Sub(s.used) > idle || now.Sub(s.began) > life
}

// sweepLocked takes away what is over, and makes room for one more.
func (s *Store) sweepLocked(now time.Time) {
	var oldest *Session
	for id, session := range s.sessions {
		if session.over(now) {
			delete(s.sessions, id)
			continue
		}
		if oldest == nil || session.used.Before(oldest.used) {
			oldest = session
		}
	}
	if len(s.sessions) >= most {
		delete(s.sessions, oldest.id)
	}
}
