package trail

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

// clockNoise is what clocks may differ by before it is told: databases that are kept in time by NTP are closer than that.
const clockNoise = time.Millisecond

// distinct leaves out entries that were told twice.
func distinct(entries []*trailv1.Entry) []*trailv1.Entry {
	seen := make(map[string]bool, len(entries))
	return slices.DeleteFunc(entries, func(e *trailv1.Entry) bool {
		key := e.GetService() + " " + e.GetEntryId()
		again := seen[key]
		seen[key] = true
		return again
	})
}

// index finds entries by their id. Ids of steps and attempts are those of one service, since each step has one.
type index map[string]*trailv1.Entry

// relate fills in what follows from the entries beside each other: what was received is in the trace of what was sent, and who has dealt
// with a message has also written what follows from it.
func relate(entries []*trailv1.Entry) {
	byID := make(index, len(entries))
	notices := make(map[string]string)
	for _, e := range entries {
		byID[e.GetEntryId()] = e
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_WEBHOOK {
			notices[e.GetMessageId()] = e.GetEntryId()
		}
	}
	for _, e := range entries {
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_DUPLICATE && notices[e.GetMessageId()] != "" {
			e.CausedBy = notices[e.GetMessageId()]
		}
	}
	for _, e := range entries {
		e.Instance, e.TraceId = byID.instance(e, 0), byID.trace(e, 0)
		byID.step(e, 0)
	}
}

// maxDepth bounds how far causes are followed: over a message to its attempt, its step and the message before.
const maxDepth = 8

// instance follows the causes within a service to one whose instance is on record, as far as one transaction goes.
func (x index) instance(e *trailv1.Entry, depth int) string {
	if e.GetInstance() != "" || depth > maxDepth {
		return e.GetInstance()
	}
	switch e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_TRANSITION, trailv1.EntryKind_ENTRY_KIND_SENT, trailv1.EntryKind_ENTRY_KIND_STEP,
		trailv1.EntryKind_ENTRY_KIND_TOMBSTONE:
	default:
		return ""
	}
	cause := x[e.GetCausedBy()]
	if cause == nil || cause.GetService() != e.GetService() {
		return ""
	}
	return x.instance(cause, depth+1)
}

// step gives what is about a message the step of what led to it: an event, a receipt, a dead letter.
func (x index) step(e *trailv1.Entry, depth int) {
	switch e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_SENT, trailv1.EntryKind_ENTRY_KIND_RECEIVED, trailv1.EntryKind_ENTRY_KIND_DUPLICATE,
		trailv1.EntryKind_ENTRY_KIND_DEAD_LETTER, trailv1.EntryKind_ENTRY_KIND_OPERATOR:
	default:
		return
	}
	cause := x[e.GetCausedBy()]
	if e.GetStep() != "" || cause == nil || depth > maxDepth {
		return
	}
	x.step(cause, depth+1)
	e.Step, e.Undo = cause.GetStep(), e.GetUndo() || cause.GetUndo()
}

func (x index) trace(e *trailv1.Entry, depth int) string {
	if e.GetTraceId() != "" || depth > maxDepth {
		return e.GetTraceId()
	}
	if cause := x[e.GetCausedBy()]; cause != nil {
		return x.trace(cause, depth+1)
	}
	return ""
}

// ready is a heap of entries whose causes are told, the earliest first.
type ready []*trailv1.Entry

func (r ready) Len() int           { return len(r) }
func (r ready) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r ready) Less(i, j int) bool { return earlier(r[i], r[j]) < 0 }
func (r *ready) Push(x any)        { *r = append(*r, x.(*trailv1.Entry)) }
func (r *ready) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// earlier compares by time, then by what an order of equal times should be: what led to something before what was written about it.
func earlier(a, b *trailv1.Entry) int {
	return cmp.Or(
		a.GetAt().AsTime().Compare(b.GetAt().AsTime()),
		cmp.Compare(rank(a.GetKind()), rank(b.GetKind())),
		cmp.Compare(a.GetService(), b.GetService()),
		compareNumbered(a, b),
		cmp.Compare(a.GetEntryId(), b.GetEntryId()),
	)
}

