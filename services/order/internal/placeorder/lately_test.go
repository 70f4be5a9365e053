package placeorder

import (
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/throughline/throughline/services/order/internal/postgres"
)

// TestLately remembers at least so many orders as half of it holds, also while it forgets, and never more than twice as many.
func TestLately(t *testing.T) {
	t.Parallel()
	of := func(i int) []*entry {
		return []*entry{{Placement: &Placement{Row: postgres.Row{OrderID: uuid.NewSHA1(uuid.NameSpaceOID, []byte(strconv.Itoa(i)))}}}}
	}
	var l lately
	for i := range 3 * latelyHalf {
		if !l.add(of(i)) {
			t.Fatalf("order %d: got known, want new", i)
		}
		if l.add(of(i)) {
			t.Fatalf("order %d again: got new, want known", i)
		}
		if old := i - latelyHalf + 1; old >= 0 && old%1000 == 0 && l.add(of(old)) {
			t.Fatalf("order %d after %d others: got new, want known", old, latelyHalf-1)
		}
		if n := len(l.now) + len(l.before); n > 2*latelyHalf {
			t.Fatalf("after order %d: it holds %d, want at most %d", i, n, 2*latelyHalf)
		}
	}
	if !l.add(of(0)) {
		t.Error("the first order in the end: got known, want forgotten")
	}
	if l.add(append(of(-1), of(3*latelyHalf-1)...)) {
		t.Error("a new order with a known one: got all new, want not all new")
	}
}
