package postgres_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/throughline/throughline/pkg/postgres"
)

func TestGate(t *testing.T) {
	t.Parallel()
	const patience = 25 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		g := postgres.NewGate(nil)
		began := time.Now()
		waited := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s: let in after %v, want %v", what, got, want)
			}
			began = time.Now()
		}
		first := g.Enter(t.Context(), patience)
		waited("an open gate", 0)

		time.AfterFunc(5*time.Millisecond, first)
		second := g.Enter(t.Context(), patience)
		waited("behind somebody", 5*time.Millisecond)

		impatient := g.Enter(t.Context(), patience)
		waited("behind somebody who does not leave", patience)
		impatient() // must not let anybody in for the one inside

		over, cancel := context.WithCancel(t.Context())
		cancel()
		g.Enter(over, patience)()
		waited("with a context that is over", 0)
		g.Enter(t.Context(), patience)()
		waited("with one still inside", patience)
		second()
		g.Enter(t.Context(), patience)()
		waited("open again", 0)

		var none *postgres.Gate
		none.Enter(t.Context(), patience)()
		waited("no gate", 0)
	})
}

// TestServerGate has three databases on a server with two cores.
func TestServerGate(t *testing.T) {
	t.Parallel()
	const patience = 25 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		server := postgres.NewServerGate(2)
		a, b, c := postgres.NewGate(server), postgres.NewGate(server), postgres.NewGate(server)
		enter := func(what string, g *postgres.Gate, want time.Duration) (leave func()) {
			t.Helper()
			began := time.Now()
			leave = g.Enter(t.Context(), patience)
			if got := time.Since(began); got != want {
				t.Errorf("%s: let in after %v, want %v", what, got, want)
			}
			return leave
		}
		inA := enter("the first", a, 0)
		inB := enter("the second", b, 0)
		time.AfterFunc(5*time.Millisecond, inB)
		inC := enter("the third database", c, 5*time.Millisecond)

		inB = enter("behind two who do not leave", b, patience)
		enter("behind that one at its database, and two at the server", b, patience)() // patience is for both gates together
		inB()                                                                          // must let nobody in for the two inside
		enter("behind two, again", b, patience)()
		inA()
		enter("after one has left", a, 0)()
		inC()
		enter("after both have left", b, 0)()
	})
}
