package placeorder

import (
	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
)

// Versions are all plans that unfinished orders may have begun with: the newest, and those before it. A plan is never changed; a new one has
// the next number, and the one before stays here for as long as an instance without it would have anything to leave alone, which its log
// and the gauge throughline_saga_unknown tell.
func Versions() []*saga.Definition[*orderv1.PlaceOrder] {
	return []*saga.Definition[*orderv1.PlaceOrder]{Definition}
}
