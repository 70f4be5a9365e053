package grpcapi

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

const (
	defaultPageSize = 20
	maxPageSize     = 100
	// tokenVersion is the first byte of page tokens, so that their form can change.
	tokenVersion = 1
)

// MaxWait bounds the waiting of GetOrder. It is below what a call may take at all on both of its hops, and below the half minute after
// which proxies commonly give up.
const MaxWait = 20 * time.Second

// GetOrder answers with an order of the client as it is now, or as it is at its end if the caller waits for that.
func (s *Server) GetOrder(ctx context.Context, req *orderv1.GetOrderRequest) (*orderv1.GetOrderResponse, error) {
	client, err := grpcx.ClientID(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetWaitSeconds() < 0 {
		return nil, invalid([]order.Violation{{Path: "wait_seconds", Detail: "must not be negative"}})
	}
	row, err := s.own(ctx, client, req.GetOrderId())
	if err != nil {
		return nil, explain(ctx, err)
	}
	if wait := min(MaxWait, time.Duration(req.GetWaitSeconds())*time.Second); wait > 0 && !row.Status.Final() {
		if s.cfg.Endings.Wait(ctx, row.OrderID, wait); ctx.Err() != nil {
			return nil, ctx.Err() // nobody listens
		}
		if row, err = s.own(ctx, client, req.GetOrderId()); err != nil {
			return nil, explain(ctx, err)
		}
	}
	o, err := orderOf(&row)
	if err != nil {
		return nil, err
	}
	return &orderv1.GetOrderResponse{Order: o}, nil
}

// own reads an order of the client. An id that is none names no order.
func (s *Server) own(ctx context.Context, client, orderID string) (postgres.Row, error) {
	id, err := uuid.Parse(orderID)
	if err != nil || len(orderID) != 36 { // the library takes other forms, too
		return postgres.Row{}, errNotFound
	}
	row, err := postgres.Get(ctx, s.cfg.Pool, client, id)
	if err == nil {
		about(ctx, client, row.IdempotencyKey, id) // on the call's own span; what it leads to is the caller's to say
	}
	return row, err
}

// ListOrders answers with a page of the client's orders, newest first. Orders that are placed between two pages appear on neither.
func (s *Server) ListOrders(ctx context.Context, req *orderv1.ListOrdersRequest) (*orderv1.ListOrdersResponse, error) {
	client, err := grpcx.ClientID(ctx)
	if err != nil {
		return nil, err
	}
	size := int(req.GetPageSize())
	if size == 0 {
		size = defaultPageSize
	}
	if size < 1 || size > maxPageSize {
		return nil, invalid([]order.Violation{{Path: "page_size", Detail: fmt.Sprintf("must be from 1 to %d", maxPageSize)}})
	}
	before, ok := readToken(req.GetPageToken())
	if !ok {
		return nil, invalid([]order.Violation{{Path: "page_token", Detail: "is not one of ours"}})
	}
	// One more than is shown tells whether there is a next page.
	rows, err := postgres.List(ctx, s.cfg.Pool, client, before, size+1)
	if err != nil {
		return nil, explain(ctx, err)
	}
	resp := new(orderv1.ListOrdersResponse)
	if len(rows) > size {
		rows = rows[:size]
		resp.NextPageToken = token(rows[size-1].No)
	}
	for i := range rows {
		o, err := orderOf(&rows[i])
		if err != nil {
			return nil, err
		}
		resp.Orders = append(resp.Orders, o)
	}
	return resp, nil
}

// token names the place behind an order in the list.
func token(no int64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte{tokenVersion}, uint64(no)))
}

// readToken gives the number that all orders of the page are below. No token is the first page.
func readToken(s string) (before int64, ok bool) {
	if s == "" {
		return math.MaxInt64, true
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != 9 || b[0] != tokenVersion || strings.ContainsAny(s, "\r\n") {
		return 0, false
	}
	no := binary.BigEndian.Uint64(b[1:])
	return int64(no), no > 0 && no <= math.MaxInt64
}
