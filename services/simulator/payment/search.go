package payment

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
)

// A search query here is one or more of metadata['key']:'value', status:'value'
// and currency:'value' (with either kind of quotes), joined by AND.
var (
	clause = regexp.MustCompile(`^\s*(metadata\[(?:'([^']*)'|"([^"]*)")\]|status|currency)\s*:\s*(?:'([^']*)'|"([^"]*)")\s*`)
	and    = regexp.MustCompile(`^(?:AND|and)\s`)
)

// parseQuery returns the wanted values by field; a metadata field is written
// metadata['key'].
func parseQuery(query string) (map[string]string, error) {
	fields := map[string]string{}
	for rest := query; ; {
		m := clause.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("could not parse %q", rest)
		}
		field := m[1]
		if field != "status" && field != "currency" {
			field = "metadata['" + m[2] + m[3] + "']"
		}
		fields[field] = m[4] + m[5]
		rest = rest[len(m[0]):]
		if rest == "" {
			return fields, nil
		}
		joint := and.FindString(rest)
		if joint == "" {
			return nil, fmt.Errorf("expected AND before %q", rest)
		}
		rest = rest[len(joint):]
	}
}

func (in *intent) fits(fields map[string]string) bool {
	for field, want := range fields {
		var got string
		switch field {
		case "status":
			got = in.Status
		case "currency":
			got = in.Currency
		default:
			got = in.Metadata[field[len("metadata['"):len(field)-len("']")]]
		}
		if got != want {
			return false
		}
	}
	return true
}

func search(f *form, _ string) func(*tx) outcome {
	f.only("query", "limit", "page")
	limit, expand := pageSize(f), f.expands("data.latest_charge")
	fields, err := parseQuery(f.need("query"))
	if err != nil {
		f.fail(invalidParam("query", "", "We were unable to parse your search query: "+err.Error()))
	}
	skip, _ := f.integer("page")
	if skip < 0 {
		f.fail(invalidParam("page", "", "Invalid page."))
	}
	return func(t *tx) outcome {
		list := t.s.ordered
		if order, ok := fields["metadata['order_id']"]; ok {
			list = t.s.byOrder[order]
		}
		// What is younger than the lag has not reached the index yet.
		indexed := t.now.Add(-t.s.searchLag)
		data, seen := []*intentJSON{}, int64(0)
		var next *string
		for _, in := range slices.Backward(list) {
			if t.s.searchLag > 0 && in.CreatedAt.After(indexed) || !in.fits(fields) {
				continue
			}
			if seen++; seen <= skip {
				continue
			}
			if len(data) == limit {
				next = optional(strconv.FormatInt(skip+int64(limit), 10))
				break
			}
			data = append(data, in.render(expand))
		}
		return outcome{body: listJSON{
			Object: "search_result", URL: "/v1/payment_intents/search", HasMore: next != nil, NextPage: next, Data: data,
		}}
	}
}
