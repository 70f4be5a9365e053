package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v82"
	"github.com/stripe/stripe-go/v82/form"

	"github.com/throughline/throughline/pkg/money"
	"github.com/throughline/throughline/services/payment/internal/payment"
)

// MaxPage is the largest page of [Client.ListIntents], which is the provider's.
const MaxPage = 100

// Entry is an intent as the provider's own books have it, whoever made it. It is for audits: nothing of it is checked against
// what we believe, and no step decides by it.
type Entry struct {
	// OrderID is the order that the intent names. It is uuid.Nil for one that names none of ours: others may use the account too. What
	// money that one is about is not read.
	OrderID uuid.UUID
	ID      string
	Status  payment.Status
	// Amount is what the intent is about.
	Amount money.Money
	// Held is what is authorized and can still be captured, Captured what was captured, and Refunded what was given back of that;
	// in minor units of Amount's currency. Captured is not made less by a refund; a refund that is still pending counts as given back.
	Held, Captured, Refunded int64
	// CreatedAt is the provider's time, in whole seconds.
	CreatedAt time.Time
}

// ListIntents gives a page of all intents of the account, newest first: those created at or after from, by the provider's clock and in
// whole seconds; all if from is zero. limit bounds the page; less than 1 and more than [MaxPage] mean MaxPage. after is the next of the
// page before, empty for the first; next is empty after the last page.
//
// The list is consistent: what the provider has answered is in it, as it is now. What is created while pages are read is not in the pages that
// follow. Errors are [*Error] as of the calls of steps, with [ErrConfiguration] and [ErrAmount] among their causes; a page is given whole or not at all.
func (c *Client) ListIntents(ctx context.Context, from time.Time, after string, limit int) (page []Entry, next string, err error) {
	if limit < 1 || limit > MaxPage {
		limit = MaxPage
	}
	params := &stripe.PaymentIntentListParams{}
	params.Context, params.Limit = ctx, stripe.Int64(int64(limit))
	params.AddExpand("data." + charge)
	if after != "" {
		params.StartingAfter = stripe.String(after)
	}
	if second := from.Unix(); !from.IsZero() && second > 0 {
		params.CreatedRange = &stripe.RangeQueryParams{GreaterThanOrEqual: second}
	}
	page, answered, err := c.entries(opList, "/v1/payment_intents", params)
	if err != nil {
		return nil, "", err
	}
	if answered.HasMore && len(page) > 0 {
		next = page[len(page)-1].ID
	}
	return page, next, nil
}

// SearchIntents gives the intents that name the order, newest first. The provider's search is eventually consistent: what it finds is
// there, as it was some time ago, which is less than a minute on good days and up to an hour on bad ones; what it does not find may be
// there all the same. [Client.LookUpIntent] tells how one that was found is now. Errors are as of ListIntents.
func (c *Client) SearchIntents(ctx context.Context, orderID uuid.UUID) ([]Entry, error) {
	params := &stripe.PaymentIntentSearchParams{}
	params.Context, params.Limit = ctx, stripe.Int64(MaxPage)
	params.Query = fmt.Sprintf("metadata['%s']:'%s'", metaOrderID, orderID)
	params.AddExpand("data." + charge)
	var found []Entry
	for {
		page, answered, err := c.entries(opSearch, "/v1/payment_intents/search", params)
		if err != nil {
			return nil, err
		}
		found = append(found, page...)
		if !answered.HasMore || answered.NextPage == "" {
			return found, nil
		}
		params.Page = stripe.String(answered.NextPage)
	}
}

// LookUpIntent gives one intent as it is now, whichever order it names. Errors are as of ListIntents; that there is no such intent is an
// [*Error] of status 404.
func (c *Client) LookUpIntent(ctx context.Context, id string) (Entry, error) {
	params := &stripe.PaymentIntentRetrieveParams{}
	params.Context = ctx
	params.AddExpand(charge)
	var a answer
	if err := c.backend.Call(http.MethodGet, stripe.FormatURLPath("/v1/payment_intents/%s", id), c.key, params, &a); err != nil {
		return Entry{}, failure(opRetrieve, err)
	}
	e, err := a.entry()
	if err != nil {
		return Entry{}, failure(opRetrieve, err)
	}
	return e, nil
}

// answers is a page of intents.
type answers struct {
	stripe.APIResource `json:"-"`

	Data     *[]answer `json:"data"`
	HasMore  bool      `json:"has_more"`
	NextPage string    `json:"next_page"` // of a search
}

// errUnreadable says that an answer is not what was asked for. It must not be taken for an empty one.
var errUnreadable = errors.New("the provider's answer cannot be read")

func (c *Client) entries(operation, path string, params stripe.ParamsContainer) ([]Entry, answers, error) {
	var page answers
	query := &form.Values{}
	form.AppendTo(query, params)
	if err := c.backend.CallRaw(http.MethodGet, path, c.key, []byte(query.Encode()), params.GetParams(), &page); err != nil {
		return nil, page, failure(operation, err)
	}
	if page.Data == nil {
		return nil, page, failure(operation, fmt.Errorf("%w: it has no list", errUnreadable))
	}
	entries := make([]Entry, 0, len(*page.Data))
	for i := range *page.Data {
		e, err := (*page.Data)[i].entry()
		if err != nil {
			return nil, page, failure(operation, err)
		}
		entries = append(entries, e)
	}
	return entries, page, nil
}

// entry reads an intent for an audit.
func (a *answer) entry() (Entry, error) {
	if !plausible(a.ID) {
		return Entry{}, fmt.Errorf("%w: it has no id", errUnreadable)
	}
	e := Entry{ID: a.ID, Status: payment.Status(safe(string(a.Status))), CreatedAt: time.Unix(a.Created, 0).UTC()}
	if e.OrderID = orderIn(a.Metadata); e.OrderID == uuid.Nil {
		return e, nil
	}
	currency, err := money.ParseCurrency(strings.ToUpper(string(a.Currency)))
	if err != nil {
		return Entry{}, fmt.Errorf("%w: %s is about %q", ErrAmount, a.ID, safe(string(a.Currency)))
	}
	e.Amount.Currency = currency
	// What was held and never captured shows as refunded when it is released. It was never ours to give back.
	var refunded int64
	if a.LatestCharge != nil {
		refunded = max(0, a.LatestCharge.Amount-(a.Amount-a.AmountReceived))
	}
	for _, part := range []struct {
		to     *int64
		amount int64
	}{{&e.Amount.Minor, a.Amount}, {&e.Held, a.AmountCapturable}, {&e.Captured, a.AmountReceived}, {&e.Refunded, refunded}} {
		if *part.to, err = fromProvider(currency, part.amount); err != nil {
			return Entry{}, fmt.Errorf("%s: %w", a.ID, err)
		}
	}
	return e, nil
}

// orderIn gives the order that an intent names, or uuid.Nil.
func orderIn(metadata map[string]string) uuid.UUID {
	order, err := uuid.Parse(metadata[metaOrderID])
	if err != nil {
		return uuid.Nil
	}
	return order
}
