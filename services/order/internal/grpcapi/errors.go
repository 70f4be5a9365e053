package grpcapi

import (
	"context"
	"errors"
	"time"

	pg "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/placeorder"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// inProgressRetry is when a request whose key is at work may be repeated. A transaction takes milliseconds, but whoever waits for
// one has waited for the lock timeout already.
const inProgressRetry = time.Second

// errNotFound does not tell an order of another client from none.
var errNotFound = grpcx.Error(grpcx.OrderNotFound, "there is no such order")

func invalid(vs []order.Violation) error {
	all := make([]grpcx.Violation, len(vs))
	for i, v := range vs {
		all[i] = grpcx.Violation{Path: v.Path, Detail: v.Detail}
	}
	return grpcx.Error(grpcx.RequestInvalid, "the request is invalid", grpcx.WithViolations(all...))
}

// explain gives errors from beneath the reason that callers decide by. Others pass, and are shown as INTERNAL.
func explain(ctx context.Context, err error) error {
	switch {
	case err == nil, grpcx.ReasonOf(err) != "":
		return err
	case errors.Is(err, postgres.ErrNotFound):
		return errNotFound
	case errors.Is(err, saga.ErrUnknownDefinition):
		// An instance of another release may have it: the caller's next attempt may find one.
		return grpcx.Error(grpcx.Unavailable, "the order belongs to another release of the order service; try again with the same key")
	case errors.Is(err, placeorder.ErrInProgress), pg.Classify(err) == pg.LockTimeout:
		return grpcx.Error(grpcx.KeyInProgress, "a request with this idempotency key is being executed",
			grpcx.WithRetryAfter(inProgressRetry))
	case ctx.Err() != nil:
		return err // too late, or nobody listens
	case errors.Is(err, pg.ErrCommitUnknown), errors.Is(err, placeorder.ErrStopped), pg.Classify(err) == pg.Unavailable,
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return grpcx.Error(grpcx.Unavailable, "the order service cannot answer now; try again with the same key")
	default:
		return err
	}
}
