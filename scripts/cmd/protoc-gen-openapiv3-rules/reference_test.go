package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/throughline/throughline/proto/openapi"
)

// The page shows every call, every schema and every problem, loads nothing, and its links lead somewhere.
func TestReference(t *testing.T) {
	t.Parallel()
	page, doc := string(openapi.HTML), load(t)
	for _, path := range slices.Sorted(maps.Keys(doc.Paths.Map())) {
		for method := range doc.Paths.Value(path).Operations() {
			if want := "<code>" + method + " " + path + "</code>"; strings.Count(page, want) != 2 {
				t.Errorf("the page shows %s %d times, want 2", want, strings.Count(page, want))
			}
		}
	}
	for name := range doc.Components.Schemas {
		if !strings.Contains(page, `id="schema-`+name+`"`) {
			t.Errorf("the page has no schema %s", name)
		}
	}
	for _, p := range problems {
		if !strings.Contains(page, "<code>"+problemType(p.reason)+"</code>") {
			t.Errorf("the page has no problem %s", p.reason)
		}
	}
	if m := regexp.MustCompile(`(?i)<script|<link|<img|<iframe|src=|@import|url\(|javascript:|\son\w+=`).FindString(page); m != "" {
		t.Errorf("the page has %q: it must load and run nothing", m)
	}
	for _, m := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if id, local := strings.CutPrefix(m[1], "#"); local && !strings.Contains(page, `id="`+id+`"`) {
			t.Errorf("the link %s leads nowhere", m[1])
		} else if !local && m[1] != "/openapi.yaml" {
			t.Errorf("got a link to %s, want none to other places", m[1])
		}
	}
	if strings.Contains(page, "ZgotmplZ") || strings.Contains(page, "**") {
		t.Error("the page has something that could not be rendered")
	}
}

func TestParagraphs(t *testing.T) {
	t.Parallel()
	got := paragraphs("a **b** <c>\n\n\n\nd")
	if len(got) != 2 || got[0] != "a <strong>b</strong> &lt;c&gt;" || got[1] != "d" {
		t.Errorf("got %q", got)
	}
}
