package storefront

import "time"

// Status says how far an order is. A newer service may have others; they are not final.
type Status string

// The states of an order.
const (
	// Pending: accepted and under way.
	Pending Status = "PENDING"
	// Confirmed: paid and on its way. Final.
	Confirmed Status = "CONFIRMED"
	// Compensating: what was done is being undone.
	Compensating Status = "COMPENSATING"
	// Failed: it could not be sold; everything is undone. Final.
	Failed Status = "FAILED"
	// Cancelled: the client asked for it; everything is undone. Final.
	Cancelled Status = "CANCELLED"
	// NeedsAttention: a person must decide.
	NeedsAttention Status = "NEEDS_ATTENTION"
)

// Final says whether the order will stay as it is.
func (s Status) Final() bool { return s == Confirmed || s == Failed || s == Cancelled }

// Line is one position of an order.
type Line struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
	// UnitPrice is the price of one, in minor units of the order's currency: 1250 is 12.50 EUR and 1250 JPY.
	UnitPrice int64 `json:"unit_price"`
}

// Address is where the parcel goes.
type Address struct {
	Name       string `json:"name"`
	Line1      string `json:"line1"`
	Line2      string `json:"line2,omitempty"`
	City       string `json:"city"`
	Region     string `json:"region,omitempty"`
	PostalCode string `json:"postal_code"`
	Country    string `json:"country"` // ISO 3166-1 alpha-2, upper case
}

// NewOrder is an order to be placed. A repeat with the same key must have the same content.
type NewOrder struct {
	Currency      string            `json:"currency"` // ISO 4217, upper case
	Lines         []Line            `json:"lines"`
	ShipTo        Address           `json:"ship_to"`
	PaymentMethod string            `json:"payment_method"` // the payment provider's name for it
	Note          string            `json:"note,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// Order is an order as the service sees it.
type Order struct {
	ID            string            `json:"order_id"`
	Status        Status            `json:"status"`
	Currency      string            `json:"currency"`
	Total         int64             `json:"total"` // in minor units
	Lines         []Line            `json:"lines"`
	ShipTo        Address           `json:"ship_to"`
	PaymentMethod string            `json:"payment_method"`
	Note          string            `json:"note"`
	Metadata      map[string]string `json:"metadata"`
	// FailureReason is a stable word, such as "card_declined", for an order that was not sold.
	FailureReason string `json:"failure_reason"`
	// NextAction is what the customer has to do before the order can go on; nil while nothing is asked.
	NextAction     *NextAction `json:"next_action"`
	IdempotencyKey string      `json:"idempotency_key"`
	CreatedAt      time.Time   `json:"created_at"`
	UpdatedAt      time.Time   `json:"updated_at"`
}

// NextAction is something that only the customer can do, such as to confirm a payment at the bank.
type NextAction struct {
	Type string `json:"type"` // a stable word, such as "redirect_to_url"
	URL  string `json:"url"`  // where to send the customer
	// ExpiresAt is when the order is undone if nothing has happened.
	ExpiresAt time.Time `json:"expires_at"`
}

// Answered is the answer to PlaceOrder and CancelOrder.
type Answered struct {
	// Order is the order as it was when the key was first used; GetOrder tells how it is now.
	Order Order
	// Replayed says that an earlier call with the key had the effect, perhaps an attempt of this same call whose answer
	// was lost.
	Replayed bool
	// KeyExpired says that the service has given up the first answer, a day or more after it, and that Order is the order as it is now. It is
	// Replayed, too: nothing was done.
	KeyExpired bool
}

// KeyState says what is known of a key. A newer service may have others.
type KeyState string

// The states of a key.
const (
	// KeyUnknown: nothing was ordered under it, or not yet. A call that is under way may still order something.
	KeyUnknown KeyState = "UNKNOWN"
	// KeySettled: it has its order, for ever.
	KeySettled KeyState = "SETTLED"
)

// Key is what is known of a key of an order.
type Key struct {
	Key   string   `json:"key"`
	State KeyState `json:"state"`
	// OrderID is empty for an unknown key.
	OrderID     string    `json:"order_id"`
	FirstSeenAt time.Time `json:"first_seen_at"`
	// ExpiresAt is until when the first answer is given again byte for byte; zero when that time is over, or the key unknown.
	ExpiresAt time.Time `json:"expires_at"`
	// Replays is how often it was given again, as of about a second ago.
	Replays int64 `json:"replays"`
}

// Page is a part of the list of orders, newest first.
type Page struct {
	Orders []Order `json:"orders"`
	// NextToken asks for the next page; empty on the last one.
	NextToken string `json:"next_page_token"`
}
