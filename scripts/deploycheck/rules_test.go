package deploycheck

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const (
	rulesFile   = "../../deploy/prometheus/rules.yaml"
	runbooksDir = "../../deploy/runbooks"
)

// alerts reads the rules as Prometheus does, by their names.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Errorf("rules: %v", err)
	}
	if groups == nil {
		t.FailNow()
	}
	byName := make(map[string]rulefmt.Rule)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if _, twice := byName[r.Alert]; r.Alert == "" || twice {
				t.Errorf("rule %q of group %s: it is no alert, or there are two", r.Alert, g.Name)
			}
			byName[r.Alert] = r
		}
	}
	return byName
}

// TestEveryAlertHasARunbook checks that an alert says how bad it is, in one line what it is, and where to read on; and that no page is about
// an alert that is no more.
func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	rules := alerts(t)
	for name, r := range rules {
		if severity := r.Labels["severity"]; severity != "page" && severity != "ticket" {
			t.Errorf("%s: severity is %q, want page or ticket", name, severity)
		}
		if r.Annotations["summary"] == "" || r.Annotations["runbook"] != "deploy/runbooks/"+name+".md" {
			t.Errorf("%s: got the annotations %v, want a summary and its runbook", name, r.Annotations)
		}
		page, err := os.ReadFile(filepath.Join(runbooksDir, name+".md"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range []string{"# " + name + "\n", "\n" + r.Expr + "\n", "**What it means.**", "**Where to look.**", "**What to do.**"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("the page of %s has no %q", name, want)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(runbooksDir, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := strings.TrimSuffix(filepath.Base(page), ".md"); rules[name].Alert == "" {
			t.Errorf("%s: there is no such alert", page)
		}
	}
}

const info = ` target_info{instance="i",job="throughline",service_name="order"} 1x60` + "\n"

// ruleTests are series, one value a minute, under which each alert is quiet at one time and fires at another.
var ruleTests = map[string]struct {
	series       string
	quiet, fires time.Duration
}{
	"OrderNeedsAttention":   {`throughline_saga_attention 0x10 1x50`, 11 * time.Minute, 13 * time.Minute},
	"EffectsDisagree":       {`throughline_verify_violations{rule="one-charge"} 0x10 1x50`, 11 * time.Minute, 13 * time.Minute},
	"VerifyNotRunning":      {`throughline_verify_age_seconds 0+60x60`, 33 * time.Minute, 37 * time.Minute},
	"OldestSagaStuck":       {`throughline_saga_oldest_age_seconds 0+60x60`, 18 * time.Minute, 22 * time.Minute},
	"SagaTimersBehind":      {`throughline_saga_due_age_seconds 0x10 180x50`, 14 * time.Minute, 17 * time.Minute},
	"SagaDefinitionUnknown": {`throughline_saga_unknown{saga="place-order",version="2"} 0x10 3x50`, 15 * time.Minute, 22 * time.Minute},
	"OutboxStuck":           {`throughline_outbox_oldest_age_seconds{instance="i",job="throughline"} 0x10 60x50` + "\n" + info, 12 * time.Minute, 14 * time.Minute},
	"OutboxRowSetAside":     {`throughline_outbox_set_aside{instance="i",job="throughline"} 0x10 1x50` + "\n" + info, 11 * time.Minute, 13 * time.Minute},
	"ConsumerLagging":       {`throughline_consumer_lag{throughline_consumer="order-replies"} 10x10 5000x50`, 14 * time.Minute, 17 * time.Minute},
	"DeadLetters":           {`throughline_inbox_dead_letters_open{throughline_consumer="order-replies"} 0x10 1x50`, 11 * time.Minute, 13 * time.Minute},
	"Redeliveries": {`throughline_inbox_messages_total{throughline_consumer="c"} 0+600x60` + "\n" +
		`throughline_inbox_redeliveries_total{throughline_consumer="c"} 0x20 0+300x40`, 20 * time.Minute, 45 * time.Minute},
	"StepsUnknown": {`throughline_step_attempts_total{throughline_step="s",throughline_outcome="done"} 0+60x60` + "\n" +
		`throughline_step_attempts_total{throughline_step="s",throughline_outcome="unknown"} 0x20 0+60x40`, 20 * time.Minute, 32 * time.Minute},
	"LeasesLost": {`throughline_step_leases_lost_total{throughline_step="s"} 0x20 0+5x40`, 20 * time.Minute, 34 * time.Minute},
	"OrdersFailing": {`throughline_orders_total{throughline_outcome="confirmed"} 0+60x60` + "\n" +
		`throughline_orders_total{throughline_outcome="failed"} 0x20 0+60x40`, 20 * time.Minute, 50 * time.Minute},
	"AnswersFailing": {`throughline_edge_answers_total{operation="create_order",kind="new"} 0+60x60` + "\n" +
		`throughline_edge_answers_total{operation="create_order",kind="failed"} 0x20 0+60x40`, 20 * time.Minute, 32 * time.Minute},
	"KeysReusedForOtherRequests": {`throughline_edge_answers_total{operation="create_order",kind="mismatch"} 0x20 0+3x40`, 20 * time.Minute, 45 * time.Minute},
	"ConnectionsUsedUp": {`pgxpool_acquired_connections{instance="i",job="throughline"} 2x10 8x50` + "\n" +
		` pgxpool_max_connections{instance="i",job="throughline"} 8x60` + "\n" + info, 15 * time.Minute, 22 * time.Minute},
	"InstanceDown": {`up{job="throughline",instance="i"} 1x10 0x50`, 11 * time.Minute, 14 * time.Minute},
}

// TestAlertsFire evaluates each rule with Prometheus' own engine, where it must be quiet and where it must fire.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	rules := alerts(t)
	if got, want := slices.Sorted(maps.Keys(ruleTests)), slices.Sorted(maps.Keys(rules)); !slices.Equal(got, want) {
		t.Errorf("tests: got %q, want one for each of the alerts %q", got, want)
	}
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	for name, tc := range ruleTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storage := promqltest.LoadedStorage(t, "load 1m\n "+tc.series)
			defer storage.Close()
			// fires says whether the expression has held for as long as the rule wants.
			fires := func(at time.Duration) bool {
				for back := time.Duration(0); back <= time.Duration(rules[name].For); back += time.Minute {
					query, err := engine.NewInstantQuery(t.Context(), storage, nil, rules[name].Expr, time.Unix(0, 0).Add(at-back))
					if err != nil {
						t.Fatal(err)
					}
					result := query.Exec(t.Context())
					if result.Err != nil {
						t.Fatal(result.Err)
					}
					v, err := result.Vector()
					if err != nil {
						t.Fatal(err)
					}
					n := len(v)
					query.Close()
					if n == 0 {
						return false
					}
				}
				return true
			}
			if fires(tc.quiet) {
				t.Errorf("at %s: it fires, want it quiet", tc.quiet)
			}
			if !fires(tc.fires) {
				t.Errorf("at %s: it is quiet, want it to fire", tc.fires)
			}
		})
	}
}
