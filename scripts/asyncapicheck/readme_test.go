package asyncapicheck

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestReadmeListsEveryEventAndHeader(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../proto/README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, d := string(b), load(t)
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(evt\\.[a-z_.]+)` \\| `([A-Za-z0-9.]+)` \\|").FindAllStringSubmatch(readme, -1) {
		got = append(got, row[1]+" "+row[2])
	}
	slices.Sort(got)
	for _, e := range eventsOf(t, d) {
		want = append(want, e.Subject+" "+e.Type)
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows of proto/README.md: got %q, want those of the document, %q", got, want)
	}
	properties := d.object("components", "schemas", "EventHeaders", "properties")
	if len(properties) == 0 {
		t.Fatal("the document has no headers")
	}
	_, headers, _ := strings.Cut(readme, "### Headers")
	for name := range properties {
		if !strings.Contains(headers, "`"+name+"`") {
			t.Errorf("header %s is not in proto/README.md", name)
		}
	}
}
