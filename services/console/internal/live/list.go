package live

import (
	"context"
	"fmt"
	"sync"
	"time"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
)

// fresh is how old an answer may be that is given again: many who look at once ask the order service once.
const fresh = 250 * time.Millisecond

// List gives the newest orders as they are now.
type List struct {
	board *Board
	book  orderv1.OrderBookServiceClient

	mu     sync.Mutex // held while the order service is asked
	at     time.Time
	orders []*orderv1.BookEntry
}

// NewList makes a List of the orders that a board names.
func NewList(board *Board, book orderv1.OrderBookServiceClient) *List {
	return &List{board: board, book: book}
}

// Latest gives the newest orders, the newest first. If the order service does not answer, it gives what was known before together with
// the error.
func (l *List) Latest(ctx context.Context) ([]*orderv1.BookEntry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.at) < fresh {
		return l.orders, nil
	}
	ids := l.board.Newest()
	if len(ids) == 0 {
		l.orders = nil
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := l.book.LookUpOrders(ctx, &orderv1.LookUpOrdersRequest{OrderIds: ids})
	if err != nil {
		return l.orders, fmt.Errorf("asking for the newest orders: %w", err)
	}
	l.orders, l.at = resp.GetOrders(), time.Now()
	return l.orders, nil
}
