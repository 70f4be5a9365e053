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
type Gate struct {
	inside chan struct{}
	server *Gate // nil if there is none
}

// NewGate makes a gate of one database, which lets one writer in at a time. server, if not nil, is the gate of the server that holds the
// database, and is entered after it.
func NewGate(server *Gate) *Gate { return &Gate{inside: make(chan struct{}, 1), server: server} }

// NewServerGate makes the gate of a server that has so many processor cores for all of its databases, and lets in as many writers at a time. It
// is for a process that writes to several databases of a server on its own machine: where more transactions run than there are cores, none
// ends sooner, and what is on its way between them waits for a core, too, when it could be in the next transaction.
func NewServerGate(cores int) *Gate { return &Gate{inside: make(chan struct{}, max(cores, 1))} }

// Enter returns when the caller may go in: at once when there is room, and else when somebody inside has left, when patience is over, or when ctx
// ends. The caller must call leave once, after its transaction.
func (g *Gate) Enter(ctx context.Context, patience time.Duration) (leave func()) {
	if g == nil {
		return func() {}
	}
	var over <-chan time.Time // when patience is; started when there is something to wait for
	enter := func(g *Gate) bool {
		select {
		case g.inside <- struct{}{}:
			return true
		default:
		}
		if over == nil {
			over = time.After(patience)
		}
		select {
		case g.inside <- struct{}{}:
			return true
		case <-over:
			over = closed // for a gate behind this one, too
		case <-ctx.Done():
		}
		return false
	}
	own := enter(g)
	server := g.server != nil && enter(g.server)
	return func() {
		if server {
			<-g.server.inside
		}
		if own {
			<-g.inside
		}
	}
}

// closed is a time that has come.
var closed = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()
