package payment_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/simulator/payment"
)

// list gives the ids of all pages, read by the provider's own client.
func (s *simulator) list(p *stripe.PaymentIntentListParams) (ids []string) {
	s.t.Helper()
	for pi, err := range s.stripe.V1PaymentIntents.List(s.t.Context(), p) {
		if err != nil {
			s.t.Fatalf("listing: %v", err)
		}
		ids = append(ids, pi.ID)
	}
	return ids
}

func (s *simulator) get(path string) raw {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk_test_1")
	r, err := do(req)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	return r
}

// TestList: seven intents, one a second but for two of the same moment.
func TestList(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	clock := &clock{now: began}
	s := start(t, payment.Config{Now: clock.Now})
	var made []string // newest first
	for i, step := range []int{0, 1, 1, 0, 1, 1, 1} {
		clock.advance(time.Duration(step) * time.Second)
		made = slices.Insert(made, 0, s.mustCreate(fmt.Sprint("o", i), "pm_card_visa").ID)
	}
	// Seconds after the start, newest first: 5 4 3 2 2 1 0.
	at := func(s int64) int64 { return began.Unix() + s }
	for name, tt := range map[string]struct {
		limit   int64
		after   string
		created *stripe.RangeQueryParams
		exactly *int64
		want    []string
	}{
		"all":                     {want: made},
		"page by page":            {limit: 2, want: made},
		"one by one":              {limit: 1, want: made},
		"a page that is just all": {limit: 7, want: made},
		"after one":               {after: made[2], want: made[3:]},
		"after one of a moment":   {after: made[3], want: made[4:]},
		"after the last":          {after: made[6]},
		"from":                    {created: &stripe.RangeQueryParams{GreaterThanOrEqual: at(2)}, want: made[:5]},
		"later than":              {created: &stripe.RangeQueryParams{GreaterThan: at(2)}, want: made[:3]},
		"up to":                   {created: &stripe.RangeQueryParams{LesserThanOrEqual: at(2)}, want: made[3:]},
		"earlier than":            {created: &stripe.RangeQueryParams{LesserThan: at(2)}, want: made[5:]},
		"between, page by page":   {limit: 1, created: &stripe.RangeQueryParams{GreaterThan: at(0), LesserThan: at(4)}, want: made[2:6]},
		"within, after one":       {after: made[3], created: &stripe.RangeQueryParams{GreaterThanOrEqual: at(1), LesserThanOrEqual: at(5)}, want: made[4:6]},
		"up to, after a later":    {after: made[0], created: &stripe.RangeQueryParams{LesserThanOrEqual: at(2)}, want: made[3:]},
		"in one second":           {exactly: stripe.Int64(at(2)), want: made[3:5]},
		"at no time":              {created: &stripe.RangeQueryParams{GreaterThan: at(5)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &stripe.PaymentIntentListParams{CreatedRange: tt.created, Created: tt.exactly}
			if tt.limit > 0 {
				p.Limit = stripe.Int64(tt.limit)
			}
			if tt.after != "" {
				p.StartingAfter = stripe.String(tt.after)
			}
			if got := s.list(p); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestListShows(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.in("o", stripe.PaymentIntentStatusSucceeded)
	if _, err := s.refund(pi.ID, "r", 99); err != nil {
		t.Fatal(err)
	}
	p := &stripe.PaymentIntentListParams{}
	p.AddExpand("data.latest_charge")
	for got, err := range s.stripe.V1PaymentIntents.List(t.Context(), p) {
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != stripe.PaymentIntentStatusSucceeded || got.AmountReceived != 1099 || got.Metadata["order_id"] != "o" ||
			got.LatestCharge.AmountRefunded != 99 {
			t.Errorf("listed: got %s, received %d, refunded %d, order %q", got.Status, got.AmountReceived, got.LatestCharge.AmountRefunded, got.Metadata["order_id"])
		}
	}
	want := `{"object":"list","url":"/v1/payment_intents","has_more":false,"data":[{"id":"` + pi.ID + `"`
	if got := s.get("/v1/payment_intents").body; !strings.HasPrefix(got, want) {
		t.Errorf("list: got %s, want it to begin with %s", got, want)
	}
	// A listing is about no order, so rules of an order pass it by, and its calls are nobody's.
	s.fault(control.Fault{Operation: "payment_intents.list", OrderID: "o", Action: control.FailBefore})
	if got := s.get("/v1/payment_intents").status; got != http.StatusOK {
		t.Errorf("with a rule for one order: got %d, want 200", got)
	}
	s.fault(control.Fault{Operation: "payment_intents.list", Action: control.FailBefore})
	if got := s.get("/v1/payment_intents").status; got != http.StatusInternalServerError {
		t.Errorf("with a rule: got %d, want 500", got)
	}
}

func TestListRefuses(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	for query, param := range map[string]string{
		"limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "starting_after=pi_nope": "starting_after",
		"created=x": "created", "created[gte]=x": "created[gte]", "created[ge]=1": "created[ge]", "customer=cus_1": "customer",
	} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			got := s.get("/v1/payment_intents?" + query)
			if got.status != http.StatusBadRequest || !strings.Contains(got.body, `"param":"`+param+`"`) {
				t.Errorf("got %d %s, want 400 about %s", got.status, got.body, param)
			}
		})
	}
}

// TestListAfterTheClockWasPutBack: times of a list never go back, also after a restart.
func TestListAfterTheClockWasPutBack(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_700_000_000, 0)
	clock := &clock{now: began}
	dir := t.TempDir()
	s := start(t, payment.Config{Now: clock.Now, DataDir: dir})
	made := []string{s.mustCreate("o1", "").ID}
	clock.advance(-time.Hour)
	second := s.mustCreate("o2", "")
	made = append(made, second.ID)
	if second.Created != began.Unix() {
		t.Errorf("created: got %d, want that of the one before, %d", second.Created, began.Unix())
	}
	s.stop()
	clock.advance(30 * time.Minute)
	s = start(t, payment.Config{Now: clock.Now, DataDir: dir})
	made = append(made, s.mustCreate("o3", "").ID)
	slices.Reverse(made)
	p := &stripe.PaymentIntentListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: began.Unix()}}
	p.Limit = stripe.Int64(1)
	if got := s.list(p); !slices.Equal(got, made) {
		t.Errorf("got %v, want %v", got, made)
	}
}
