package messagingtest

import (
	"testing"

	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

// NewCluster starts n servers that form a cluster and stop at the end of the test. See [natsserver.URLs] for the address
// of all; [Stop] and [Restart] work on each of them.
func NewCluster(tb testing.TB, n int) []*natsserver.Server {
	tb.Helper()
	servers, err := natsserver.StartCluster(natsserver.Config{StoreDir: tb.TempDir()}, n)
	if err != nil {
		tb.Fatalf("messagingtest: %v", err)
	}
	for _, s := range servers {
		tb.Cleanup(s.Shutdown)
	}
	return servers
}
