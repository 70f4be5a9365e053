package participant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"github.com/throughline/throughline/pkg/postgres"
)

// tried reads how a step went, as number, outcome and error of each attempt, with its requests.
func (d *desk) tried(order uuid.UUID, name string) (h History, said []string) {
	d.Helper()
	found, err := Histories(d.Context(), d.pool, order)
	if err != nil {
		d.Fatal(err)
	}
	for _, h = range found {
		if h.StepName != name {
			continue
		}
		for _, a := range h.Tried {
			s := joined(fmt.Sprint(a.Number), a.Outcome, a.Error)
			for _, x := range a.Exchanges {
				s += fmt.Sprintf(" [%s %s %d %s]", x.Operation, x.Key, x.Status, joined(x.Reference, x.Error))
			}
			said = append(said, s)
		}
		return h, said
	}
	d.Fatalf("step %s of %s is not on record", name, order)
	return History{}, nil
}

func (d *desk) says(order uuid.UUID, name string, want ...string) History {
	d.Helper()
	h, got := d.tried(order, name)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		d.Errorf("history of %s:\ngot  %q\nwant %q", name, got, want)
	}
	return h
}

// Each attempt is on record with what it asked the outside and what it was answered; one that is running is, too.
func TestHistory(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	outcomes := []Outcome{Unknown{Err: errors.New("no answer\x00")}, Waiting{Ask: time.Hour, Reference: "r12"}, Refused{Reason: "full", Reference: "r12"}}
	running := make(chan struct{})
	r := d.runner(Step{Name: hold, Perform: func(ctx context.Context, c *Call) Outcome {
		began := time.Now()
		Note(ctx, Exchange{Operation: "book", Key: "k1", Answer: "pending", Error: "timeout", Began: began, Took: time.Second})
		if c.Attempt > 1 {
			Note(ctx, Exchange{Operation: "look", Status: 200, Reference: "r12", Began: began.Add(time.Second), Took: time.Millisecond})
			Note(ctx, Exchange{Operation: "look", Status: 200, Reference: "r12", Began: began.Add(time.Second), Took: time.Millisecond})
			Note(ctx, Exchange{Operation: "search", Status: 200, Began: began.Add(time.Second), Took: time.Millisecond})
		}
		if c.Attempt == 1 {
			<-running
		}
		return outcomes[c.Attempt-1]
	}})
	order := uuid.New()
	d.apply(r, command(order, hold))
	if h := d.says(order, hold, "1"); h.Tried[0].Owner != r.cfg.Owner || h.Tried[0].Token != 1 {
		t.Errorf("running attempt: got %+v, want owner %q, token 1", h.Tried[0], r.cfg.Owner)
	}
	close(running)
	d.finish(r)
	d.says(order, hold, "1 unknown no answer\uFFFD [book k1 0 timeout]")
	for range 2 {
		d.pass(2 * time.Hour)
		d.claim(r)
		d.finish(r)
	}
	h := d.says(order, hold,
		"1 unknown no answer\uFFFD [book k1 0 timeout]",
		"2 waiting [book k1 0 timeout] [look  200 r12] [look  200 r12] [search  200 ]",
		"3 refused full [book k1 0 timeout] [look  200 r12] [look  200 r12] [search  200 ]")
	last := h.Tried[2]
	if last.Token != 5 || last.Owner != r.cfg.Owner || last.At.Sub(h.CreatedAt) < 0 || last.At.Sub(h.CreatedAt) > time.Minute || last.Took <= 0 {
		t.Errorf("last attempt: got %+v, want token 5, owner %q, soon after %s", last, r.cfg.Owner, h.CreatedAt)
	}
	if x := last.Exchanges; x[0].Answer != "pending" || x[0].Took != time.Second || x[1].Began.Sub(x[0].Began) != time.Second {
		t.Errorf("requests: got %+v, want the second one second after the first", x)
	}
}

// An attempt whose owner has recorded no end is on record as lost: when the step is taken over, and when its undo shuts the owner out.
func TestHistoryOfTheLost(t *testing.T) {
	t.Parallel()
	t.Run("taken over", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		dead, calls := newGate(), counter{}
		r, other := d.runner(dead.step(hold)), d.runner(calls.step(hold, held))
		order := uuid.New()
		d.apply(r, command(order, hold))
		dead.call(d)
		d.pass(DefaultLease)
		d.claim(other)
		d.finish(other)
		h := d.says(order, hold, "1 lost", "2 done")
		if h.Tried[0].Owner != r.cfg.Owner || h.Tried[0].Token != 1 || h.Tried[1].Owner != other.cfg.Owner {
			t.Errorf("owners: got %+v, want %q, then %q", h.Tried, r.cfg.Owner, other.cfg.Owner)
		}
		dead.answer <- held
		d.finish(r) // too late: it is not recorded
		d.says(order, hold, "1 lost", "2 done")
	})
	t.Run("shut out by its undo", func(t *testing.T) {
		t.Parallel()
		d := newDesk(t)
		dead, undo := newGate(), counter{}
		steps := []Step{dead.step(hold), undo.step(release, Done{}, hold)}
		r, other := d.runner(steps...), d.runner(steps...)
		order := uuid.New()
		d.apply(r, command(order, hold))
		dead.call(d)
		d.pass(DefaultLease + DefaultSettle)
		d.apply(other, command(order, release))
		d.finish(other)
		d.says(order, hold, "1 lost")
		d.says(order, release, "1 done")
		dead.answer <- held
		d.finish(r)
		d.says(order, hold, "1 lost")
	})
}

