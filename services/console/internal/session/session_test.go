package session_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/throughline/throughline/services/console/internal/session"
)

// clock is a clock that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func TestSessions(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := session.NewStore("the right one", c.now)
	for credential, want := range map[string]bool{"the right one": true, "the right on": false, "the right one ": false, "": false} {
		if got := s.Check(credential); got != want {
			t.Errorf("check of %q: got %t, want %t", credential, got, want)
		}
	}
	kim, alex := s.Begin("kim"), s.Begin("alex")
	if got, ok := s.Find(kim); !ok || got.Operator != "kim" || !s.Lives(got) {
		t.Errorf("kim's session: got %+v, %t, want it there", got, ok)
	}
	if _, ok := s.Find(kim + "x"); ok {
		t.Error("a token that nobody was given: got a session, want none")
	}
	found, _ := s.Find(alex)
	s.End(alex)
	if _, ok := s.Find(alex); ok || s.Lives(found) {
		t.Error("a session that was ended: got it, want none")
	}
	// A session that is used lives for twelve hours, one that is not for one.
	for range 11 {
		c.at = c.at.Add(59 * time.Minute)
		if _, ok := s.Find(kim); !ok {
			t.Fatalf("a session that is used: got none at %s, want it", c.at)
		}
	}
	found, _ = s.Find(kim)
	c.at = c.at.Add(time.Hour + time.Second)
	if s.Lives(found) {
		t.Error("a session that was unused for an hour lives, want it over")
	}
	if _, ok := s.Find(kim); ok {
		t.Error("a session that was unused for an hour: got it, want none")
	}
	kim = s.Begin("kim")
	for range 13 {
		c.at = c.at.Add(56 * time.Minute)
		_, _ = s.Find(kim)
	}
	if _, ok := s.Find(kim); ok {
		t.Error("a session after twelve hours: got it, want none")
	}
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := session.NewStore("x", c.now)
	first := s.Begin("first")
	second := s.Begin("second")
	c.at = c.at.Add(time.Second)
	_, _ = s.Find(first)
	for i := range 999 {
		s.Begin(fmt.Sprintf("somebody %d", i))
	}
	if _, ok := s.Find(second); ok {
		t.Error("the session that was unused for longest: got it, want it to make room")
	}
	if _, ok := s.Find(first); !ok {
		t.Error("a session that was used later: got none, want it")
	}
}

func TestTries(t *testing.T) {
	t.Parallel()
	c := newClock()
	tries := session.NewTries(c.now)
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	wait := func(addr netip.Addr) time.Duration {
		w, _ := tries.Try(addr)
		return w
	}
	for i := range 5 {
		if w, forget := tries.Try(one); w != 0 {
			t.Fatalf("try %d: got a wait of %s, want none", i, w)
		} else if i == 0 {
			forget() // a right one costs nothing
		}
	}
	if w := wait(one); w != 0 {
		t.Errorf("the fifth wrong try: got a wait of %s, want none", w)
	}
	if w := wait(one); w != 10*time.Second {
		t.Errorf("the sixth wrong try: got a wait of %s, want 10 s", w)
	}
	if w := wait(netip.MustParseAddr("::ffff:192.0.2.1")); w == 0 {
		t.Error("the same address written in IPv6: got no wait, want one")
	}
	if w := wait(other); w != 0 {
		t.Errorf("another address: got a wait of %s, want none", w)
	}
	c.at = c.at.Add(10 * time.Second)
	if w := wait(one); w != 0 {
		t.Errorf("ten seconds later: got a wait of %s, want none", w)
	}
	// One caller has 64 bits of addresses, and counts as one.
	for i := range 5 {
		wait(netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", i+1)))
	}
	if w := wait(netip.MustParseAddr("2001:db8::ffff")); w == 0 {
		t.Error("another address of the same network: got no wait, want one")
	}
	// Many at once are slowed down, too.
	var waits int
	for i := range 100 {
		if wait(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})) > 0 {
			waits++
		}
	}
	if waits < 50 {
		t.Errorf("of 100 addresses that try once: got %d that wait, want at least 50", waits)
	}
}
