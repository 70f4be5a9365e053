package messagingtest

import (
	"testing"

	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

// New starts a server that stops at the end of the test. A failure ends the test.
func New(tb testing.TB) *natsserver.Server {
	tb.Helper()
	return start(tb, natsserver.Config{StoreDir: tb.TempDir()})
}

// Stop stops the server now: clients lose their connections, streams stay on disk. See [Restart].
func Stop(tb testing.TB, s *natsserver.Server) {
	tb.Helper()
	s.Shutdown()
}

// Restart stops the server, if it runs, and returns a new one on the same port with the same streams, which stops at the
// end of the test.
func Restart(tb testing.TB, s *natsserver.Server) *natsserver.Server {
	tb.Helper()
	s.Shutdown()
	return start(tb, s.Config())
}

func start(tb testing.TB, cfg natsserver.Config) *natsserver.Server {
	tb.Helper()
	s, err := natsserver.Start(cfg)
	if err != nil {
		tb.Fatalf("messagingtest: %v", err)
	}
	tb.Cleanup(s.Shutdown)
	return s
}
