package trail

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/keys"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

const (
	// DefaultPatience is how long a service may take to tell what it has on record: reading it takes milliseconds.
	DefaultPatience = 5 * time.Second
	// findPatience is for the search for an id, which may go through all steps.
	findPatience = scanTime + 5*time.Second
)

// The reasons of gaps.
const (
	GapUnreachable = "unreachable"
	GapRefused     = "refused"
	GapError       = "error"
	GapLeftOut     = "left_out"
)

// Source is a service that is asked.
type Source struct {
	Service string
	Client  trailv1.TrailServiceClient
}

// Assembler makes one story of what all services tell. It keeps nothing and may be used by many at once. Calls need the operator
// credential in what Sources were made with.
type Assembler struct {
	Sources []Source
	// Patience is how long one service may take; 0 means DefaultPatience.
	Patience time.Duration
}

// Question says which story is asked for.
type Question struct {
	// ID is an id of any kind.
	ID string
	// ClientID says whose key it is, if it is one; empty is any client's.
	ClientID string
	// Reveal asks for personal data, for Actor, because of Reason.
	Reveal        bool
	Actor, Reason string
}

// Find tells which order an id belongs to. The error wraps [ErrNotFound], or is an *[AmbiguousError]. Gaps are the services that did not
// answer; what is found is true all the same.
func (a *Assembler) Find(ctx context.Context, id, clientID string) (*trailv1.Match, []*trailv1.Gap, error) {
	var mu sync.Mutex
	var matches []*trailv1.Match
	gaps := a.each(ctx, findPatience, func(ctx context.Context, s Source) error {
		resp, err := s.Client.FindOrders(ctx, &trailv1.FindOrdersRequest{Id: id, ClientId: clientID})
		mu.Lock()
		defer mu.Unlock()
		matches = append(matches, resp.GetMatches()...)
		return err
	})
	if len(matches) == 0 && len(gaps) > 0 && clientID != "" {
		// The order's id follows from client and key, whoever is away.
		order := keys.OrderID(clientID, id).String()
		if known, _, err := a.Find(ctx, order, ""); err == nil {
			return &trailv1.Match{OrderId: known.GetOrderId(), Kind: trailv1.IdKind_ID_KIND_IDEMPOTENCY_KEY, ClientId: clientID}, gaps, nil
		}
	}
	byOrder := make(map[string]*trailv1.Match)
	var orders []string
	for _, m := range matches {
		best := byOrder[m.GetOrderId()]
		if best == nil {
			orders = append(orders, m.GetOrderId())
		}
		if best == nil || m.GetKind() < best.GetKind() || m.GetKind() == best.GetKind() && best.GetClientId() == "" {
			byOrder[m.GetOrderId()] = m
		}
	}
	switch len(orders) {
	case 0:
		if len(gaps) > 0 {
			return nil, gaps, fmt.Errorf("%w: %q (%w: %s)", ErrNotFound, id, ErrIncomplete, gaps[0].GetDetail())
		}
		return nil, nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	case 1:
		return byOrder[orders[0]], gaps, nil
	}
	slices.Sort(orders)
	e := &AmbiguousError{ID: id}
	for _, order := range orders {
		e.Matches = append(e.Matches, byOrder[order])
	}
	return nil, gaps, e
}

// Assemble tells the story of the order that an id belongs to. Errors are those of [Assembler.Find], and [ErrNotFound] if nobody has
// anything to tell. A service that does not answer is no error but a gap.
func (a *Assembler) Assemble(ctx context.Context, q Question) (*trailv1.Timeline, error) {
	match, _, err := a.Find(ctx, q.ID, q.ClientID)
	if err != nil {
		return nil, err
	}
	t, err := a.Timeline(ctx, match.GetOrderId(), q)
	if err != nil {
		return nil, err
	}
	t.AskedFor, t.AskedKind = q.ID, match.GetKind()
	if t.GetClientId() == "" {
		t.ClientId = match.GetClientId()
	}
	return t, nil
}

