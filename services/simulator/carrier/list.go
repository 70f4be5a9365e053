package carrier

import (
	"fmt"
	"io"
	"sort"
	"strconv"
	"time"
)

// The sizes of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

// since is the place of the first shipment made at that moment or later.
func (s *store) since(at time.Time) int {
	return sort.Search(len(s.ordered), func(i int) bool { return !s.ordered[i].CreatedAt.Before(at) })
}

// position is the place of a shipment among all. Its time leads near it: only
// shipments of the same moment are looked at one by one.
func (s *store) position(sh *Shipment) int {
	at := s.since(sh.CreatedAt)
	for s.ordered[at] != sh {
		at++
	}
	return at
}

// page is the answer of a list.
type page struct {
	Shipments []*Shipment `json:"shipments"`
	Next      string      `json:"next,omitempty"`
}

func list(in *input, _ io.Reader) func(*tx) outcome {
	limit, after := defaultPage, in.query.Get("after")
	if v := in.query.Get("limit"); v != "" {
		var err error
		if limit, err = strconv.Atoi(v); err != nil || limit < 1 || limit > maxPage {
			in.err = invalid(fmt.Sprintf("limit must be a number from 1 to %d", maxPage))
			return nil
		}
	}
	var from time.Time
	if v := in.query.Get("created_from"); v != "" {
		var err error
		if from, err = time.Parse(time.RFC3339, v); err != nil {
			in.err = invalid("created_from must be a time as in RFC 3339")
			return nil
		}
	}
	return func(t *tx) outcome {
		first := t.s.since(from)
		if after != "" {
			sh := t.s.shipments[after]
			if sh == nil {
				return outcome{err: invalid("after names no shipment: " + after)}
			}
			first = max(first, t.s.position(sh)+1)
		}
		last := min(first+limit, len(t.s.ordered))
		p := page{Shipments: append([]*Shipment{}, t.s.ordered[first:last]...)}
		if last < len(t.s.ordered) {
			p.Next = t.s.ordered[last-1].ID
		}
		return outcome{body: encode(p)}
	}
}
