package trail

import (
	"errors"
	"fmt"
	"strings"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

// ErrNotFound says that no service that has answered knows the id.
var ErrNotFound = errors.New("no order is known by this id")

// ErrIncomplete is in the chain of [ErrNotFound] when not every service has answered: another one may know the id.
var ErrIncomplete = errors.New("not every service has answered")

// AmbiguousError says that an id belongs to several orders, as a key that several clients have used does.
type AmbiguousError struct {
	ID      string
	Matches []*trailv1.Match
}

func (e *AmbiguousError) Error() string {
	orders := make([]string, len(e.Matches))
	for i, m := range e.Matches {
		orders[i] = m.GetOrderId()
		if m.GetClientId() != "" {
			orders[i] += " of " + m.GetClientId()
		}
	}
	return fmt.Sprintf("%q belongs to several orders: %s", e.ID, strings.Join(orders, ", "))
}