// compareNumbered sorts what one transaction has written: transitions by their place, messages by their ids, which grow.
func compareNumbered(a, b *trailv1.Entry) int {
	return cmp.Compare(a.GetAttributes()["place"], b.GetAttributes()["place"])
}

func rank(k trailv1.EntryKind) int {
	order := []trailv1.EntryKind{
		trailv1.EntryKind_ENTRY_KIND_ORDER, trailv1.EntryKind_ENTRY_KIND_EDGE, trailv1.EntryKind_ENTRY_KIND_CANCELLATION,
		trailv1.EntryKind_ENTRY_KIND_OPERATOR, trailv1.EntryKind_ENTRY_KIND_WEBHOOK, trailv1.EntryKind_ENTRY_KIND_RECEIVED,
		trailv1.EntryKind_ENTRY_KIND_TRANSITION, trailv1.EntryKind_ENTRY_KIND_STEP, trailv1.EntryKind_ENTRY_KIND_TOMBSTONE,
		trailv1.EntryKind_ENTRY_KIND_ATTEMPT, trailv1.EntryKind_ENTRY_KIND_CALL, trailv1.EntryKind_ENTRY_KIND_ATTENTION,
		trailv1.EntryKind_ENTRY_KIND_SENT,
	}
	if i := slices.Index(order, k); i >= 0 {
		return i
	}
	return len(order)
}

// arrange puts entries behind what led to them, and by time where that leaves a choice. It tells by how much clocks were seen to differ.
func arrange(entries []*trailv1.Entry) ([]*trailv1.Entry, []*trailv1.ClockDifference) {
	byID := make(index, len(entries))
	for _, e := range entries {
		byID[e.GetEntryId()] = e
	}
	effects := make(map[string][]*trailv1.Entry)
	clocks := make(map[[2]string]time.Duration)
	var next ready
	for _, e := range entries {
		cause := byID[e.GetCausedBy()]
		if cause == nil || cause == e {
			next = append(next, e)
			continue
		}
		effects[cause.GetEntryId()] = append(effects[cause.GetEntryId()], e)
		if behind := cause.GetAt().AsTime().Sub(e.GetAt().AsTime()); behind > clockNoise && cause.GetService() != e.GetService() {
			pair := [2]string{e.GetService(), cause.GetService()}
			clocks[pair] = max(clocks[pair], behind)
		}
	}
	heap.Init(&next)
	arranged := make([]*trailv1.Entry, 0, len(entries))
	for len(next) > 0 {
		e := heap.Pop(&next).(*trailv1.Entry)
		arranged = append(arranged, e)
		for _, effect := range effects[e.GetEntryId()] {
			heap.Push(&next, effect)
		}
		delete(effects, e.GetEntryId())
	}
	if len(arranged) < len(entries) { // causes in a circle, which no record should have: nothing is hidden for it
		told := make(map[*trailv1.Entry]bool, len(arranged))
		for _, e := range arranged {
			told[e] = true
		}
		rest := slices.DeleteFunc(slices.Clone(entries), func(e *trailv1.Entry) bool { return told[e] })
		slices.SortFunc(rest, earlier)
		arranged = append(arranged, rest...)
	}
	differences := make([]*trailv1.ClockDifference, 0, len(clocks))
	for pair, d := range clocks {
		differences = append(differences, &trailv1.ClockDifference{Behind: pair[0], AheadService: pair[1], AtLeast: durationpb.New(d)})
	}
	slices.SortFunc(differences, func(a, b *trailv1.ClockDifference) int {
		return cmp.Or(cmp.Compare(a.GetBehind(), b.GetBehind()), cmp.Compare(a.GetAheadService(), b.GetAheadService()))
	})
	return arranged, differences
}
