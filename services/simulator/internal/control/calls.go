package control

import (
	"sync"

	"github.com/throughline/throughline/services/simulator/control"
)

// calls is the list of calls, oldest first, bounded: of more than 2·keep calls
// the oldest are dropped down to keep, so that dropping costs nothing per call.
type calls struct {
	keep int

	mu      sync.Mutex
	list    []*control.Call
	dropped int
}

func (c *calls) add(call *control.Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= 2*c.keep {
		c.dropped += len(c.list) - c.keep
		c.list = append(make([]*control.Call, 0, 2*c.keep), c.list[len(c.list)-c.keep:]...)
	}
	c.list = append(c.list, call)
}

// set changes a call under the lock that readers take, and returns it as it
// then is.
func (c *calls) set(call *control.Call, change func(*control.Call)) control.Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(call)
	return *call
}

// of returns copies of one order's calls, or with "" of all.
func (c *calls) of(orderID string) (list []control.Call, dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list = []control.Call{}
	for _, call := range c.list {
		if orderID == "" || call.OrderID == orderID {
			list = append(list, *call)
		}
	}
	return list, c.dropped
}

func (c *calls) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list, c.dropped = nil, 0
}
