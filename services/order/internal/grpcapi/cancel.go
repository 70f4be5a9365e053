package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/keys"
	pg "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/placeorder"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

const operationCancel = "orders.cancel"

// CancelOrder turns an order back, or answers what the same request was answered before.
func (s *Server) CancelOrder(ctx context.Context, req *orderv1.CancelOrderRequest) (*orderv1.CancelOrderResponse, error) {
	client, err := grpcx.ClientID(ctx)
	if err != nil {
		return nil, err
	}
	key, err := grpcx.IdempotencyKey(ctx)
	if err != nil {
		return nil, err
	}
	violations := order.CheckReason(req.GetReason())
	if hasUnknown(req.ProtoReflect()) {
		violations = append(violations, order.Violation{Detail: "has fields that are not known here"})
	}
	if len(violations) > 0 {
		return nil, invalid(violations)
	}
	resp, err := s.cancel(ctx, client, key, req)
	return resp, explain(ctx, err)
}

// errKeyUsed says that the key of a cancellation has a record.
var errKeyUsed = errors.New("the key of this cancellation is used")

func (s *Server) cancel(ctx context.Context, client, key string, req *orderv1.CancelOrderRequest) (*orderv1.CancelOrderResponse, error) {
	recordID := keys.RequestID(client, operationCancel, key)
	resp, err := s.replayCancel(ctx, recordID, req)
	if resp != nil || err != nil {
		return resp, err
	}
	row, err := s.own(ctx, client, req.GetOrderId())
	if err != nil {
		return nil, err
	}
	ctx = about(ctx, client, row.IdempotencyKey, row.OrderID)
	resp, err = s.cancelNow(ctx, recordID, req, row)
	if errors.Is(err, errKeyUsed) || errors.Is(err, pg.ErrCommitUnknown) {
		// Another request with the key was first, or the answer of our own commit was lost.
		again, readErr := s.replayCancel(ctx, recordID, req)
		if again != nil || readErr != nil {
			return again, readErr
		}
	}
	return resp, err
}

// cancelNow turns the order back and stores the answer in the same transaction.
func (s *Server) cancelNow(ctx context.Context, recordID uuid.UUID, req *orderv1.CancelOrderRequest, row postgres.Row) (*orderv1.CancelOrderResponse, error) {
	form, err := canonical(req)
	if err != nil {
		return nil, err
	}
	var record idempotency.Record
	resp := new(orderv1.CancelOrderResponse)
	_, err = s.cfg.Engine.Cancel(ctx, row.OrderID, func(b *pgx.Batch, after saga.Instance) error {
		status := placeorder.StatusOf(&after)
		if status != row.Status || after.Reason != row.FailureReason {
			row.Status, row.FailureReason, row.UpdatedAt = status, after.Reason, now()
		}
		var err error
		if row.NextAction, err = placeorder.NextActionOf(&after); err != nil {
			return err
		}
		o, err := orderOf(&row)
		if err != nil {
			return err
		}
		resp.Order = o
		record, err = recordOf(recordID, operationCancel, idempotency.Fingerprint(requestVersion, form), http.StatusOK, o, resp, s.cfg.KeyLifetime)
		if err != nil {
			return err
		}
		record.Request = form
		// A record without a cancellation is of a release that did not remember these for ever.
		idempotency.QueueForget(b, recordID)
		postgres.QueueCancellation(b, postgres.Cancellation{RequestID: recordID, OrderID: row.OrderID, Request: form})
		idempotency.QueueInsert(b, record)
		return nil
	})
	switch {
	case errors.Is(err, saga.ErrTooLate):
		return nil, grpcx.Error(grpcx.CancelTooLate, "the order can no longer be cancelled")
	case errors.Is(err, saga.ErrNotFound):
		return nil, errNotFound
	case pg.IsUniqueViolation(err, idempotency.Constraint, postgres.CancellationConstraint):
		return nil, errKeyUsed
	case err != nil:
		return nil, err
	}
	s.log.InfoContext(ctx, "order cancelled", telemetry.LogOrderID, row.OrderID, telemetry.LogState, row.Status)
	fault.At(fault.IdempotencyAnswering, row.OrderID, "cancel")
	return resp, answer(ctx, record.Body, firstAnswer)
}

// replayCancel answers a cancellation that was accepted before; nil and no error if there is none.
func (s *Server) replayCancel(ctx context.Context, recordID uuid.UUID, req *orderv1.CancelOrderRequest) (*orderv1.CancelOrderResponse, error) {
	var known *postgres.Cancellation
	found := make(map[uuid.UUID]idempotency.Record, 1)
	var read pgx.Batch
	postgres.QueueGetCancellation(&read, recordID, &known)
	idempotency.QueueFind(&read, []uuid.UUID{recordID}, found)
	if err := s.cfg.Pool.SendBatch(ctx, &read).Close(); err != nil {
		return nil, fmt.Errorf("reading a cancellation: %w", err)
	}
	record, stored := found[recordID]
	var form []byte
	switch {
	case known != nil:
		form = known.Request
	case stored:
		form = record.Request
	default:
		return nil, nil // none is an answer here
	}
	first := new(orderv1.CancelOrderRequest)
	if err := proto.Unmarshal(form, first); err != nil {
		return nil, fmt.Errorf("decoding the stored request of a cancellation: %w", err)
	}
	if paths := differences(first, req); len(paths) > 0 {
		s.cfg.Replays.Mismatch(recordID)
		return nil, mismatch(paths)
	}
	if !stored {
		return s.cancelledNow(ctx, known.OrderID)
	}
	resp := new(orderv1.CancelOrderResponse)
	if err := proto.Unmarshal(record.Response, resp); err != nil {
		return nil, fmt.Errorf("decoding the stored answer of a cancellation: %w", err)
	}
	s.cfg.Replays.Count(recordID)
	return resp, answer(ctx, record.Body, replayedAnswer)
}

// cancelledNow answers a repeated cancellation whose stored answer has expired.
func (s *Server) cancelledNow(ctx context.Context, orderID uuid.UUID) (*orderv1.CancelOrderResponse, error) {
	var row *postgres.Row
	var read pgx.Batch
	postgres.QueueGet(&read, orderID, &row)
	if err := s.cfg.Pool.SendBatch(ctx, &read).Close(); err != nil {
		return nil, fmt.Errorf("reading cancelled order %s: %w", orderID, err)
	}
	if row == nil {
		return nil, fmt.Errorf("reading cancelled order %s: %w", orderID, postgres.ErrNotFound)
	}
	o, err := s.answerNow(ctx, row)
	return &orderv1.CancelOrderResponse{Order: o}, err
}
