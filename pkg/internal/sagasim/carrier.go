package sagasim

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
)

type parcelStatus string

const (
	packed     parcelStatus = "created"
	dispatched parcelStatus = "dispatched"
	withdrawn  parcelStatus = "cancelled"
	lost       parcelStatus = "lost"
)

// parcel is a shipment at the carrier.
type parcel struct {
	ID     string
	Ref    uuid.UUID
	Status parcelStatus
}

func (p parcel) live() bool { return p.Status == packed || p.Status == dispatched }

// carrier is the carrier: it deduplicates nothing, and finds shipments by their reference.
type carrier struct {
	world   *world
	parcels []*parcel
}

var errAddress = errors.New("there is no such address")

func (c *carrier) create(order, ref uuid.UUID) (parcel, error) {
	o := c.world.orderOf(order)
	if o.noSuchAddress {
		return parcel{}, errAddress
	}
	p := &parcel{ID: fmt.Sprintf("sh_%d", len(c.parcels)+1), Ref: ref, Status: packed}
	c.parcels = append(c.parcels, p)
	if o.dispatchedBy {
		c.world.after(c.world.seconds(20), "the carrier dispatches by itself", func() {
			if p.Status == packed {
				p.Status = dispatched
			}
		})
	}
	return *p, nil
}

// search gives all of a reference, the oldest first.
func (c *carrier) search(ref uuid.UUID) []parcel {
	var found []parcel
	for _, p := range c.parcels {
		if p.Ref == ref {
			found = append(found, *p)
		}
	}
	return found
}

func (c *carrier) get(id string) *parcel {
	for _, p := range c.parcels {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// dispatch and cancel give what has become of a shipment, whether they did it or not.
func (c *carrier) dispatch(order uuid.UUID, id string) (parcel, error) {
	p := c.get(id)
	if p == nil {
		return parcel{}, errNoSuch
	}
	switch {
	case p.Status == packed && c.world.orderOf(order).parcelLost:
		p.Status = lost
	case p.Status == packed:
		p.Status = dispatched
	}
	return *p, nil
}

func (c *carrier) cancel(id string) (parcel, error) {
	p := c.get(id)
	if p == nil {
		return parcel{}, errNoSuch
	}
	if p.Status == packed {
		p.Status = withdrawn
	}
	return *p, nil
}
