package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// A Server is a simulator as Run needs it.
type Server interface {
	Serve(context.Context, net.Listener) error
	Close() error
}

// Run listens on address, serves what open returns until ctx ends, and closes
// it. The port is taken first: a ledger is not opened for a server that cannot start.
func Run(ctx context.Context, address string, open func() (Server, error)) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	s, err := open()
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	return errors.Join(s.Serve(ctx, ln), s.Close())
}
