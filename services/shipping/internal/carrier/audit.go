package carrier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

// opList is the one operation that no step asks for.
const opList = "list shipments"

// MaxPage is the largest page of [Client.ListShipments]. The carrier would give up to 1000, which may be 64 MB if all are of the largest size.
const MaxPage = 200

// Entry is a shipment as the carrier's own books have it, whoever made it. It is for audits: nothing of it is checked against what
// we believe, and no step decides by it.
type Entry struct {
	// OrderID is the order that the shipment names; uuid.Nil if it names none of ours.
	OrderID uuid.UUID
	// Reference is what the shipment was made under: for one of ours, the key of the step that made it; cut off after 300 bytes.
	Reference string
	ID        string
	Status    shipping.Status
	// CreatedAt is the carrier's time.
	CreatedAt time.Time
}

// ListShipments gives a page of all shipments, oldest first: those created at or after from, by the carrier's clock; all if from is
// zero. limit bounds the page; less than 1 and more than [MaxPage] mean MaxPage. after is the next of the page before, empty for the
// first; next is empty after the last page.
//
// The list is consistent: what the carrier has answered is in it, as it is now, and what is created while pages are read is in a page that
// follows. Errors are [*Error] as of the calls of steps; a page is given whole or not at all.
func (c *Client) ListShipments(ctx context.Context, from time.Time, after string, limit int) (page []Entry, next string, err error) {
	if limit < 1 || limit > MaxPage {
		limit = MaxPage
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if after != "" {
		query.Set("after", after)
	}
	if !from.IsZero() {
		query.Set("created_from", from.UTC().Format(time.RFC3339Nano))
	}
	return c.entries(ctx, opList, query)
}

// FindShipments gives all shipments that name the order, oldest first. It is consistent, as [Client.ListShipments] is; so are its errors.
func (c *Client) FindShipments(ctx context.Context, orderID uuid.UUID) ([]Entry, error) {
	found, _, err := c.entries(ctx, opFind, url.Values{"order_id": {orderID.String()}})
	return found, err
}

func (c *Client) entries(ctx context.Context, operation string, query url.Values) ([]Entry, string, error) {
	x := participant.Exchange{Operation: operation} // of no attempt, so on no record
	answer, err := c.call(ctx, &x, http.MethodGet, "?"+query.Encode(), nil, http.StatusOK)
	if err != nil {
		return nil, "", err
	}
	var list struct {
		Shipments *[]struct {
			shipment
			CreatedAt time.Time `json:"created_at"`
		} `json:"shipments"`
		Next string `json:"next"`
	}
	if err := json.Unmarshal(answer, &list); err != nil || list.Shipments == nil {
		return nil, "", c.fail(operation, http.StatusOK, errors.Join(ErrUnreadable, err))
	}
	entries := make([]Entry, 0, len(*list.Shipments))
	for _, s := range *list.Shipments {
		if !plausible(s.ID) {
			return nil, "", c.fail(operation, http.StatusOK, fmt.Errorf("%w: one has no id", ErrUnreadable))
		}
		order, err := uuid.Parse(s.OrderID)
		if err != nil {
			order = uuid.Nil
		}
		entries = append(entries, Entry{
			OrderID: order, Reference: safe(s.Reference), ID: s.ID, Status: shipping.Status(safe(s.Status)), CreatedAt: s.CreatedAt,
		})
	}
	return entries, list.Next, nil
}
