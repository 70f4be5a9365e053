package grpcapi

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/proto/openapi"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// termsLife is how long the order service's terms are taken as they were: they change when it is started anew.
const termsLife = time.Minute

// Terms tells what callers are promised: what this gateway is set to, and what the order service answers.
type Terms struct {
	// Own has the gateway's part; the order service's part of it is passed over.
	Own     openapi.Terms
	Service orderv1.AccessServiceClient

	mu    sync.Mutex
	known openapi.Terms
	until time.Time
}

// Get answers the terms. When the order service cannot be reached they are the last known ones; the error is UNAVAILABLE if there are none.
func (t *Terms) Get(ctx context.Context) (openapi.Terms, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.until) {
		return t.known, nil
	}
	// Those who come meanwhile wait for the lock, at most this long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	resp, err := t.Service.GetTerms(grpcx.Outgoing(ctx, grpcx.Entries{}), &orderv1.GetTermsRequest{})
	terms, defaults := t.Own, openapi.DefaultTerms()
	terms.KeyLifetime, terms.InProgressWait = defaults.KeyLifetime, defaults.InProgressWait
	switch {
	case err == nil:
		terms.KeyLifetime = time.Duration(resp.GetKeyLifetimeSeconds()) * time.Second
		terms.InProgressWait = time.Duration(resp.GetInProgressWaitMillis()) * time.Millisecond
	case status.Code(err) == codes.Unimplemented:
		// The release before, which had no other way to be told.
	case t.until.IsZero():
		return openapi.Terms{}, grpcx.Error(grpcx.Unavailable, "the order service cannot be asked now what it is set to", grpcx.WithRetryAfter(outageRetryAfter))
	default:
		// Asked again after a pause: an outage must not make every caller wait.
		t.until = now.Add(outageRetryAfter)
		return t.known, nil
	}
	t.known, t.until = terms, now.Add(termsLife)
	return terms, nil
}
