package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// GetTerms answers as an order service of the release before, unless the test has set something.
func (o *orders) GetTerms(ctx context.Context, _ *orderv1.GetTermsRequest) (*orderv1.GetTermsResponse, error) {
	o.mu.Lock()
	before, terms := o.before, o.terms
	o.mu.Unlock()
	if before != nil {
		if err := before(ctx, "GetTerms"); err != nil {
			return nil, err
		}
	}
	if terms == nil {
		return o.UnimplementedAccessServiceServer.GetTerms(ctx, nil)
	}
	return terms, nil
}

// The served documents say what this system is set to, not what systems are set to by default.
func TestDocumentsHaveTheTermsInForce(t *testing.T) {
	t.Parallel()
	e := start(t, func(c *config.Config) { c.ClientRate, c.ClientBurst, c.CallTimeout = 50, 70, 4*time.Second })
	e.mu.Lock()
	e.terms = &orderv1.GetTermsResponse{KeyLifetimeSeconds: 3 * 3600, InProgressWaitMillis: 1500}
	e.mu.Unlock()
	unreachable := func(_ context.Context, method string) error {
		if method == "GetTerms" {
			return status.Error(codes.Unavailable, "away")
		}
		return nil
	}
	e.answerWith(unreachable)
	for _, path := range []string{"/openapi.yaml", "/docs"} {
		a := e.do("GET", path, "")
		e.refused(a, grpcx.Unavailable)
		if a.header.Get("Retry-After") == "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s without an order service: got %v, want a problem and when to come back", path, a.header)
		}
	}
	e.answerWith(nil)
	check := func() {
		t.Helper()
		for _, path := range []string{"/openapi.yaml", "/docs"} {
			a := e.do("GET", path, "", "Authorization", "")
			for _, want := range []string{
				"Stored answers are kept for 3 hours.", "at most about 1500 ms,", "50 calls a second of one gateway in the long run and 70 at once", "within about 4 seconds,",
			} {
				if a.status != 200 || strings.Count(a.body, want) != 1 {
					t.Errorf("%s: got %d and %q %d times, want once", path, a.status, want, strings.Count(a.body, want))
				}
			}
		}
	}
	check()
	e.answerWith(unreachable)
	check() // they are remembered
}
