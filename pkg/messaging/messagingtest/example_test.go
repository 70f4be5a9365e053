package messagingtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/messaging/messagingtest"
)

func Example() {
	// In a file of tests this is func TestReconnect(t *testing.T), and go test calls it.
	testReconnect := func(t *testing.T) {
		server := messagingtest.New(t)
		back := make(chan struct{})
		nc, err := nats.Connect(server.URL(), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectHandler(func(*nats.Conn) { close(back) }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		messagingtest.Restart(t, server)
		<-back
		fmt.Println("connected again:", nc.IsConnected())
	}
	runTest(testReconnect)
	// Output: connected again: true
}

// runTest runs a test in an example.
func runTest(f func(t *testing.T)) {
	testing.RunTests(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "Test", F: f}})
}
