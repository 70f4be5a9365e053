package participant

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// OutcomeLost is the outcome of an attempt whose owner has recorded no end: its process died, or stood still until the step was
// somebody else's. What it called for may have happened.
const OutcomeLost = "lost"

const (
	// maxExchanges bounds the requests that are put on record of one attempt. It makes three or four, and some tens where the outside
	// repeats stored answers.
	maxExchanges = 32
	// maxHistoryText bounds the texts of an attempt and of a request, in bytes: enough to tell a timeout from a refusal. The last error of a
	// step is on record with more of it.
	maxHistoryText = 200
)

// sameReference stands for the reference of the call before, since most calls of an attempt are about one thing. No reference looks so.
const sameReference = "="

// Exchange is one request that an attempt has made to the outside, and what came of it.
type Exchange struct {
	// Operation is the outside's word for what was asked for, such as "create".
	Operation string
	// Key is what the request can be recognised by on the other side: the idempotency key or the reference that it carried.
	Key string
	// Status is the status of the answer, in the outside's numbering; 0 if none came.
	Status int
	// Reference is the outside's id of what it was about, if it was known or answered.
	Reference string
	// Answer is the outside's word for how that is then, such as "requires_capture"; empty where the answer has none.
	Answer string
	// Error says why there was no answer, or what was wrong with it; empty for a plain success.
	Error string
	// Began is when the request was made, by this process's clock, and Took how long it was until its answer, or until it was given up.
	Began time.Time
	Took  time.Duration
}

// Note puts a request that was made within [Step].Perform on record. It is written together with the end of the attempt, in the same
// transaction, so it costs no commit; of an attempt whose process dies it is lost, and the attempt itself is not. It is safe for concurrent
// use, and does nothing with a context that is not of an attempt.
func Note(ctx context.Context, x Exchange) {
	l, ok := ctx.Value(ledgerKey{}).(*ledger)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.exchanges) < maxExchanges {
		l.exchanges = append(l.exchanges, x)
	} else {
		l.dropped++
	}
}

type ledgerKey struct{}

// ledger collects what an attempt does. The attempt and all that it started write it; it is read after the attempt has ended.
type ledger struct {
	began time.Time // by this process's clock

	mu        sync.Mutex
	exchanges []Exchange
	dropped   int
}

func (l *ledger) settled() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Settled(l.exchanges)
}

// line is an attempt as it is stored. Names are short, since there are as many as there are attempts.
type line struct {
	Number    int       `json:"n"`
	Token     int64     `json:"k"`
	Owner     string    `json:"by,omitempty"`
	At        time.Time `json:"at"`
	Micros    int64     `json:"us,omitempty"`
	Outcome   string    `json:"r,omitempty"`
	Error     string    `json:"e,omitempty"`
	Calls     []call    `json:"c,omitempty"`
	Dropped   int       `json:"more,omitempty"` // calls that were too many
	Notice    string    `json:"w,omitempty"`    // then it is no attempt, but somebody's notice
	NoticeKey string    `json:"id,omitempty"`
}

type call struct {
	Operation string `json:"o"`
	Key       string `json:"k,omitempty"`
	Status    int    `json:"s,omitempty"`
	Reference string `json:"id,omitempty"`
	Answer    string `json:"a,omitempty"`
	Error     string `json:"e,omitempty"`
	After     int64  `json:"at"` // µs since the attempt began
	Micros    int64  `json:"us"`
}

func (l line) text() string {
	b, err := json.Marshal(l)
	if err != nil {
		return "" // it consists of texts and numbers
	}
	return string(b) + "\n"
}

