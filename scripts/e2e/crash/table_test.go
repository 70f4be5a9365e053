package crash_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

const (
	readme = "README.md"
	// updateVar set to 1 writes the table instead of comparing it.
	updateVar = "CRASH_TABLE_UPDATE"
)

const head = `# Crash points

Written by ` + "`make crash-table`" + `; ` + "`go test ./scripts/e2e/crash`" + ` fails when it is not what happens.

The real programs, one process for each service, run on a real Postgres and a real JetStream. For each cell an order of its own is placed over
HTTP, the process is killed with SIGKILL at that moment of that order, once, and is started again; the client repeats its request with the same
key. Many orders are under way side by side, so that each also lives through the crashes of the others. A cell says what the order came to, what
money was taken and not given back, in minor units, and how many parcels are live. No order has more than one payment and one parcel, also among those that
were undone, and no message ends as a dead letter. The points are in [pkg/fault](../../../pkg/fault/points.go).

`

// table renders what was seen.
func table(t *testing.T, seen map[string]outcome) string {
	t.Helper()
	meaning := meanings(t)
	var b strings.Builder
	b.WriteString(head)
	for _, m := range matrix() {
		fmt.Fprintf(&b, "## An order is %s: %s\n\n| killed | at | when | %s |\n| --- | --- | --- |%s\n", m.story.name, m.story.about,
			strings.Join(m.steps, " | "), strings.Repeat(" --- |", len(m.steps)))
		for i, row := range alongStep("_payment") {
			service := row.service
			if service != "order" {
				service = "participant"
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s |", service, row.point, meaning[row.point])
			for _, step := range m.steps {
				fmt.Fprintf(&b, " %s |", seen[crash{m.story, step, []passage{alongStep(step)[i]}}.key()])
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	b.WriteString("## What belongs to no step, or to two crashes\n\n| order | killed at | of | when | outcome |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range others() {
		last := c.passages[len(c.passages)-1]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.story.name, c.where(), c.column, meaning[last.point], seen[c.key()])
	}
	fmt.Fprintf(&b, "\nThe stories beside those above: *%s*, %s; *%s*, %s; *%s*, %s.\n", slow.name, slow.about, authenticated.name, authenticated.about, cancelled.name, cancelled.about)
	return b.String()
}

func (o outcome) String() string {
	return fmt.Sprintf("%s, %d, %d", o.status, o.net, o.parcels)
}

// meanings reads from the sources what is durable at each point.
func meanings(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../../pkg/fault/points.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	of := make(map[string]string)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Doc == nil || len(spec.Values) != 1 {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		name, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		_, says, _ := strings.Cut(strings.Join(strings.Fields(spec.Doc.Text()), " "), ": ")
		of[name] = strings.TrimSuffix(says, ".")
		return true
	})
	return of
}

// compare compares the table with the committed one.
func compare(t *testing.T, got string) {
	t.Helper()
	if os.Getenv(updateVar) == "1" {
		if err := os.WriteFile(readme, []byte(got), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	old := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(old) || line != old[i] {
			t.Errorf("%s, line %d: it is not what happens, see make crash-table; got\n%s", readme, i+1, line)
		}
	}
}
