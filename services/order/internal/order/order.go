// Package order is what an order is, and which requests make one. It knows nothing of the wire, the database or the broker.
package order

// Status says how far an order is. The values are stored and never change.
type Status string

// The statuses of an order: PENDING → CONFIRMED, or PENDING → COMPENSATING → FAILED or CANCELLED. NEEDS_ATTENTION may come
// in between, and be left again.
const (
	Pending        Status = "PENDING"
	Confirmed      Status = "CONFIRMED"
	Compensating   Status = "COMPENSATING"
	Failed         Status = "FAILED"
	Cancelled      Status = "CANCELLED"
	NeedsAttention Status = "NEEDS_ATTENTION"
)

// Final tells whether nothing more happens to an order by itself.
func (s Status) Final() bool { return s == Confirmed || s == Failed || s == Cancelled }

// Request is what a client asks for.
type Request struct {
	Currency      string
	Lines         []Line
	ShipTo        *Address // nil if it is not given
	PaymentMethod string
	Note          string
	Metadata      map[string]string
}

// Line is one position of an order.
type Line struct {
	SKU       string
	Quantity  int64
	UnitPrice int64 // in minor units
}

// Address is where a parcel goes.
type Address struct {
	Name, Line1, Line2, City, Region, PostalCode string
	Country                                      string // ISO 3166-1 alpha-2
}

// Violation says what is wrong with one member of a request.
type Violation struct {
	Path   string // lines[1].quantity
	Detail string // for people; quotes no values
}
