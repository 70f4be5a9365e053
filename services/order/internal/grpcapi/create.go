package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
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

const (
	operationCreate = "orders.create"
	// requestVersion counts the changes of how requests are written in their canonical form. A new field is none: where it is absent
	// the form stays the same.
	requestVersion = 1
)

// CreateOrder places an order, or answers what became of the same request before.
func (s *Server) CreateOrder(ctx context.Context, req *orderv1.CreateOrderRequest) (*orderv1.CreateOrderResponse, error) {
	client, err := grpcx.ClientID(ctx)
	if err != nil {
		return nil, err
	}
	key, err := grpcx.IdempotencyKey(ctx)
	if err != nil {
		return nil, err
	}
	total, violations := s.rules.Check(requestOf(req))
	if hasUnknown(req.ProtoReflect()) {
		violations = append(violations, order.Violation{Detail: "has fields that are not known here"})
	}
	if len(violations) > 0 {
		return nil, invalid(violations)
	}
	ctx = about(ctx, client, key, keys.OrderID(client, key))
	resp, err := s.create(ctx, client, key, req, total.Minor)
	return resp, explain(ctx, err)
}

func (s *Server) create(ctx context.Context, client, key string, req *orderv1.CreateOrderRequest, total int64) (*orderv1.CreateOrderResponse, error) {
	pl, resp, err := s.prepare(ctx, client, key, req, total)
	if err != nil {
		return nil, err
	}
	placing, span := s.cfg.Tracer.Start(ctx, "place order")
	err = s.cfg.Placer.Place(placing, pl)
	span.SetAttributes(telemetry.Duplicate.Bool(errors.Is(err, placeorder.ErrExists)))
	span.End()
	switch {
	case err == nil:
		s.log.InfoContext(ctx, "order placed", telemetry.LogOrderID, pl.Row.OrderID, telemetry.LogClientID, client,
			telemetry.LogIdempotencyKey, telemetry.Masked(key))
		fault.At(fault.IdempotencyAnswering, pl.Row.OrderID, "create")
		return resp, answer(ctx, pl.Record.Body, firstAnswer)
	case errors.Is(err, placeorder.ErrExists):
		return s.replay(ctx, req, pl, nil)
	case errors.Is(err, pg.ErrCommitUnknown):
		// Only reading tells, and only a yes is certain: what is not there yet may still be committed.
		return s.replay(ctx, req, pl, err)
	default:
		return nil, err
	}
}

// prepare makes all that is committed for a new order, the answer included.
func (s *Server) prepare(ctx context.Context, client, key string, req *orderv1.CreateOrderRequest, total int64) (
	*placeorder.Placement, *orderv1.CreateOrderResponse, error,
) {
	form, err := canonical(req)
	if err != nil {
		return nil, nil, err
	}
	id, at := keys.OrderID(client, key), now()
	row := postgres.Row{
		OrderID: id, ClientID: client, IdempotencyKey: key, Status: order.Pending, Currency: req.GetCurrency(), Total: total,
		Request: form, Hash: idempotency.Fingerprint(requestVersion, form), Version: requestVersion, CreatedAt: at, UpdatedAt: at,
	}
	birth, err := s.cfg.Engine.Begin(ctx, placeorder.Definition, id, key, &orderv1.PlaceOrder{
		OrderId: id.String(), ClientId: client, IdempotencyKey: key, Request: req, Total: total,
	}, at)
	if err != nil {
		return nil, nil, err
	}
	o, err := orderOf(&row)
	if err != nil {
		return nil, nil, err
	}
	resp := &orderv1.CreateOrderResponse{Order: o}
	record, err := recordOf(id, operationCreate, row.Hash, http.StatusCreated, o, resp, s.cfg.KeyLifetime)
	if err != nil {
		return nil, nil, err
	}
	return &placeorder.Placement{Row: row, Birth: birth, Record: record}, resp, nil
}

