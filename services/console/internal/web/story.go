package web

import (
	"maps"
	"slices"
	"strings"
	"time"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/console/internal/operator"
	"github.com/throughline/throughline/services/internal/trail"
)

// story is what the page of an order shows.
type story struct {
	*trailv1.Timeline
	Lanes   []string
	Moments []moment
	// Hops tells whether messages are shown; Hidden is how many entries are not.
	Hops   bool
	Hidden int
	// Total and Currency are of the order; HasTotal tells whether they are known.
	Total    string
	Order    *trailv1.Entry
	Personal []attribute
	Traces   []string
	// Length is from when the order was placed to the last change of its saga.
	Length time.Duration
	// Undone tells whether anything was undone, Final whether nothing more is to come by itself.
	Undone, Final bool
	// Waiting is set while the order needs a person.
	Waiting bool
	// Revealed tells that personal data is shown.
	Revealed bool
}

// moment is one entry of the story, in its lane.
type moment struct {
	*trailv1.Entry
	Kind string
	// Minor is the passing of a message: needed for the whole truth, and not to follow the story.
	Minor bool
	// Offset is the time since the order was placed.
	Offset string
	Took   string
	// Title is what is told without the word that ends it, Word that word, and Tone how it feels.
	Title, Word, Tone string
	// Facts are short ones that stand with the title.
	Facts []attribute
	// Attributes are those that are worth a line, sorted.
	Attributes []attribute
	// Cause is the title of what led here, if it is another service's.
	Cause string
	Link  string
}

type attribute struct{ Name, Value string }

// kinds are the names of kinds for people.
var kinds = map[trailv1.EntryKind]string{
	trailv1.EntryKind_ENTRY_KIND_ORDER: "order", trailv1.EntryKind_ENTRY_KIND_EDGE: "edge", trailv1.EntryKind_ENTRY_KIND_CANCELLATION: "cancellation",
	trailv1.EntryKind_ENTRY_KIND_TRANSITION: "saga", trailv1.EntryKind_ENTRY_KIND_SENT: "sent", trailv1.EntryKind_ENTRY_KIND_RECEIVED: "received",
	trailv1.EntryKind_ENTRY_KIND_DUPLICATE: "duplicate", trailv1.EntryKind_ENTRY_KIND_STEP: "step", trailv1.EntryKind_ENTRY_KIND_ATTEMPT: "attempt",
	trailv1.EntryKind_ENTRY_KIND_CALL: "call", trailv1.EntryKind_ENTRY_KIND_WEBHOOK: "webhook", trailv1.EntryKind_ENTRY_KIND_TOMBSTONE: "tombstone",
	trailv1.EntryKind_ENTRY_KIND_DEAD_LETTER: "dead letter", trailv1.EntryKind_ENTRY_KIND_OPERATOR: "operator", trailv1.EntryKind_ENTRY_KIND_RECORD: "record",
	trailv1.EntryKind_ENTRY_KIND_ATTENTION: "attention",
}

// personal are the attributes of the order that belong to a person, in the order in which they are shown.
var personal = []string{"ship_to", "payment_method", "note"}

// newStory lays a timeline out.
func newStory(t *trailv1.Timeline, hops, revealed bool) story {
	s := story{Timeline: t, Lanes: operator.Names(), Hops: hops, Revealed: revealed}
	byID := make(map[string]*trailv1.Entry, len(t.GetEntries()))
	for _, e := range t.GetEntries() {
		byID[e.GetEntryId()] = e
		s.Undone = s.Undone || e.GetUndo()
		if id := e.GetTraceId(); id != "" && !slices.Contains(s.Traces, id) {
			s.Traces = append(s.Traces, id)
		}
	}
	zero := trail.Zero(t)
	s.Length = trail.Length(t)
	for _, e := range t.GetEntries() {
		m := s.moment(e, zero, byID)
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_ORDER && s.Order == nil {
			s.readOrder(e)
		}
		if m.Minor && !hops {
			s.Hidden++
			continue
		}
		s.Moments = append(s.Moments, m)
	}
	switch t.GetStatus() {
	case "CONFIRMED", "FAILED", "CANCELLED":
		s.Final = true
	case "NEEDS_ATTENTION":
		s.Waiting = true
	}
	return s
}

func (s *story) readOrder(e *trailv1.Entry) {
	s.Order = e
	a := e.GetAttributes()
	s.Total = amountText(a["total"], a["currency"])
	for _, name := range personal {
		if a[name] != "" {
			s.Personal = append(s.Personal, attribute{words(name), a[name]})
		}
	}
}

