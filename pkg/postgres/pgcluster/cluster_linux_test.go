package pgcluster_test

import (
	"net"
	"testing"
	"time"
)

// Nothing of the server outlives the process that started it.
func TestNothingOutlivesAKilledParent(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	cmd, _ := helper(t, dir)
	address := net.JoinHostPort("127.0.0.1", portOf(t, dir))
	kill(t, cmd.Process)
	_ = cmd.Wait()
	deadline := time.Now().Add(20 * time.Second)
	for {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server still answers")
		}
	}
}