// An undo that has to wait for its action has not been attempted.
func TestHistoryWithoutTheBlocked(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	action, undo := newGate(), counter{}
	r := d.runner(action.step(hold), undo.step(release, Done{}, hold))
	order := uuid.New()
	d.apply(r, command(order, hold))
	action.call(d)
	d.apply(r, command(order, release))
	d.finish(r)
	d.says(order, release)
	action.answer <- held
	d.finish(r)
	d.says(order, hold, "1 done")
}

// The history of a step that is attempted for ever is bounded, and shows the first and the last attempts.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	calls := counter{}
	r := d.runner(calls.step(hold, Unknown{Err: errors.New(strings.Repeat("no answer ", 100)), RetryAfter: time.Millisecond}))
	r.retries.SetLimit(rate.Inf) // which goes by the machine's time
	order := uuid.New()
	d.apply(r, command(order, hold))
	d.finish(r)
	const attempts = 120 // of 300 bytes
	for range attempts - 1 {
		d.pass(time.Second)
		d.claim(r)
		d.finish(r)
	}
	var size int
	if err := d.pool.QueryRow(t.Context(), `SELECT octet_length(history) FROM step WHERE order_id = $1`, order).Scan(&size); err != nil {
		t.Fatal(err)
	}
	h, _ := d.tried(order, hold)
	n := len(h.Tried)
	if size > 17<<10 || n < 30 || n >= attempts || h.Tried[0].Number != 1 || h.Tried[9].Number != 10 || h.Tried[n-1].Number != attempts ||
		h.Tried[n-10].Number != attempts-9 {
		t.Errorf("history: got %d bytes, %d attempts, first %d, last %d, want at most 17 KiB and the first and last of %d", size, n,
			h.Tried[0].Number, h.Tried[n-1].Number, attempts)
	}
}

// A panicking step leaves what it had noted.
func TestHistoryOfAPanic(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r := d.runner(Step{Name: hold, Perform: func(ctx context.Context, _ *Call) Outcome {
		for range maxExchanges + 3 {
			Note(ctx, Exchange{Operation: "book"})
		}
		panic("oh")
	}})
	order := uuid.New()
	d.apply(r, command(order, hold))
	d.finish(r)
	h, _ := d.tried(order, hold)
	if len(h.Tried) != 1 || h.Tried[0].Error != "step panicked: oh" || len(h.Tried[0].Exchanges) != maxExchanges || h.Tried[0].Dropped != 3 {
		t.Errorf("history: got %+v, want one attempt with %d requests, 3 dropped", h.Tried, maxExchanges)
	}
}

// Notices are kept with the action that they are about, whether it is finished or not, and nudge the others.
func TestHistoryOfNotices(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	calls := counter{}
	r := d.runner(calls.step(hold, held), calls.step(tidy, Unknown{RetryAfter: time.Hour}))
	order := uuid.New()
	d.apply(r, command(order, hold), command(order, tidy))
	d.finish(r)
	d.finish(r)
	var b pgx.Batch
	QueueNotice(&b, order, hold, "evt_1", "room.held", hold, tidy)
	QueueNotice(&b, uuid.New(), hold, "evt_2", "room.held", hold)
	if err := postgres.SendAtomic(t.Context(), d.pool, &b); err != nil {
		t.Fatal(err)
	}
	h := d.says(order, hold, "1 done")
	if len(h.Notices) != 1 || h.Notices[0].ID != "evt_1" || h.Notices[0].Type != "room.held" || h.Notices[0].At.Before(h.CreatedAt) {
		t.Errorf("notices: got %+v, want evt_1 room.held", h.Notices)
	}
	if rec := d.step(order, hold); rec.DueAt != nil {
		t.Errorf("finished step is due at %v, want never", rec.DueAt)
	}
	if rec := d.step(order, tidy); rec.DueAt == nil || time.Until(*rec.DueAt) > time.Minute {
		t.Errorf("open step is due at %v, want now", rec.DueAt)
	}
}

// Whoever reads of an attempt that was done learns how a lost answer was found out, and nothing where it was not.
func TestSettled(t *testing.T) {
	t.Parallel()
	create := Exchange{Operation: "create", Status: 200, Answer: "made"}
	lost := Exchange{Operation: "confirm"}
	found := Exchange{Operation: "retrieve", Status: 200, Answer: "requires_capture"}
	for name, test := range map[string]struct {
		made []Exchange
		want string
	}{
		"all answered":      {[]Exchange{create, found}, ""},
		"found out":         {[]Exchange{create, lost, found}, "confirm was not answered; retrieve found it requires capture"},
		"no word for it":    {[]Exchange{lost, {Operation: "list", Status: 200}}, "confirm was not answered; list found it answered"},
		"lost at last":      {[]Exchange{create, lost}, ""},
		"lost again":        {[]Exchange{lost, found, lost}, ""},
		"the question, too": {[]Exchange{lost, {Operation: "retrieve", Status: 503}}, ""},
		"nothing":           {nil, ""},
	} {
		if got := Settled(test.made); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// Outside of an attempt there is nothing to note in.
func TestNoteOutsideOfAnAttempt(t *testing.T) {
	t.Parallel()
	Note(t.Context(), Exchange{Operation: "book"})
}