// Timeline tells the story of an order, whose id is known; of the question only what it says of personal data counts.
func (a *Assembler) Timeline(ctx context.Context, order string, q Question) (*trailv1.Timeline, error) {
	if _, err := uuid.Parse(order); err != nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, order)
	}
	t := &trailv1.Timeline{OrderId: order, AskedFor: order, AskedKind: trailv1.IdKind_ID_KIND_ORDER_ID}
	var mu sync.Mutex
	var leftOut []*trailv1.Gap
	t.Gaps = a.each(ctx, cmp.Or(a.Patience, DefaultPatience), func(ctx context.Context, s Source) error {
		resp, err := s.Client.ListEntries(ctx, &trailv1.ListEntriesRequest{OrderId: order, Reveal: q.Reveal, Actor: q.Actor, Reason: q.Reason})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		t.Entries = append(t.Entries, resp.GetEntries()...)
		if len(resp.GetEntries()) == 0 {
			return nil // what it does not know it has not left out
		}
		for _, what := range resp.GetLeftOut() {
			leftOut = append(leftOut, &trailv1.Gap{Service: s.Service, Reason: GapLeftOut, Detail: s.Service + " does not tell " + what})
		}
		return nil
	})
	t.Gaps = append(t.Gaps, leftOut...)
	if len(t.GetEntries()) == 0 && len(t.GetGaps()) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, order)
	}
	a.receipts(ctx, t)
	t.Entries = distinct(t.GetEntries())
	relate(t.GetEntries())
	t.Entries, t.ClockDifferences = arrange(t.GetEntries())
	for _, e := range t.GetEntries() {
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_ORDER {
			t.Status, t.ClientId, t.IdempotencyKey = e.GetOutcome(), e.GetAttributes()["client_id"], e.GetAttributes()["idempotency_key"]
		}
	}
	slices.SortFunc(t.GetGaps(), func(a, b *trailv1.Gap) int {
		return cmp.Or(cmp.Compare(a.GetService(), b.GetService()), cmp.Compare(a.GetDetail(), b.GetDetail()))
	})
	t.AssembledAt = timestamppb.Now()
	return t, nil
}

// receipts asks the services that have answered which of the messages they have received.
func (a *Assembler) receipts(ctx context.Context, t *trailv1.Timeline) {
	seen := make(map[string]bool)
	var ids []string
	for _, e := range t.GetEntries() {
		if id := e.GetMessageId(); id != "" && !seen[id] && len(ids) < maxReceipts {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	silent := make(map[string]bool)
	for _, g := range t.GetGaps() {
		silent[g.GetService()] = silent[g.GetService()] || g.GetReason() != GapLeftOut
	}
	asked := Assembler{Patience: a.Patience}
	for _, s := range a.Sources {
		if !silent[s.Service] {
			asked.Sources = append(asked.Sources, s)
		}
	}
	var mu sync.Mutex
	gaps := asked.each(ctx, cmp.Or(a.Patience, DefaultPatience), func(ctx context.Context, s Source) error {
		resp, err := s.Client.ListReceipts(ctx, &trailv1.ListReceiptsRequest{OrderId: t.GetOrderId(), MessageIds: ids})
		mu.Lock()
		defer mu.Unlock()
		t.Entries = append(t.Entries, resp.GetEntries()...)
		return err
	})
	t.Gaps = append(t.Gaps, gaps...)
}

// each asks all sources at once and gives a gap for each that did not answer.
func (a *Assembler) each(ctx context.Context, patience time.Duration, ask func(context.Context, Source) error) (gaps []*trailv1.Gap) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range a.Sources {
		wg.Go(func() {
			if err := ask(grpcx.Outgoing(ctx, grpcx.Entries{}), s); err != nil {
				mu.Lock()
				defer mu.Unlock()
				gaps = append(gaps, GapOf(s.Service, err))
			}
		})
	}
	wg.Wait()
	return gaps
}

// GapOf says why a service did not answer.
func GapOf(service string, err error) *trailv1.Gap {
	g := &trailv1.Gap{Service: service, Reason: GapError, Detail: "no answer from " + service + ": " + err.Error()}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		g.Reason, g.Detail = GapUnreachable, "no answer from "+service+": unreachable"
	case codes.Unauthenticated, codes.PermissionDenied:
		g.Reason, g.Detail = GapRefused, "no answer from "+service+": it refuses the credential"
	}
	return g
}
