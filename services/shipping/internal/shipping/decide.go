package shipping

// Act is what a step does next.
type Act uint8

// The acts. The zero value is the one that claims nothing.
const (
	// Ask says that nothing may be done but to ask again.
	Ask Act = iota
	// Finish says that the step is done.
	Finish
	// Refuse says that the step can never be done, for Decision.Reason.
	Refuse
	// Create and Dispatch are calls to the carrier.
	Create
	Dispatch
)

// Decision is an act, with what it is about.
type Decision struct {
	Act    Act
	Reason string
	// Keep is the shipment that the order has, when Act is Finish.
	Keep Shipment
	// Cancel are live shipments that the order must not have.
	Cancel []Shipment
}

// ForCreate decides about what the carrier has under the reference of a creation that was tried before, oldest first. Of several
// live shipments one is the order's and the others are extras: the one that is on its way already, or else the oldest.
func ForCreate(found []Shipment) Decision {
	d := Decision{Act: Create}
	for _, s := range found {
		switch {
		case s.Status != Created && s.Status != Dispatched && s.Live():
			return Decision{Act: Ask}
		case !s.Live():
			// Somebody cancelled it at the carrier, or it was lost. It is not for us to send another parcel.
			if d.Act == Create {
				d.Act, d.Reason = Refuse, gone(s.Status)
			}
		case d.Act != Finish:
			d.Act, d.Reason, d.Keep = Finish, "", s
		case s.Status == Dispatched && d.Keep.Status == Created:
			d.Cancel = append(d.Cancel, d.Keep)
			d.Keep = s
		default:
			d.Cancel = append(d.Cancel, s)
		}
	}
	return d
}

// ForDispatch decides about the order's shipment.
func ForDispatch(s Shipment) Decision {
	switch s.Status {
	case Created:
		return Decision{Act: Dispatch}
	case Dispatched:
		return Decision{Act: Finish, Keep: s}
	case Cancelled, Lost:
		return Decision{Act: Refuse, Reason: gone(s.Status)}
	default:
		return Decision{Act: Ask}
	}
}

// ForCancel decides about all that the carrier has of an order that is to have nothing. What can be cancelled is cancelled,
// also where the rest is refused.
func ForCancel(found []Shipment) Decision {
	d := Decision{Act: Finish}
	for _, s := range found {
		switch s.Status {
		case Created:
			d.Cancel = append(d.Cancel, s)
		case Dispatched:
			if d.Act == Finish {
				d.Act, d.Reason, d.Keep = Refuse, ReasonAlreadyDispatched, s
			}
		case Cancelled, Lost:
		default:
			d.Act, d.Reason = Ask, ""
		}
	}
	return d
}

func gone(s Status) string {
	if s == Lost {
		return ReasonLostAtCarrier
	}
	return ReasonCancelledAtCarrier
}
