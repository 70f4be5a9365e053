package carrier_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/control"
)

// clock stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// list gives the ids of all pages.
func (s *simulator) list(limit int, after string, from time.Time) (ids []string, pages int) {
	s.t.Helper()
	for {
		q := url.Values{}
		if limit > 0 {
			q.Set("limit", strconv.Itoa(limit))
		}
		if after != "" {
			q.Set("after", after)
		}
		if !from.IsZero() {
			q.Set("created_from", from.Format(time.RFC3339Nano))
		}
		got := s.call("GET", "/v1/shipments?"+q.Encode(), nil)
		if got.httpStatus != http.StatusOK || got.Shipments == nil {
			s.t.Fatalf("list: got %d %s", got.httpStatus, got.body)
		}
		for _, sh := range got.Shipments {
			ids = append(ids, sh.ID)
		}
		if pages++; got.Next == "" || pages > 100 {
			return ids, pages
		}
		after = got.Next
	}
}

// TestList: seven shipments, each a millisecond after the one before, but for two of the same moment.
func TestList(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	clock := &clock{now: began}
	s := start(t, carrier.Config{Now: clock.Now})
	var made []string
	for i, step := range []int{0, 1, 1, 0, 1, 1, 1} {
		clock.advance(time.Duration(step) * time.Millisecond)
		made = append(made, s.call("POST", "/v1/shipments", request(fmt.Sprint("o", i))).ID)
	}
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	for name, tt := range map[string]struct {
		limit int
		after string
		from  time.Time
		want  []string
		pages int
	}{
		"all":                     {want: made, pages: 1},
		"page by page":            {limit: 2, want: made, pages: 4},
		"one by one":              {limit: 1, want: made, pages: 7},
		"a page that is just all": {limit: 7, want: made, pages: 1},
		"after one of a moment":   {after: made[2], want: made[3:], pages: 1},
		"after the last":          {after: made[6], pages: 1},
		"from":                    {from: at(2), want: made[2:], pages: 1},
		"from, page by page":      {limit: 1, from: at(2).Add(time.Nanosecond), want: made[4:], pages: 3},
		"from, after an earlier":  {after: made[0], from: at(4), want: made[5:], pages: 1},
		"from, after a later":     {after: made[5], from: at(4), want: made[6:], pages: 1},
		"from the future":         {from: at(6), pages: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, pages := s.list(tt.limit, tt.after, tt.from); !slices.Equal(got, tt.want) || pages != tt.pages {
				t.Errorf("got %v on %d pages, want %v on %d", got, pages, tt.want, tt.pages)
			}
		})
	}
}

// TestListIsNoLookup: they are two operations, and a list is about no order.
func TestListIsNoLookup(t *testing.T) {
	t.Parallel()
	s := start(t, carrier.Config{})
	made := s.in("o", carrier.Created)
	s.fault(control.Fault{Operation: "shipments.list", Action: control.FailBefore})
	if got := s.call("GET", "/v1/shipments", nil); got.httpStatus != http.StatusInternalServerError {
		t.Errorf("list: got %d, want 500 as the rule says", got.httpStatus)
	}
	for _, query := range []string{"reference=ref-o", "order_id=o", "reference=ref-o&limit=1"} {
		if got := s.call("GET", "/v1/shipments?"+query, nil); len(got.Shipments) != 1 || got.Shipments[0].ID != made {
			t.Errorf("%s: got %s, want %s", query, got.body, made)
		}
	}
	for _, c := range s.ledger("o").Calls {
		if c.Operation == "shipments.list" {
			t.Errorf("calls of the order: got a list, %+v", c)
		}
	}
}

// TestListAfterTheClockWasPutBack: times of a list never go back, also after a restart.
func TestListAfterTheClockWasPutBack(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	clock := &clock{now: began}
	dir := t.TempDir()
	s := start(t, carrier.Config{Now: clock.Now, DataDir: dir})
	made := []string{s.in("o1", carrier.Created)}
	clock.advance(-time.Hour)
	made = append(made, s.in("o2", carrier.Created))
	s.stop()
	clock.advance(30 * time.Minute)
	s = start(t, carrier.Config{Now: clock.Now, DataDir: dir})
	made = append(made, s.in("o3", carrier.Created))
	if got, _ := s.list(1, "", began); !slices.Equal(got, made) {
		t.Errorf("got %v, want %v", got, made)
	}
}
