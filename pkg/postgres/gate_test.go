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
		g := postgres.NewGate()
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
