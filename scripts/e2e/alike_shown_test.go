//go:build jaeger

package e2e_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/throughline/throughline/scripts/internal/browser"
)

// drawnLine is an entry as it stands in the tree: how deep, how long after the order, where, and what.
var drawnLine = regexp.MustCompile(`^((?:│  |   )*)(?:├─|└─) (\+\S+|-\S+) +(order|payment|shipping) +(.*)$`)

// drawnAlike compares the tree with the same story as JSON: each entry is one line, and those of one step, and the calls of one attempt, stand in
// their sequence.
func drawnAlike(t *testing.T, trail *told, drawn string) {
	t.Helper()
	zero := trail.of("ORDER", "")[0].At
	left := slices.DeleteFunc(slices.Clone(trail.Entries), func(e entry) bool { return e.Kind == "ORDER" })
	last := make(map[string]int) // by step or attempt: where in the story its last line was
	for line := range strings.Lines(drawn) {
		m := drawnLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		offset, service, text := m[2], m[3], m[4]
		i := slices.IndexFunc(left, func(e entry) bool {
			return e.Service == service && strings.HasPrefix(text, e.Title) && shows(offset, e.At.Sub(zero)) && showsDetail(text, &e)
		})
		if i < 0 {
			t.Errorf("drawn, and not told as JSON: %s", line)
			continue
		}
		e := left[i]
		left = slices.Delete(left, i, i+1)
		for _, fact := range factsOf(&e) {
			if !strings.Contains(text, fact) {
				t.Errorf("drawn without %q, which is told as JSON: %s", fact, line)
			}
		}
		at := slices.IndexFunc(trail.Entries, func(o entry) bool { return o.ID == e.ID && o.Service == e.Service })
		under := e.Step
		if e.Kind == "CALL" {
			under = e.CausedBy
		}
		if at < last[under] {
			t.Errorf("drawn behind what is told later as JSON: %s", line)
		}
		last[under] = max(last[under], at)
	}
	for _, e := range left {
		t.Errorf("told as JSON, and not drawn: %s %s %s", e.Service, e.Kind, e.Title)
	}
	order := trail.of("ORDER", "")[0]
	for _, want := range []string{
		"order " + trail.OrderID, trail.Status + " (" + order.Reason + ")", "client " + trail.ClientID, "key " + order.Attributes["idempotency_key"],
		"trace " + order.TraceID, order.At.UTC().Format("2006-01-02 15:04:05.000"),
	} {
		if !strings.Contains(drawn, want) {
			t.Errorf("drawn without %q", want)
		}
	}
}

// factsOf are what has to be seen of an entry wherever it is shown, beside its title and time.
func factsOf(e *entry) (facts []string) {
	add := func(texts ...string) {
		for _, text := range texts {
			if text != "" {
				facts = append(facts, text)
			}
		}
	}
	switch e.Kind {
	case "CALL":
		add(e.Attributes["status"], e.Attributes["key"], e.Attributes["reference"], e.Detail)
	case "ATTEMPT":
		add(e.Reason, e.Detail)
	case "TRANSITION":
		add(e.Reason)
	}
	return facts
}

// showsDetail tells entries of one title and time apart by their message.
func showsDetail(text string, e *entry) bool {
	return e.Kind != "SENT" || strings.Contains(text, e.MessageID)
}

// shows says whether a shown duration is this one: as near as its last digit says.
func shows(text string, d time.Duration) bool {
	text = strings.TrimPrefix(text, "+")
	shown, err := time.ParseDuration(text)
	if err != nil {
		return false
	}
	number := strings.TrimRight(text, "µsmh")
	unit := time.Second
	if strings.HasSuffix(text, "ms") {
		unit = time.Millisecond
	}
	if _, decimals, ok := strings.Cut(number, "."); ok {
		for range decimals {
			unit /= 10
		}
	}
	return (shown - d).Abs() <= unit/2
}

// shown is a moment of the console's story as its page has it.
type shown struct {
	ID, Service, Kind, At, Offset, Title, Word, Took, Trace, Text string
	Undo                                                          bool
	Left                                                          int
	Details                                                       map[string]string
}

// page is the console's page of the order.
type page struct {
	Moments []shown
	Head    string
}

const readMoments = `[...document.querySelectorAll("ol.story > li.moment")].map(li => {
	const text = css => li.querySelector(css)?.textContent.trim() ?? "";
	const details = {};
	for (const row of li.querySelectorAll("dl > div")) {
		details[row.querySelector("dt").textContent.trim()] = row.querySelector("dd [title]")?.title ?? row.querySelector("dd").textContent.trim();
	}
	return {
		ID: details["entry"] ?? "", Service: text(".lane"), Kind: text(".kind"), At: li.querySelector("time").dateTime, Offset: text("time"), Title: text(".title"),
		Word: text(".word"), Took: text(".took"), Trace: details["trace"] ?? "", Text: li.innerText, Undo: li.classList.contains("undo"),
		Left: Math.round(li.querySelector("article").getBoundingClientRect().left), Details: details,
	};
})`

