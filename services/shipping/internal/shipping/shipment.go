package shipping

import "github.com/google/uuid"

// Parcel is what an order sends, and where to.
type Parcel struct {
	OrderID uuid.UUID
	// Reference is the step key of create_shipment: the name by which the carrier finds what it has of this order. The carrier does
	// not deduplicate by it.
	Reference uuid.UUID
	To        Address
	Items     []Item
}

// Address is where a parcel goes.
type Address struct {
	Name, Line1, Line2, City, Region, PostalCode, Country string
}

// Item is one position of a parcel.
type Item struct {
	SKU      string
	Quantity int64
}

// Status is how far a shipment is, in the carrier's words.
type Status string

// The statuses that the steps know. Anything else is never read as a yes or a no.
const (
	Created    Status = "created"
	Dispatched Status = "dispatched"
	Cancelled  Status = "cancelled"
	Lost       Status = "lost"
)

// Shipment is a shipment as the carrier has it.
type Shipment struct {
	ID     string
	Status Status
}

// Live tells whether a shipment is, or may be, on its way to be or being sent. One with a status that nobody planned for may be.
func (s Shipment) Live() bool { return s.Status != Cancelled && s.Status != Lost }

// Reasons of refusals. They are stable: clients see them.
const (
	ReasonInvalidCommand     = "invalid_command"
	ReasonAddressRefused     = "address_refused"
	ReasonRejected           = "rejected_by_carrier"
	ReasonNotCreated         = "not_created"
	ReasonCancelledAtCarrier = "cancelled_at_carrier"
	ReasonLostAtCarrier      = "lost_at_carrier"
	ReasonAlreadyDispatched  = "already_dispatched"
)
