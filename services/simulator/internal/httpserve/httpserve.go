// Package httpserve runs a simulator's HTTP server until a context ends.
package httpserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// grace is how long calls in hand may take once the server is to stop. Delays
// and holds end at once, so what is left are microseconds of work and writing
// to slow readers.
const grace = 3 * time.Second

// Serve serves h on ln, which it closes, until ctx ends. It then calls stop,
// which has to make waiting handlers return, and lets calls in hand finish.
// It returns nil after a stop that was asked for.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, stop func(), log *slog.Logger) error {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       90 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		stop()
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stopping: %w", err)
	}
	return nil
}
