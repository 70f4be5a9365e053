package deploycheck

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// served reads the table of metrics, which a test compares with what a running system serves: their types and labels, by name.
func served(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (\\w+) \\| ([^|]*) \\|")
	// What Prometheus itself adds.
	known := map[string][]string{"up": {"job", "instance"}}
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		labels := append(strings.Split(strings.TrimSpace(m[3]), ", "), "job", "instance")
		if m[2] == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[m[1]+suffix] = append(slices.Clone(labels), "le")
			}
			continue
		}
		known[m[1]] = labels
	}
	if len(known) < 30 {
		t.Fatalf("deploy/metrics.md: got %d metrics, want all", len(known))
	}
	return known
}

// checkQuery parses a query as Prometheus does, and looks for metrics and labels that nobody serves.
func checkQuery(t *testing.T, known map[string][]string, where, query string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(strings.ReplaceAll(query, "$__rate_interval", "5m"))
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	var labels, wanted []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			if _, ok := known[n.Name]; !ok {
				t.Errorf("%s: nobody serves %s", where, n.Name)
			}
			labels = append(labels, known[n.Name]...)
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" {
					wanted = append(wanted, m.Name)
				}
			}
		case *parser.AggregateExpr:
			wanted = append(wanted, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				wanted = append(append(wanted, n.VectorMatching.MatchingLabels...), n.VectorMatching.Include...)
			}
		}
		return nil
	})
	for _, name := range wanted {
		if !slices.Contains(labels, name) {
			t.Errorf("%s: none of its metrics has the label %s", where, name)
		}
	}
}

// TestRulesAskForWhatIsServed looks at the metrics and labels of all alerts.
func TestRulesAskForWhatIsServed(t *testing.T) {
	t.Parallel()
	known := served(t)
	for name, rule := range alerts(t) {
		checkQuery(t, known, name, rule.Expr)
	}
}

// TestDashboardsAskForWhatIsServed reads each dashboard, and looks at the queries and the places of its panels.
func TestDashboardsAskForWhatIsServed(t *testing.T) {
	t.Parallel()
	known := served(t)
	files, err := filepath.Glob("../../deploy/grafana/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("dashboards: got %v, %v, want some", files, err)
	}
	uids := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			UID, Title string
			Panels     []struct {
				ID         int
				Title      string
				Datasource struct{ UID string }
				GridPos    struct{ X, Y, W, H int }
				Targets    []struct{ Expr, LegendFormat string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if board.UID == "" || board.Title == "" || len(board.Panels) == 0 || uids[board.UID] != "" {
			t.Errorf("%s: it has no title, no panels, or the uid of %s", file, uids[board.UID])
		}
		uids[board.UID] = file
		ids, places := make(map[int]bool), make(map[[2]int]bool)
		for _, p := range board.Panels {
			where := filepath.Base(file) + ": " + p.Title
			at := [2]int{p.GridPos.X, p.GridPos.Y}
			if ids[p.ID] || places[at] || p.GridPos.X+p.GridPos.W > 24 || p.Datasource.UID != "prometheus" || len(p.Targets) == 0 {
				t.Errorf("%s: its id or its place is taken, it is too wide, or it asks nobody anything", where)
			}
			ids[p.ID], places[at] = true, true
			for _, target := range p.Targets {
				checkQuery(t, known, where, target.Expr)
			}
		}
	}
}
