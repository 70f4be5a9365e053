package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/topology"
)

const (
	// maxSuspects bounds how many orders a run looks at again, each of which takes some calls. If more look wrong, that is said.
	maxSuspects = 1000
	// callTimeout bounds one call. It is below what a server gives a call.
	callTimeout = 25 * time.Second
	// A call that is not answered is repeated, so that a run of many does not end for one.
	callAttempts = 3
	callRetry    = 200 * time.Millisecond
	// maxRest bounds how long a run rests after one call.
	maxRest = 2 * time.Second

	defaultLooks = 5
	defaultPause = time.Second
)

// ErrNoOrders says that a Verifier was not told how to ask the order service.
var ErrNoOrders = errors.New("the order service is not among the services")

// Verifier compares what the services know. It may be used again and again, one run at a time.
type Verifier struct {
	// Services are asked, by their names in subjects: order, payment and shipping.
	Services map[string]verifyv1.VerifyServiceClient
}

// Options are of one run. The zero value looks at all orders that there are.
type Options struct {
	// Since is from when on to look: at orders and messages that are about something since then, and at what was made outside. An
	// older order is found if it is overdue, or if something was made for it since. The zero time looks at all orders, and at all messages
	// that are kept.
	Since time.Time
	// Known are orders to look at whatever has become of them.
	Known []uuid.UUID
	// Share is the part of its time for which the run lets others work: 0.9 means that after each call it rests nine times as long
	// as the call took.
	Share float64
	// Pause is how long after the first look what looks wrong is looked at again, and twice as long each time; 0 means a second. Looks is
	// how often at most; less than 2 means 5.
	Pause time.Duration
	Looks int
	// Progress is told now and then what is being looked at, and how much of it was; nil is told nothing.
	Progress func(what string, n int64)
}

// Run looks at the system once. What cannot be asked is a gap of the report; an error says that ctx has ended, or that nothing can be asked.
func (v *Verifier) Run(ctx context.Context, opts Options) (*Report, error) {
	if v.Services[topology.Order] == nil {
		return nil, ErrNoOrders
	}
	if opts.Pause <= 0 {
		opts.Pause = defaultPause
	}
	if opts.Looks < 2 {
		opts.Looks = defaultLooks
	}
	if opts.Progress == nil {
		opts.Progress = func(string, int64) {}
	}
	r := &run{
		services: v.Services, opts: opts, report: &Report{Began: time.Now(), Since: opts.Since}, suspects: make(map[uuid.UUID]bool), sums: make(ledger),
		odd: make(map[uuid.UUID][]string),
	}
	for _, id := range opts.Known {
		r.suspects[id] = true
	}
	err := errors.Join(r.readOrders(ctx), r.readMessages(ctx), r.readOutside(ctx), r.lookAgain(ctx))
	if ctx.Err() != nil {
		return nil, fmt.Errorf("verifying effects: %w", ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("verifying effects: %w", err)
	}
	r.report.sort()
	r.report.Took = time.Since(r.report.Began)
	return r.report, nil
}

// run is one run.
type run struct {
	services map[string]verifyv1.VerifyServiceClient
	opts     Options
	report   *Report
	book     book
	// suspects are orders that look wrong; more is how many are left out.
	suspects map[uuid.UUID]bool
	more     int64
	sums     ledger
	// odd are payments that are not the ones that the payment service has on record, of orders at rest and of unknown ones, by the order's id.
	// The provider may find them by a search only later.
	odd map[uuid.UUID][]string
	// blind says that orders, or what the outside holds for them, could not be read: then no rule about both can be applied.
	blind bool
}

func (r *run) suspect(id uuid.UUID) {
	switch {
	case r.suspects[id]:
	case len(r.suspects) >= maxSuspects:
		r.more++
	default:
		r.suspects[id] = true
	}
}

func (r *run) gap(service, what string, err error) {
	r.report.Gaps = append(r.report.Gaps, Gap{Service: service, What: what, Why: status.Convert(err).Message()})
}

// ask makes a call, again if it is not answered, and rests for a while.
func ask[Req, Resp any](ctx context.Context, r *run, call func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	for attempt := 1; ; attempt++ {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		resp, err := call(bounded, req)
		cancel()
		if rest := r.opts.Share; rest > 0 && rest < 1 {
			wait(ctx, min(time.Duration(float64(time.Since(began))*rest/(1-rest)), maxRest))
		}
		if err == nil || attempt == callAttempts || status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			return resp, err
		}
		wait(ctx, callRetry<<(attempt-1))
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// readOrders fills the book.
func (r *run) readOrders(ctx context.Context) error {
	client := r.services[topology.Order]
	// Orders that go on meanwhile are left to the next run.
	req := &verifyv1.ListOrdersRequest{Since: timestampOf(r.opts.Since), Until: timestampOf(r.report.Began)}
	oldest := r.report.Began
	for {
		resp, err := ask(ctx, r, client.ListOrders, req)
		if err != nil {
			r.gap(topology.Order, "orders", err)
			r.blind = true
			break
		}
		for _, o := range resp.GetOrders() {
			id, err := uuid.Parse(o.GetOrderId())
			if err != nil {
				return fmt.Errorf("reading orders: %q is no order id: %w", o.GetOrderId(), err)
			}
			r.book.add(id, o.GetStatus(), o.GetCurrency(), o.GetTotal())
			if at := o.GetCreatedAt().AsTime(); OnItsWay(o.GetStatus()) && at.Before(oldest) {
				oldest = at
			}
			if len(timely(o))+len(agrees(o)) > 0 {
				r.suspect(id)
			}
		}
		r.opts.Progress("orders", int64(len(r.book.entries)))
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	r.book.seal()
	r.report.Orders = int64(len(r.book.entries))
	for i := range r.book.entries {
		switch e := &r.book.entries[i]; e.status {
		case moving:
			r.report.InFlight++
		case open:
			r.report.Open++
		default:
		}
	}
	if r.report.InFlight > 0 {
		r.report.OldestInFlight = r.report.Began.Sub(oldest)
	}
	return nil
}

// readMessages looks what became of the messages of every service.
func (r *run) readMessages(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(r.services)) {
		client := r.services[name]
		// Messages that are written while the run goes on are left to the next one.
		req := &verifyv1.CheckMessagesRequest{From: timestampOf(r.opts.Since), To: timestampOf(r.report.Began)}
		for {
			resp, err := ask(ctx, r, client.CheckMessages, req)
			if err != nil {
				r.gap(name, "messages", err)
				break
			}
			r.report.Messages += resp.GetLookedAt()
			r.report.PendingMessages += int64(len(resp.GetPending()))
			r.opts.Progress("messages", r.report.Messages)
			for _, f := range resp.GetFindings() {
				r.suspectOf(f.GetMessage())
			}
			waiting, missing := r.receipts(ctx, resp.GetAcknowledged())
			r.report.PendingMessages += int64(len(waiting))
			for _, m := range missing {
				r.suspectOf(m.GetMessage())
			}
			if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
	}
	return nil
}

func (r *run) suspectOf(m *verifyv1.Message) {
	if id, err := uuid.Parse(m.GetOrderId()); err == nil {
		r.suspect(id)
	}
}
