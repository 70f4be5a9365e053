package payment

import (
	"math"
	"net/http"
	"sort"
	"strings"
)

// createdRange reads created: one second, or bounds. Both ends of what it
// returns are within.
func createdRange(f *form) (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	if at, ok := f.integer("created"); ok {
		from, to = at, at
	}
	for key := range f.values {
		bound, ok := strings.CutPrefix(key, "created[")
		if !ok {
			continue
		}
		at, given := f.integer(key)
		at = min(max(at, math.MinInt64+1), math.MaxInt64-1) // a step on is still a number
		switch {
		case !given:
		case bound == "gte]":
			from = max(from, at)
		case bound == "gt]":
			from = max(from, at+1)
		case bound == "lte]":
			to = min(to, at)
		case bound == "lt]":
			to = min(to, at-1)
		default:
			f.fail(invalidParam(key, "parameter_unknown", "Received unknown parameter: "+key))
		}
	}
	return from, to
}

// before counts the intents created before that second, which are the first ones.
func (s *store) before(second int64) int {
	return sort.Search(len(s.ordered), func(i int) bool { return s.ordered[i].CreatedAt.Unix() >= second })
}

// position is the place of an intent among all. Its time leads near it: only
// intents of the same moment are looked at one by one.
func (s *store) position(in *intent) int {
	at := sort.Search(len(s.ordered), func(i int) bool { return !s.ordered[i].CreatedAt.Before(in.CreatedAt) })
	for s.ordered[at] != in {
		at++
	}
	return at
}

func list(f *form, _ string) func(*tx) outcome {
	f.only("limit", "starting_after", "created")
	limit, expand, after := pageSize(f), f.expands("data.latest_charge"), f.str("starting_after")
	from, to := createdRange(f)
	return func(t *tx) outcome {
		first, end := t.s.before(from), len(t.s.ordered)
		if to < math.MaxInt64 {
			end = t.s.before(to + 1)
		}
		if after != "" {
			in := t.s.intents[after]
			if in == nil {
				return outcome{err: noSuch(http.StatusBadRequest, "payment_intent", after, "starting_after")}
			}
			end = min(end, t.s.position(in))
		}
		data := []*intentJSON{}
		for end > first && len(data) < limit {
			end--
			data = append(data, t.s.ordered[end].render(expand))
		}
		return outcome{body: listJSON{Object: "list", URL: "/v1/payment_intents", HasMore: end > first, Data: data}}
	}
}