func (s *story) moment(e *trailv1.Entry, zero time.Time, byID map[string]*trailv1.Entry) moment {
	m := moment{Entry: e, Kind: kinds[e.GetKind()], Offset: since(e.GetAt().AsTime(), zero), Facts: factsOf(e, zero)}
	m.Title, m.Word, m.Tone = outcomeOf(e)
	if m.Kind == "" {
		m.Kind = "entry"
	}
	if e.GetDuration() != nil {
		m.Took = trail.Brief(e.GetDuration().AsDuration())
	}
	switch e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_SENT, trailv1.EntryKind_ENTRY_KIND_RECEIVED:
		// What is not out, or was refused, is a part of the story.
		m.Minor = e.GetOutcome() == "acknowledged" || e.GetKind() == trailv1.EntryKind_ENTRY_KIND_RECEIVED
	case trailv1.EntryKind_ENTRY_KIND_DEAD_LETTER:
		if id := e.GetAttributes()["dead_letter_id"]; id != "" {
			m.Link = "/dead-letters/" + e.GetService() + "/" + id
		}
	case trailv1.EntryKind_ENTRY_KIND_ATTENTION:
		m.Link = "/attention/" + e.GetOrderId()
	}
	if cause := byID[e.GetCausedBy()]; cause != nil && cause.GetService() != e.GetService() {
		m.Cause = cause.GetService() + ": " + cause.GetTitle()
	}
	for _, name := range slices.Sorted(maps.Keys(e.GetAttributes())) {
		value := e.GetAttributes()[name]
		if value == "" || name == "place" || e.GetKind() == trailv1.EntryKind_ENTRY_KIND_ORDER && slices.Contains(personal, name) {
			continue // the place only sorts what one transaction has written
		}
		m.Attributes = append(m.Attributes, attribute{words(name), value})
	}
	for _, a := range []attribute{
		{"step", e.GetStep()}, {"instance", e.GetInstance()}, {"message", e.GetMessageId()}, {"stream", place(e)}, {"entry", e.GetEntryId()}, {"caused by", e.GetCausedBy()},
	} {
		if a.Value != "" {
			m.Attributes = append(m.Attributes, a)
		}
	}
	return m
}

func since(at, zero time.Time) string {
	if at.Before(zero) {
		return trail.Brief(at.Sub(zero))
	}
	return "+" + trail.Brief(at.Sub(zero))
}

// factsOf gives what is to be seen of an entry without opening it: of a request what it found, about what and under which key; of the key's record
// when it was asked for again.
func factsOf(e *trailv1.Entry, zero time.Time) (facts []attribute) {
	a := e.GetAttributes()
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, attribute{name, value})
		}
	}
	switch e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_CALL:
		add("found", words(a["answer"]))
		add("about", a["reference"])
		add("key", a["key"])
	case trailv1.EntryKind_ENTRY_KIND_EDGE:
		for _, name := range []string{"last_replay_at", "last_mismatch_at"} {
			if at, err := time.Parse(time.RFC3339Nano, a[name]); err == nil {
				add(words(strings.TrimSuffix(name, "_at")), since(at, zero))
			}
		}
	default:
	}
	return facts
}

// outcomeOf takes the outcome out of a title that ends with it, so that it is said once.
func outcomeOf(e *trailv1.Entry) (title, word, toned string) {
	title, word, toned = e.GetTitle(), words(e.GetOutcome()), tone(e.GetOutcome())
	if word == "" {
		return title, word, toned
	}
	for _, end := range []string{e.GetOutcome(), word} {
		if rest, ok := strings.CutSuffix(title, " "+end); ok {
			title = strings.TrimSuffix(rest, ":")
			break
		}
	}
	switch e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_ORDER, trailv1.EntryKind_ENTRY_KIND_STEP:
		word = "now " + word // it was not at that time
	case trailv1.EntryKind_ENTRY_KIND_CALL:
		code := e.GetAttributes()["status"]
		if code == "" {
			break
		}
		// An answer may be a failure, which its status tells.
		word += " " + code
		switch code[0] {
		case '4':
			toned = "warn"
		case '5':
			toned = "bad"
		}
	default:
	}
	return title, word, toned
}

// place is where JetStream has a message.
func place(e *trailv1.Entry) string {
	if e.GetStream() == "" {
		return ""
	}
	return strings.Join([]string{e.GetStream(), itoa(e.GetStreamSequence())}, " #")
}
