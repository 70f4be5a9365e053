package grpcapi

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/throughline/throughline/services/internal/grpcx"
)

// An order service that restarts, or one instance of several that died, is back or out of the list within a second. The
// pauses sum up to 0.75 s on average; an outage that lasts longer is the client's to wait out, with Retry-After.
const (
	maxAttempts = 4
	firstPause  = 100 * time.Millisecond
	pauseFactor = 2.2
	// outageRetryAfter is what a client is told when we do not know better.
	outageRetryAfter = time.Second
)

// retry calls until it gets something else than UNAVAILABLE, at most maxAttempts times. It must only be used for calls that read or
// carry a key. An order service that is there and says itself when to come back is not asked again.
func retry[T any](ctx context.Context, pause func(context.Context, time.Duration) error, call func() (T, error)) (T, error) {
	wait := firstPause
	for attempt := 1; ; attempt++ {
		resp, err := call()
		if err == nil || status.Code(err) != codes.Unavailable || attempt == maxAttempts {
			return resp, err
		}
		if _, told := grpcx.RetryDelay(err); told {
			return resp, err
		}
		// Half of it at random: callers that failed together do not come back together.
		if pause(ctx, wait/2+rand.N(wait/2)) != nil {
			return resp, err
		}
		wait = time.Duration(float64(wait) * pauseFactor)
	}
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

// translate answers what the public is told of an error of the order service. What has a reason that is about the caller
// passes as it is. Everything else is about us.
func translate(err error) error {
	switch reason := grpcx.ReasonOf(err); reason {
	case grpcx.Unavailable, grpcx.KeyInProgress, grpcx.RateLimited:
		if _, told := grpcx.RetryDelay(err); told {
			return err
		}
		return grpcx.Error(reason, status.Convert(err).Message(), grpcx.WithRetryAfter(outageRetryAfter))
	case grpcx.KeyMissing, grpcx.KeyRepeated, grpcx.KeyEmpty, grpcx.KeyMalformed, grpcx.KeyTooLong, grpcx.KeyNotPrintable,
		grpcx.KeyMismatch, grpcx.RequestMalformed, grpcx.RequestInvalid, grpcx.PayloadTooLarge, grpcx.Forbidden,
		grpcx.OrderNotFound, grpcx.CancelTooLate, grpcx.Deadline, grpcx.NotImplemented:
		return err
	case "":
		return translateCode(status.Code(err))
	default:
		// UNAUTHENTICATED among them: the order service knows no API keys, so it is our own credential that it refused,
		// and a client that is told to authenticate would throw away a good key.
		return grpcx.Error(grpcx.Internal, "internal error")
	}
}

// translateCode is for errors without a reason, which gRPC itself makes.
func translateCode(code codes.Code) error {
	switch code {
	case codes.Unavailable, codes.Canceled, codes.Aborted:
		return grpcx.Error(grpcx.Unavailable, "the order service cannot be reached; try again with the same key",
			grpcx.WithRetryAfter(outageRetryAfter))
	case codes.DeadlineExceeded:
		return grpcx.Error(grpcx.Deadline, "the order service did not answer in time; try again with the same key")
	default:
		return grpcx.Error(grpcx.Internal, "internal error")
	}
}
