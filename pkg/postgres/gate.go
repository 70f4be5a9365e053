package postgres

import (
	"context"
	"time"
)

// Gate lets the writers of one process into its database one after another. Each takes what is there when it is let in, so that what
// arrives while another one commits shares the next commit: fewer and fuller transactions under load, and not a moment's wait
// when the database is free. It saves work and orders nothing: who has waited as long as it wants goes in all the same, so that a
// transaction that is held up, by a lock say, holds up nobody for long.
//
// A nil Gate is always open. It is safe for concurrent use.
type Gate struct{ inside chan struct{} }

// NewGate makes a gate that is open.
func NewGate() *Gate { return &Gate{inside: make(chan struct{}, 1)} }

// Enter returns when the caller may go in: at once when nobody is inside, and else when the one inside has left, when patience is over, or when ctx
// ends. The caller must call leave once, after its transaction.
func (g *Gate) Enter(ctx context.Context, patience time.Duration) (leave func()) {
	if g == nil {
		return func() {}
	}
	select {
	case g.inside <- struct{}{}:
		return g.leave
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case g.inside <- struct{}{}:
		return g.leave
	case <-timer.C:
	case <-ctx.Done():
	}
	return func() {}
}

func (g *Gate) leave() { <-g.inside }