// readPage finds the order by its key as an operator does, with all that is told of it.
func readPage(t *testing.T, tab *browser.Tab, url string) page {
	t.Helper()
	tab.Look(browser.Look{Width: 1280, Height: 800})
	tab.Go(url + "/attention")
	tab.Type("#name", "Kim")
	tab.Type("#credential", alikeCredential)
	tab.Click("button.main")
	tab.Await(`document.querySelector("h1")?.innerText === "Attention desk"`)
	tab.Type("#q", alikeKey+"\r")
	tab.Await(`document.readyState === "complete" && document.querySelector("ol.story")`)
	tab.Screenshot("one-story")
	tab.Click(`a[href$="messages=1"]`)
	tab.Await(`document.readyState === "complete" && document.querySelector("li.moment.minor")`)
	return page{browser.Eval[[]shown](tab, readMoments), tab.Text(".heading") + " " + tab.Text("dl.facts")}
}

// consoleKinds are the console's words for kinds, where they are others.
var consoleKinds = map[string]string{"TRANSITION": "saga"}

// shownAlike compares the console's page with the same story as JSON: each entry is one moment, in the same sequence, in the lane of its service.
func shownAlike(t *testing.T, trail *told, p page) {
	t.Helper()
	zero := trail.of("ORDER", "")[0].At
	if len(p.Moments) != len(trail.Entries) {
		t.Errorf("console: got %d moments, want %d", len(p.Moments), len(trail.Entries))
	}
	lanes := make(map[string]int)
	for i := range min(len(p.Moments), len(trail.Entries)) {
		m, e := &p.Moments[i], &trail.Entries[i]
		if m.ID != e.ID || m.Service != e.Service {
			t.Errorf("console, moment %d: got %s of %s, want %s of %s", i, m.ID, m.Service, e.ID, e.Service)
			continue
		}
		what := fmt.Sprintf("console, %s of %s", m.ID, m.Service)
		kind := consoleKinds[e.Kind]
		if kind == "" {
			kind = strings.ToLower(strings.ReplaceAll(e.Kind, "_", " "))
		}
		if at, err := time.Parse(time.RFC3339Nano, m.At); err != nil || !at.Equal(e.At.Truncate(time.Microsecond)) {
			t.Errorf("%s: got the time %s, want %s", what, m.At, e.At)
		}
		if !shows(m.Offset, e.At.Sub(zero)) {
			t.Errorf("%s: got it %s after the order, want %s", what, m.Offset, e.At.Sub(zero))
		}
		if took, _ := time.ParseDuration(e.Duration); (e.Duration != "") != (m.Took != "") || m.Took != "" && !shows(m.Took, took) {
			t.Errorf("%s: took %q, want %q", what, m.Took, e.Duration)
		}
		word := strings.ToLower(strings.ReplaceAll(e.Outcome, "_", " "))
		switch e.Kind {
		case "ORDER", "STEP":
			word = "now " + word
		case "CALL":
			word = strings.TrimSpace(word + " " + e.Attributes["status"])
		}
		if m.Kind != kind || m.Word != word || !strings.HasPrefix(e.Title, m.Title) || m.Undo != e.Undo || m.Trace != e.TraceID {
			t.Errorf("%s: got %s %q %q, undo %v, trace %s, want %s %q %q, undo %v, trace %s", what, m.Kind, m.Title, m.Word, m.Undo, m.Trace, kind, e.Title,
				word, e.Undo, e.TraceID)
		}
		for _, fact := range factsOf(e) {
			if !strings.Contains(m.Text, fact) && !strings.Contains(m.Text, strings.ReplaceAll(fact, "_", " ")) {
				t.Errorf("%s: got %q, want %q to be seen in it", what, m.Text, fact)
			}
		}
		for name, want := range map[string]string{"step": e.Step, "caused by": e.CausedBy, "message": e.MessageID, "instance": e.Instance, "stream": placeOf(e)} {
			if got := m.Details[name]; got != want {
				t.Errorf("%s: got %s %q, want %q", what, name, got, want)
			}
		}
		if left, known := lanes[e.Service]; known && left != m.Left {
			t.Errorf("%s: got it at %d, want it in the lane at %d", what, m.Left, left)
		}
		lanes[e.Service] = m.Left
	}
	if len(lanes) != 3 || lanes["order"] >= lanes["payment"] || lanes["payment"] >= lanes["shipping"] {
		t.Errorf("console: got lanes at %v, want three beside each other", lanes)
	}
	order := trail.of("ORDER", "")[0]
	for _, want := range []string{trail.OrderID, "failed", trail.ClientID, alikeKey, "address refused", order.TraceID[:16]} {
		if !strings.Contains(p.Head, want) {
			t.Errorf("console: got the head %q, want %q in it", p.Head, want)
		}
	}
}

func placeOf(e *entry) string {
	if e.Stream == "" {
		return ""
	}
	return e.Stream + " #" + strconv.FormatInt(e.StreamSequence, 10)
}
