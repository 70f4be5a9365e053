package grpcapi

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/outbox"
	pg "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/verify"
	"github.com/throughline/throughline/services/order/internal/placeorder"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// maxConcerned bounds the messages whose orders are on one page. An order is less than 600 bytes, so that the answer stays below 1 MB even if each
// message is about another one.
const maxConcerned = 1500

// oneMoment lets what is read together be of one moment.
var oneMoment = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}

// Verify tells a proof of effects of orders.
type Verify struct{ Pool *pgxpool.Pool }

var _ verify.Orders = Verify{}

// ListOrders gives a page of orders.
func (v Verify) ListOrders(ctx context.Context, req *verifyv1.ListOrdersRequest) (*verifyv1.ListOrdersResponse, error) {
	resp := new(verifyv1.ListOrdersResponse)
	err := pg.InTx(ctx, v.Pool, oneMoment, func(tx pgx.Tx) error {
		var ids []uuid.UUID
		var err error
		switch {
		case len(req.GetOrderIds()) > 0:
			ids, err = verify.ParseIDs(req.GetOrderIds())
		case req.GetSince() != nil:
			ids, resp.NextPageToken, err = concerned(ctx, tx, req)
		default:
			ids, resp.NextPageToken, err = all(ctx, tx, req.GetPageToken())
		}
		if err == nil {
			resp.Orders, err = standings(ctx, tx, ids)
		}
		return err
	})
	if err != nil {
		return nil, explain(ctx, err)
	}
	return resp, nil
}

// all gives a page of the ids of all orders.
func all(ctx context.Context, db saga.Querier, token string) (ids []uuid.UUID, next string, err error) {
	after := uuid.Nil
	if token != "" {
		if after, err = uuid.Parse(token); err != nil {
			return nil, "", verify.BadToken()
		}
	}
	ids, err = postgres.ListIDs(ctx, db, after, verify.MaxOrders)
	if len(ids) == verify.MaxOrders {
		next = ids[len(ids)-1].String()
	}
	return ids, next, err
}

// The tokens of pages of what is of concern: first of timers that are overdue, then of messages.
const (
	timersToken   = "t"
	messagesToken = "m"
)

// concerned gives a page of the ids of orders that are overdue, or that messages of a span of time are about.
func concerned(ctx context.Context, db saga.Querier, req *verifyv1.ListOrdersRequest) (ids []uuid.UUID, next string, err error) {
	after, before, token := keys.MessageBound(req.GetSince().AsTime()), uuid.Max, req.GetPageToken()
	if req.GetUntil() != nil {
		before = keys.MessageBound(req.GetUntil().AsTime())
	}
	if m, ok := strings.CutPrefix(token, messagesToken); ok {
		if after, err = uuid.Parse(m); err != nil {
			return nil, "", verify.BadToken()
		}
	} else {
		behind, ok := readTimerToken(token)
		if !ok {
			return nil, "", verify.BadToken()
		}
		timers, err := saga.Overdue(ctx, db, behind, verify.OverdueGrace, verify.MaxOrders)
		if err != nil {
			return nil, "", err
		}
		if n := len(timers); n > 0 {
			for _, t := range timers {
				ids = append(ids, t.SagaID)
			}
			last := timers[n-1]
			return ids, fmt.Sprintf("%s%d/%s", timersToken, last.Due.UnixMicro(), last.SagaID), nil
		}
	}
	ids, last, err := outbox.Concerned(ctx, db, after, before, maxConcerned)
	if err != nil || last == uuid.Nil {
		return nil, "", err
	}
	return ids, messagesToken + last.String(), nil
}

func readTimerToken(token string) (behind saga.Timer, ok bool) {
	if token == "" {
		return behind, true
	}
	text, ok := strings.CutPrefix(token, timersToken)
	due, id, cut := strings.Cut(text, "/")
	micros, err := strconv.ParseInt(due, 10, 64)
	if !ok || !cut || err != nil {
		return behind, false
	}
	if behind.SagaID, err = uuid.Parse(id); err != nil {
		return behind, false
	}
	behind.Due = time.UnixMicro(micros)
	return behind, true
}

// standings tells how far orders are.
func standings(ctx context.Context, db saga.Querier, ids []uuid.UUID) ([]*verifyv1.Order, error) {
	rows, err := postgres.LookUp(ctx, db, ids)
	if err != nil {
		return nil, err
	}
	sagas, err := saga.Standings(ctx, db, ids)
	if err != nil {
		return nil, err
	}
	marked, err := postgres.MarkedDone(ctx, db, ids)
	if err != nil {
		return nil, err
	}
	orders := make([]*verifyv1.Order, 0, len(rows))
	for _, id := range ids {
		r, ok := rows[id]
		if !ok {
			continue
		}
		o := &verifyv1.Order{
			OrderId: id.String(), ClientId: r.ClientID, IdempotencyKey: r.IdempotencyKey, Status: string(r.Status), Currency: r.Currency, Total: r.Total,
			CreatedAt: timestamppb.New(r.CreatedAt), UpdatedAt: timestamppb.New(r.UpdatedAt), MarkedDone: marked[id],
		}
		if s, ok := sagas[id]; ok {
			o.SagaStatus, o.Revision, o.Timed = string(placeorder.StatusOf(&s.Instance)), s.Revision, s.Timed
			if s.Overdue > 0 {
				o.Overdue = durationpb.New(s.Overdue)
			}
		}
		orders = append(orders, o)
	}
	return orders, nil
}
