package provider

import (
	"io"
	"net/http"
	"time"
)

const (
	// maxIdle is how many connections wait for their next call: as many as calls run at one time.
	maxIdle = 64
	// idleTimeout ends before that of common load balancers, 60 s, so that a call rarely meets a connection that is being closed.
	idleTimeout = 30 * time.Second
)

// newTransport makes connections to the provider that are kept alive.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.IdleConnTimeout = maxIdle, maxIdle, idleTimeout
	return t
}

// once keeps net/http from sending a write again by itself. The transport does so when a kept-alive connection dies before the
// first byte of the answer, if the request has an Idempotency-Key and its body can be had again. What to do then is for the step
// to decide, which looks first at what happened.
type once struct{ base http.RoundTripper }

func (o once) RoundTrip(req *http.Request) (*http.Response, error) {
	one := new(http.Request)
	*one = *req // a round tripper may not change the request
	one.Header = req.Header.Clone()
	// What the SDK tells about this machine is nobody's business.
	one.Header.Del("X-Stripe-Client-User-Agent")
	if req.Method != http.MethodGet {
		one.GetBody = nil
		if req.Body == nil || req.Body == http.NoBody {
			// Without a body the transport would take the request for one that can be repeated.
			one.Body = empty{}
		}
	}
	return o.base.RoundTrip(one)
}

// empty is a body of no bytes that is not http.NoBody.
type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }
func (empty) Close() error             { return nil }
