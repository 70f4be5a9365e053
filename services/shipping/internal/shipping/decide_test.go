package shipping_test

import (
	"reflect"
	"testing"

	"github.com/throughline/throughline/services/shipping/internal/shipping"
)

func TestDecisions(t *testing.T) {
	t.Parallel()
	created, other := shipping.Shipment{ID: "a", Status: shipping.Created}, shipping.Shipment{ID: "b", Status: shipping.Created}
	sent, sentToo := shipping.Shipment{ID: "c", Status: shipping.Dispatched}, shipping.Shipment{ID: "d", Status: shipping.Dispatched}
	cancelled, lost := shipping.Shipment{ID: "e", Status: shipping.Cancelled}, shipping.Shipment{ID: "f", Status: shipping.Lost}
	strange := shipping.Shipment{ID: "g", Status: "teleported"}
	list := func(s ...shipping.Shipment) []shipping.Shipment { return s }
	ask := shipping.Decision{Act: shipping.Ask}
	for name, tt := range map[string]struct {
		found          []shipping.Shipment
		create, cancel shipping.Decision
	}{
		"nothing": {
			nil,
			shipping.Decision{Act: shipping.Create}, shipping.Decision{Act: shipping.Finish},
		},
		"one": {
			list(created),
			shipping.Decision{Act: shipping.Finish, Keep: created}, shipping.Decision{Act: shipping.Finish, Cancel: list(created)},
		},
		"two: the older one is kept": {
			list(created, other),
			shipping.Decision{Act: shipping.Finish, Keep: created, Cancel: list(other)},
			shipping.Decision{Act: shipping.Finish, Cancel: list(created, other)},
		},
		"two: the one on its way is kept": {
			list(created, sent),
			shipping.Decision{Act: shipping.Finish, Keep: sent, Cancel: list(created)},
			shipping.Decision{Act: shipping.Refuse, Reason: "already_dispatched", Keep: sent, Cancel: list(created)},
		},
		"two on their way": {
			list(sent, sentToo),
			shipping.Decision{Act: shipping.Finish, Keep: sent, Cancel: list(sentToo)},
			shipping.Decision{Act: shipping.Refuse, Reason: "already_dispatched", Keep: sent},
		},
		"a cancelled one": {
			list(cancelled),
			shipping.Decision{Act: shipping.Refuse, Reason: "cancelled_at_carrier"}, shipping.Decision{Act: shipping.Finish},
		},
		"a lost one": {
			list(lost),
			shipping.Decision{Act: shipping.Refuse, Reason: "lost_at_carrier"}, shipping.Decision{Act: shipping.Finish},
		},
		"a cancelled extra": {
			list(cancelled, created),
			shipping.Decision{Act: shipping.Finish, Keep: created}, shipping.Decision{Act: shipping.Finish, Cancel: list(created)},
		},
		"one in a status nobody planned for": {
			list(created, strange),
			ask, shipping.Decision{Act: shipping.Ask, Cancel: list(created)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := shipping.ForCreate(tt.found); !reflect.DeepEqual(got, tt.create) {
				t.Errorf("create: got %+v, want %+v", got, tt.create)
			}
			if got := shipping.ForCancel(tt.found); !reflect.DeepEqual(got, tt.cancel) {
				t.Errorf("cancel: got %+v, want %+v", got, tt.cancel)
			}
		})
	}
	for _, tt := range []struct {
		in   shipping.Shipment
		want shipping.Decision
	}{
		{created, shipping.Decision{Act: shipping.Dispatch}},
		{sent, shipping.Decision{Act: shipping.Finish, Keep: sent}},
		{cancelled, shipping.Decision{Act: shipping.Refuse, Reason: "cancelled_at_carrier"}},
		{lost, shipping.Decision{Act: shipping.Refuse, Reason: "lost_at_carrier"}},
		{strange, ask},
	} {
		if got := shipping.ForDispatch(tt.in); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("dispatch of a %s one: got %+v, want %+v", tt.in.Status, got, tt.want)
		}
	}
}
