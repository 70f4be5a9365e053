package shipping

// State is how far the shipment of an order is, as the service's own row tells it.
type State string

// The states of an order's shipment.
const (
	StatePending    State = "pending"
	StateCreated    State = "created"
	StateDispatched State = "dispatched"
	StateCancelled  State = "cancelled"
	StateRefused    State = "refused"
)

// Update is what becomes of a shipment's row. Empty members leave what is there; all others are set, whatever was there.
type Update struct {
	State      State
	ShipmentID string
	// Reason is why a step was refused.
	Reason string
}

// Merge puts a later update over u.
func (u *Update) Merge(later Update) {
	if later.State != "" {
		u.State = later.State
	}
	if later.ShipmentID != "" {
		u.ShipmentID = later.ShipmentID
	}
	if later.Reason != "" {
		u.Reason = later.Reason
	}
}