// recordOf is the stored answer of a request.
func recordOf(id uuid.UUID, operation string, hash []byte, status int, o *orderv1.Order, resp proto.Message, lifetime time.Duration) (
	idempotency.Record, error,
) {
	body, err := render(o)
	if err != nil {
		return idempotency.Record{}, err
	}
	encoded, err := canonical(resp)
	if err != nil {
		return idempotency.Record{}, err
	}
	return idempotency.Record{
		ID: id, Operation: operation, Fingerprint: hash, FingerprintVersion: requestVersion,
		Status: status, Body: body, Response: encoded, Lifetime: lifetime,
	}, nil
}

// replay answers a request whose order is there, or might be: unknown is then the error of the commit that was not answered.
func (s *Server) replay(ctx context.Context, req *orderv1.CreateOrderRequest, pl *placeorder.Placement, unknown error) (
	*orderv1.CreateOrderResponse, error,
) {
	id := pl.Row.OrderID
	var row *postgres.Row
	found := make(map[uuid.UUID]idempotency.Record, 1)
	var read pgx.Batch
	postgres.QueueGet(&read, id, &row)
	idempotency.QueueFind(&read, []uuid.UUID{id}, found)
	var began telemetry.Carrier
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() {
		saga.QueueTrace(&read, id, &began)
	}
	if err := s.cfg.Pool.SendBatch(ctx, &read).Close(); err != nil {
		return nil, fmt.Errorf("reading what became of order %s: %w", id, errors.Join(unknown, err))
	}
	if link, ok := telemetry.LinkFrom(began); ok {
		// A repeat has a trace of its own, and leads to the one in which the order was placed.
		link.Attributes = []attribute.KeyValue{telemetry.Relation.String(telemetry.RelationRetry)}
		span.AddLink(link)
	}
	if row == nil {
		if unknown == nil {
			unknown = fmt.Errorf("reading order %s, which exists: %w", id, postgres.ErrNotFound)
		}
		return nil, fmt.Errorf("order %s: %w", id, unknown)
	}
	if row.Version != pl.Row.Version || string(row.Hash) != string(pl.Row.Hash) {
		if err := s.sameOrder(req, row); err != nil {
			s.countMismatch(id, err)
			return nil, err
		}
	}
	span.SetAttributes(telemetry.Replayed.Bool(unknown == nil))
	record, ok := found[id]
	if !ok {
		o, err := s.answerNow(ctx, row)
		return &orderv1.CreateOrderResponse{Order: o}, err
	}
	resp := new(orderv1.CreateOrderResponse)
	if err := proto.Unmarshal(record.Response, resp); err != nil {
		return nil, fmt.Errorf("decoding the stored answer of order %s: %w", id, err)
	}
	if unknown != nil && row.CreatedAt.Equal(pl.Row.CreatedAt) {
		// After a commit without an answer, a row of ours is a first answer that came late. Two requests of one key within one
		// microsecond would both be taken for the first, which harms nobody.
		return resp, answer(ctx, record.Body, firstAnswer)
	}
	s.cfg.Replays.Count(id)
	return resp, answer(ctx, record.Body, replayedAnswer)
}

// countMismatch counts a request that was refused because its key was used for another one.
func (s *Server) countMismatch(id uuid.UUID, err error) {
	if grpcx.ReasonOf(err) == grpcx.KeyMismatch {
		s.cfg.Replays.Mismatch(id)
	}
}

// sameOrder compares a request with the one that the order was made from.
func (s *Server) sameOrder(req *orderv1.CreateOrderRequest, row *postgres.Row) error {
	first := new(orderv1.CreateOrderRequest)
	if err := proto.Unmarshal(row.Request, first); err != nil {
		return fmt.Errorf("decoding the request of order %s: %w", row.OrderID, err)
	}
	if paths := differences(first, req); len(paths) > 0 {
		return mismatch(paths)
	}
	return nil
}

// answerNow answers a repeat whose stored answer has expired with the order as it is.
func (s *Server) answerNow(ctx context.Context, row *postgres.Row) (*orderv1.Order, error) {
	o, err := orderOf(row)
	if err != nil {
		return nil, err
	}
	body, err := render(o)
	if err != nil {
		return nil, err
	}
	return o, answer(ctx, body, expiredAnswer)
}
