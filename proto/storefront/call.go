package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Pauses between attempts double from the first to the most; each is random between half of it and all of it, so that
// clients that failed together do not come back together.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	// maxRetryAfter bounds what a server can ask for; a longer wish is most likely a mistake on the way.
	maxRetryAfter = time.Minute
	// maxAnswer bounds an answer: a page of 100 orders of 64 KiB, which is far above a usual one.
	maxAnswer = 8 << 20
)

// request is one call, of which every attempt sends the same.
type request struct {
	method, path, key string
	body              []byte
	wait              time.Duration // how long the service may wait before it answers, in whole seconds
}

// answer is what a success is read into. One that is JSON but not what was asked for, as from something else on the way,
// says so.
type answer interface{ complete() bool }

func (o *Order) complete() bool { return o.ID != "" && o.Status != "" }
func (p *Page) complete() bool  { return p.Orders != nil }
func (k *Key) complete() bool   { return k.Key != "" && k.State != "" }

// call attempts a request until the answer is definite or ctx ends.
func (c *Client) call(ctx context.Context, r request, into answer) (*success, error) {
	wait := firstPause
	for {
		got, err := c.attemptOnce(ctx, r, into)
		if err == nil {
			return got, nil
		}
		refused := asError(err)
		if refused != nil && !refused.passing() {
			return nil, refused
		}
		d := wait/2 + rand.N(wait/2)
		if refused != nil {
			d = max(d, min(refused.RetryAfter, maxRetryAfter))
		}
		if ctxErr := c.pause(ctx, d); ctxErr != nil {
			return nil, fmt.Errorf("%w: %w; the last attempt: %w", ErrUnresolved, ctxErr, err)
		}
		wait = min(maxPause, 2*wait)
	}
}

// success is what a success says beside its body.
type success struct{ header http.Header }

// attemptOnce sends the request once. An error that is not an *Error means that nothing is known.
func (c *Client) attemptOnce(ctx context.Context, r request, into answer) (*success, error) {
	ctx, cancel := context.WithTimeout(ctx, c.attempt+r.wait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.apiKey)
	req.Header.Set("Accept", "application/json, application/problem+json")
	if r.key != "" {
		req.Header.Set("Idempotency-Key", quoted(r.key))
		req.Header.Set("Content-Type", "application/json")
		// Without it net/http cannot send the body a second time, so it does not try: see the package comment.
		req.GetBody = nil
	}
	if r.wait > 0 {
		req.Header.Set("Prefer", "wait="+strconv.Itoa(int(r.wait/time.Second)))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("sending the request: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, errorOf(resp, data)
	}
	// Members that a newer service has added are passed over.
	if err := json.Unmarshal(data, into); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if !into.complete() {
		return nil, errNotOurs
	}
	return &success{header: resp.Header}, nil
}

func errorOf(resp *http.Response, data []byte) *Error {
	e := new(Error)
	if json.Unmarshal(data, e) != nil || e.Title == "" {
		// Not the service's own: a proxy's page, say.
		*e = Error{Detail: http.StatusText(resp.StatusCode)}
	}
	e.StatusCode = resp.StatusCode
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(min(s, int(maxRetryAfter/time.Second))) * time.Second
	}
	return e
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
