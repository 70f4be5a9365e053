package system

import (
	"fmt"
	"net"
	"sync"
	"testing"
)

// Ports are handed out one after another, each only once in a process, so that systems that start side by side never meet. They
// lie below the range from which ports for outgoing connections are taken, and below those that the program itself looks for.
//
// Several test binaries run side by side, too. So a process takes whole blocks: who listens on the first port of one has the others for
// itself, until it ends.
const (
	firstPort = 10000
	lastPort  = 19999
	blockSize = 100
)

// block is what this process has taken.
var block struct {
	sync.Mutex
	next, end int
	guards    []net.Listener // never closed: the end of the process does that
}

// listenInARow listens on n ports in a row, or on as many of them as are free.
func listenInARow(tb testing.TB, n int) []net.Listener {
	tb.Helper()
	at := portsInARow(tb, n)
	var row []net.Listener
	for i := range n {
		l, err := listen(at + i)
		if err != nil {
			break
		}
		row = append(row, l)
	}
	return row
}

// portsInARow gives the first of n ports that only this process uses.
func portsInARow(tb testing.TB, n int) int {
	tb.Helper()
	block.Lock()
	defer block.Unlock()
	if block.next+n > block.end {
		takeBlock(tb)
	}
	at := block.next
	block.next += n
	return at
}

func takeBlock(tb testing.TB) {
	tb.Helper()
	for at := firstPort; at+blockSize <= lastPort+1; at += blockSize {
		if guard, err := listen(at); err == nil {
			block.guards = append(block.guards, guard)
			block.next, block.end = at+1, at+blockSize
			return
		}
	}
	tb.Fatalf("all ports from %d to %d are taken", firstPort, lastPort)
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // returns at once
}
