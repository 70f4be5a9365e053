package grpcx

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/throughline/throughline/pkg/telemetry"
)

func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := g.check(info.FullMethod, Incoming(ctx, MetadataAuthorization)); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (g *guard) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := g.check(info.FullMethod, Incoming(ss.Context(), MetadataAuthorization)); err != nil {
		return err
	}
	return next(srv, ss)
}

// healthService is not ours: its errors have codes and no reasons, and its clients know them.
const healthService = "/grpc.health.v1.Health/"

// answerErrors lets errors with a reason pass and hides the text of all others, which it logs: they are ours, and may
// quote statements, addresses or values. A panic is such an error.
func answerErrors(logger *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if p := recover(); p != nil {
				logger.ErrorContext(ctx, "handling a call panicked", telemetry.LogMethod, info.FullMethod,
					telemetry.LogError, fmt.Sprint(p), "stack", string(debug.Stack()))
				resp, err = nil, Error(Internal, "internal error")
			}
		}()
		resp, err = next(ctx, req)
		if err == nil || planned(err) || strings.HasPrefix(info.FullMethod, healthService) {
			return resp, err
		}
		told := unplanned(ctx, err)
		if ReasonOf(told) == Internal {
			logger.ErrorContext(ctx, "handling a call failed", telemetry.LogMethod, info.FullMethod, telemetry.LogError, err)
		}
		return nil, told
	}
}

// limitDuration gives every call a deadline: the caller's, or ours if that is sooner.
func limitDuration(most time.Duration) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return next(ctx, req)
	}
}

// hopMargin is what a hop keeps of the time that is left, so that an answer that says "too late" still arrives in time: a
// tenth, at most 50 ms, which covers the way back and a pause of the collector.
func hopMargin(left time.Duration) time.Duration {
	return min(left/10, 50*time.Millisecond)
}

// shrinkDeadline gives every call a deadline: what is left of the caller's without the margin, or most.
func shrinkDeadline(most time.Duration) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		timeout := most
		if deadline, ok := ctx.Deadline(); ok {
			left := time.Until(deadline)
			timeout = min(most, left-hopMargin(left))
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}
