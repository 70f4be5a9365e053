package command

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/money"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/trail"
)

// style says how a terminal is written to. The zero value is for pipes.
type style struct{ colour bool }

// styleFor uses colours for terminals that have not asked for none (https://no-color.org).
func styleFor(w io.Writer, environ map[string]string) style {
	f, ok := w.(*os.File)
	if !ok || environ["NO_COLOR"] != "" || environ["TERM"] == "dumb" {
		return style{}
	}
	info, err := f.Stat()
	return style{colour: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

const (
	red    = "31"
	yellow = "33"
	green  = "32"
	faint  = "2"
	bold   = "1"
)

func (s style) paint(code, text string) string {
	if !s.colour || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// node is a line of the tree with what stands under it.
type node struct {
	text  string
	under []*node
}

func (n *node) draw(b *strings.Builder, indent string) {
	for i, c := range n.under {
		branch, next := "├─ ", "│  "
		if i == len(n.under)-1 {
			branch, next = "└─ ", "   "
		}
		b.WriteString(indent + branch + c.text + "\n")
		c.draw(b, indent+next)
	}
}

// drawTree prints a story: what is about a step under the step, calls under their attempts, the rest where its time is.
func drawTree(w io.Writer, story *trailv1.Timeline, s style) error {
	t := tree{style: s, story: harmless(story)}
	var b strings.Builder
	t.draw(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

type tree struct {
	style
	story *trailv1.Timeline
	zero  time.Time
}

func (t *tree) draw(b *strings.Builder) {
	story := t.story
	t.zero = trail.Zero(story)
	root := new(node)
	steps, attempts := make(map[string]*node), make(map[string]*node)
	last := make(map[string]time.Time)
	for _, e := range story.GetEntries() {
		n := &node{text: t.line(e)}
		switch step := e.GetStep(); {
		case e.GetKind() == trailv1.EntryKind_ENTRY_KIND_ORDER:
			continue // the head
		case e.GetKind() == trailv1.EntryKind_ENTRY_KIND_CALL && attempts[e.GetCausedBy()] != nil:
			at := attempts[e.GetCausedBy()]
			at.under = append(at.under, n)
		case step != "":
			if steps[step] == nil {
				steps[step] = new(node)
				root.under = append(root.under, steps[step])
			}
			steps[step].under = append(steps[step].under, n)
		default:
			root.under = append(root.under, n)
		}
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_ATTEMPT {
			attempts[e.GetEntryId()] = n
		}
		if end := e.GetAt().AsTime().Add(e.GetDuration().AsDuration()); end.After(last[e.GetStep()]) {
			last[e.GetStep()] = end
		}
	}
	for step, n := range steps {
		n.text = t.stepLine(step, last[step])
	}
	t.head(b)
	root.draw(b, "")
	for _, g := range story.GetGaps() {
		fmt.Fprintf(b, "%s %s\n", t.paint(red, "gap:"), g.GetDetail())
	}
	for _, c := range story.GetClockDifferences() {
		fmt.Fprintf(b, "%s the clock of %s is behind that of %s by at least %s\n", t.paint(yellow, "clock:"), c.GetBehind(), c.GetAheadService(),
			trail.Brief(c.GetAtLeast().AsDuration()))
	}
}

func (t *tree) head(b *strings.Builder) {
	story := t.story
	fmt.Fprintf(b, "%s  %s", t.paint(bold, "order "+story.GetOrderId()), t.outcome(cmp.Or(story.GetStatus(), "status unknown")))
	for _, e := range story.GetEntries() {
		if e.GetKind() != trailv1.EntryKind_ENTRY_KIND_ORDER {
			continue
		}
		a := e.GetAttributes()
		if e.GetReason() != "" {
			fmt.Fprintf(b, " (%s)", e.GetReason())
		}
		if length := trail.Length(story); ended(story.GetStatus()) {
			fmt.Fprintf(b, " after %s", trail.Brief(length))
		}
		fmt.Fprintf(b, "\nclient %s, key %s", a["client_id"], a["idempotency_key"])
		fmt.Fprintf(b, "\nplaced %s, %s in %s", t.zero.UTC().Format("2006-01-02 15:04:05.000 MST"), amount(a["total"], a["currency"]), counted(a["lines"], "line"))
		fmt.Fprintf(b, "\nship to %s, paid by %s", a["ship_to"], a["payment_method"])
		if a["note"] != "" {
			fmt.Fprintf(b, ", note %s", a["note"])
		}
		if e.GetTraceId() != "" {
			fmt.Fprintf(b, "\ntrace %s", e.GetTraceId())
		}
	}
	b.WriteString("\n")
}

// amount writes minor units with the decimals of their currency.
func amount(minor, currency string) string {
	n, err := strconv.ParseInt(minor, 10, 64)
	if err == nil {
		if m, err := money.New(currency, n); err == nil {
			return m.String()
		}
	}
	return minor + " " + currency + " in minor units"
}

func counted(n, word string) string {
	if n == "1" {
		return "1 " + word
	}
	return n + " " + word + "s"
}

// stepLine is the heading of a step: how it ended, and how long it took.
func (t *tree) stepLine(step string, end time.Time) string {
	var first time.Time
	outcome, reason, undo := "", "", false
	for _, e := range t.story.GetEntries() {
		if e.GetStep() != step {
			continue
		}
		if first.IsZero() {
			first = e.GetAt().AsTime()
		}
		undo = undo || e.GetUndo() && e.GetKind() == trailv1.EntryKind_ENTRY_KIND_STEP
		switch e.GetKind() {
		case trailv1.EntryKind_ENTRY_KIND_STEP:
			outcome, reason = e.GetOutcome(), e.GetReason()
		case trailv1.EntryKind_ENTRY_KIND_TRANSITION:
			if outcome == "" {
				outcome = e.GetOutcome()
			}
			undo = undo || e.GetUndo()
		default:
		}
	}
	asked := outcome != ""
	if !asked {
		outcome = "never asked for"
	}
	name := step
	if undo {
		name = t.paint(yellow, step+" (undo)")
	}
	text := t.paint(bold, name) + "  " + t.outcome(outcome)
	if reason != "" {
		text += " (" + reason + ")"
	}
	when := "+" + trail.Brief(first.Sub(t.zero))
	if asked {
		when += ", took " + trail.Brief(end.Sub(first))
	}
	return text + "  " + t.paint(faint, when)
}

// line is one entry: when, where, what, how long, and what else tells it apart.
func (t *tree) line(e *trailv1.Entry) string {
	at := "+" + trail.Brief(e.GetAt().AsTime().Sub(t.zero))
	if strings.HasPrefix(at, "+-") {
		at = at[1:]
	}
	parts := []string{t.paint(faint, fmt.Sprintf("%-9s", at)), fmt.Sprintf("%-8s", e.GetService()), t.title(e)}
	if e.GetDuration() != nil {
		parts = append(parts, t.paint(faint, trail.Brief(e.GetDuration().AsDuration())))
	}
	parts = append(parts, t.facts(e)...)
	return strings.Join(parts, " ")
}

func (t *tree) title(e *trailv1.Entry) string {
	switch title := e.GetTitle(); e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_CALL, trailv1.EntryKind_ENTRY_KIND_SENT, trailv1.EntryKind_ENTRY_KIND_DEAD_LETTER:
		return title
	case trailv1.EntryKind_ENTRY_KIND_ATTEMPT:
		return strings.TrimSuffix(title, e.GetOutcome()) + t.outcome(e.GetOutcome())
	default:
		if e.GetUndo() {
			return t.paint(yellow, title)
		}
		return title
	}
}

func (t *tree) facts(e *trailv1.Entry) []string {
	a := e.GetAttributes()
	var facts []string
	add := func(format string, value string) {
		if value != "" {
			facts = append(facts, fmt.Sprintf(format, value))
		}
	}
	switch e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_CALL:
		if e.GetOutcome() == "no_answer" {
			add("→ %s", t.paint(red, "no answer"))
		} else {
			add("→ %s", strings.TrimSpace(a["status"]+" "+a["answer"]))
		}
		add("%s", a["reference"])
		add("key %s", a["key"])
	case trailv1.EntryKind_ENTRY_KIND_SENT:
		if e.GetStream() != "" {
			add("%s", e.GetStream()+"#"+strconv.FormatInt(e.GetStreamSequence(), 10))
		} else {
			add("%s", t.outcome(e.GetOutcome()))
		}
		add("message %s", e.GetMessageId())
	case trailv1.EntryKind_ENTRY_KIND_DEAD_LETTER, trailv1.EntryKind_ENTRY_KIND_OPERATOR, trailv1.EntryKind_ENTRY_KIND_RECORD:
		if !strings.HasSuffix(e.GetTitle(), " "+e.GetOutcome()) { // it is said once
			add("%s", t.outcome(e.GetOutcome()))
		}
	case trailv1.EntryKind_ENTRY_KIND_EDGE:
		add("last replay %s", t.since(a["last_replay_at"]))
		add("last mismatch %s", t.since(a["last_mismatch_at"]))
	case trailv1.EntryKind_ENTRY_KIND_STEP:
		add("%s", a["reference"])
	case trailv1.EntryKind_ENTRY_KIND_TRANSITION:
		if a["attempt"] != "" && a["attempt"] != "1" {
			add("sent %s times", a["attempt"])
		}
		add("by %s", a["cause"])
	default:
	}
	add("by %s", e.GetActor())
	if e.GetKind() != trailv1.EntryKind_ENTRY_KIND_STEP || e.GetReason() != e.GetDetail() {
		add("(%s)", e.GetReason())
	}
	add("“%s”", e.GetDetail())
	switch e.GetKind() {
	case trailv1.EntryKind_ENTRY_KIND_ATTEMPT, trailv1.EntryKind_ENTRY_KIND_RECEIVED, trailv1.EntryKind_ENTRY_KIND_EDGE:
		add("%s", t.paint(faint, instanceOf(e)))
	default:
	}
	return facts
}

// since tells a time among the attributes as the times of entries are told.
func (t *tree) since(stamp string) string {
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return ""
	}
	return "+" + trail.Brief(at.Sub(t.zero))
}

// instanceOf names the instance without its service, which stands before.
func instanceOf(e *trailv1.Entry) string {
	if e.GetInstance() == "" {
		return ""
	}
	return "by instance " + strings.TrimPrefix(e.GetInstance(), e.GetService()+"/")
}

// outcome colours a word by what it means.
func (t *tree) outcome(word string) string {
	switch word {
	case "done", "CONFIRMED", "acknowledged":
		return t.paint(green, word)
	case "unknown", "lost", "refused", "FAILED", "CANCELLED", "NEEDS_ATTENTION", "dead", "set_aside", "failed":
		return t.paint(red, word)
	}
	return word
}

// harmless gives a story whose texts cannot steer a terminal: what clients and the outside have written is in it.
func harmless(story *trailv1.Timeline) *trailv1.Timeline {
	story = proto.CloneOf(story)
	story.IdempotencyKey, story.ClientId = plain(story.GetIdempotencyKey()), plain(story.GetClientId())
	for _, e := range story.GetEntries() {
		for _, text := range []*string{&e.Title, &e.Outcome, &e.Reason, &e.Detail, &e.Actor, &e.Instance, &e.Step} {
			*text = plain(*text)
		}
		for name, value := range e.GetAttributes() {
			e.Attributes[name] = plain(value)
		}
	}
	for _, g := range story.GetGaps() {
		g.Detail = plain(g.GetDetail())
	}
	return story
}

func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, s)
}