// historyOf gives the line of an attempt that has ended, at a time by this process's clock.
func (r *Runner) historyOf(f *finished, l *ledger, ended time.Time) string {
	h := line{
		Number: f.record.Attempts, Token: f.record.Token, Owner: r.cfg.Owner,
		// The claim's time is the database's; what passed since we know it is our own clock's, which does not jump. So this is not later than the
		// attempt began, and earlier by what the database's answer was under way.
		At: f.now.Add(max(l.began.Sub(f.known), 0)).UTC().Truncate(time.Microsecond), Micros: ended.Sub(l.began).Microseconds(),
		Outcome: outcomeName(*f),
	}
	switch o := f.outcome.(type) {
	case Unknown:
		if o.Err != nil {
			h.Error = brief(o.Err.Error())
		}
	case Refused:
		h.Error = brief(o.Reason)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Dropped = l.dropped
	last := ""
	for _, x := range l.exchanges {
		reference := brief(x.Reference)
		if reference != "" && reference == last {
			reference = sameReference
		} else {
			last = reference
		}
		h.Calls = append(h.Calls, call{
			Operation: x.Operation, Key: brief(x.Key), Status: x.Status, Reference: reference, Answer: brief(x.Answer),
			Error: brief(x.Error),
			After: max(x.Began.Sub(l.began), 0).Microseconds(), Micros: x.Took.Microseconds(),
		})
	}
	return h.text()
}

func brief(s string) string {
	s = clean(s)
	return strings.ToValidUTF8(s[:min(len(s), maxHistoryText)], "")
}

// Attempt is an attempt at a step as it is on record.
type Attempt struct {
	// Number counts the attempts at the step from 1. Numbers that are missing are of attempts that were left out of a long history.
	Number int
	// Token is the fencing token under which it ran, and Owner the instance that ran it.
	Token int64
	Owner string
	// At is when it began, by the database's clock; Took how long it was, and 0 where that is not known.
	At   time.Time
	Took time.Duration
	// Outcome is "done", "refused", "waiting", "unknown" or [OutcomeLost]; it is empty while the attempt is running.
	Outcome string
	// Error is the reason of a refusal, or why the outcome is unknown, cut short.
	Error string
	// Exchanges are the requests that it made, in the order in which they ended, with Began by the database's clock.
	Exchanges []Exchange
	// Dropped is how many more there were.
	Dropped int
}

// Settled says how an attempt that made these requests came to know what had become of one that was not answered; empty if all were, or if it did
// not come to know.
func Settled(made []Exchange) string {
	lost, said := "", ""
	for i := range made {
		switch x := &made[i]; {
		case x.Status == 0:
			lost, said = x.Operation, ""
		case lost != "" && x.Status < 300:
			said = fmt.Sprintf("%s was not answered; %s found it %s", lost, x.Operation, cmp.Or(strings.ReplaceAll(x.Answer, "_", " "), "answered"))
		}
	}
	return said
}

// Notice is what the outside said by itself, as it is on record.
type Notice struct {
	ID, Type string
	At       time.Time
}

// History is a step with all that is on record about how it went.
type History struct {
	Record
	CreatedAt time.Time
	// Tried are the attempts, in the order in which they ended.
	Tried   []Attempt
	Notices []Notice
}

const selectHistories = `SELECT ` + recordColumns + `, created_at, history FROM step WHERE order_id = $1 ORDER BY created_at, step_name`

// Histories reads all steps of an order with how they went, the oldest first. An attempt that is running is the last of its step.
func Histories(ctx context.Context, db Querier, order uuid.UUID) ([]History, error) {
	rows, err := db.Query(ctx, selectHistories, order)
	if err != nil {
		return nil, fmt.Errorf("reading the history of order %s: %w", order, err)
	}
	found, err := pgx.CollectRows(rows, scanHistory)
	if err != nil {
		return nil, fmt.Errorf("reading the history of order %s: %w", order, err)
	}
	return found, nil
}

func scanHistory(row pgx.CollectableRow) (History, error) {
	var (
		h    History
		text string
	)
	record, err := scanRecordAnd(row, &h.CreatedAt, &text)
	if err != nil {
		return h, err
	}
	h.Record = record
	h.Tried, h.Notices = parseHistory(text)
	if h.LeaseOwner != "" {
		h.Tried = append(h.Tried, Attempt{Number: h.Attempts, Token: h.Token, Owner: h.LeaseOwner, At: h.UpdatedAt})
	}
	return h, nil
}

// parseHistory reads a history. Lines that cannot be read are of a later release, and are left out.
func parseHistory(text string) (attempts []Attempt, notices []Notice) {
	for one := range strings.Lines(text) {
		var l line
		if json.Unmarshal([]byte(one), &l) != nil {
			continue
		}
		if l.Notice != "" {
			notices = append(notices, Notice{ID: l.NoticeKey, Type: l.Notice, At: l.At})
			continue
		}
		a := Attempt{
			Number: l.Number, Token: l.Token, Owner: l.Owner, At: l.At, Took: time.Duration(l.Micros) * time.Microsecond, Outcome: l.Outcome,
			Error: l.Error, Dropped: l.Dropped,
		}
		last := ""
		for _, c := range l.Calls {
			if c.Reference == sameReference {
				c.Reference = last
			}
			last = c.Reference
			a.Exchanges = append(a.Exchanges, Exchange{
				Operation: c.Operation, Key: c.Key, Status: c.Status, Reference: c.Reference, Answer: c.Answer, Error: c.Error,
				Began: l.At.Add(time.Duration(c.After) * time.Microsecond), Took: time.Duration(c.Micros) * time.Microsecond,
			})
		}
		attempts = append(attempts, a)
	}
	return attempts, notices
}
