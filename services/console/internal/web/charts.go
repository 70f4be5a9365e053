package web

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/throughline/throughline/services/console/internal/live"
	"github.com/throughline/throughline/services/console/internal/operator"
)

// The measures of a small chart, in its own units.
const (
	chartWidth  = 120.0
	chartHeight = 28.0
	chartMargin = 2.0
)

// chart is a small line of what a figure was during the last ten minutes. Where it was not known the line is broken.
type chart struct {
	Line, Area string // SVG paths
	EndX, EndY string // the newest point; empty if there is none
	// Top is what the top of the chart stands for.
	Top string
}

// newChart draws values from the left to the right; NaN is not known. Few values keep to the right: time has one scale.
func newChart(values []float64, room int) chart {
	top := 1.0
	for _, v := range values {
		if !math.IsNaN(v) {
			top = max(top, v)
		}
	}
	var c chart
	c.Top = figure(top)
	step := chartWidth / float64(max(room-1, 1))
	x := func(i int) float64 { return max(0, chartWidth-float64(len(values)-1-i)*step) }
	y := func(v float64) float64 { return chartHeight - chartMargin - v/top*(chartHeight-2*chartMargin) }
	var line, area strings.Builder
	begun := -1
	finish := func(end int) {
		if begun >= 0 {
			fmt.Fprintf(&area, "L%.1f %.1fL%.1f %.1fZ", x(end), chartHeight, x(begun), chartHeight)
		}
		begun = -1
	}
	for i, v := range values {
		if math.IsNaN(v) {
			finish(i - 1)
			continue
		}
		verb := "L"
		switch {
		case begun < 0:
			verb, begun = "M", i
		case i+1 < len(values) && values[i-1] == v && values[i+1] == v:
			continue // on a level line
		}
		fmt.Fprintf(&line, "%s%.1f %.1f", verb, x(i), y(v))
		fmt.Fprintf(&area, "%s%.1f %.1f", verb, x(i), y(v))
		c.EndX, c.EndY = fmt.Sprintf("%.1f", x(i)), fmt.Sprintf("%.1f", y(v))
	}
	finish(len(values) - 1)
	c.Line, c.Area = line.String(), area.String()
	return c
}

// figure writes a number shortly.
func figure(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.0fk", v/1e3)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}

// tile is a figure with its chart.
type tile struct {
	Name, Value, Note string
	Chart             chart
	// Alert says that somebody should look; Link is where.
	Alert bool
	Link  string
	// Kind chooses the colour of the line.
	Kind string
}

// vitals are the figures of the first page.
type vitals struct {
	Tiles []tile
	// Silent are services that do not answer.
	Silent []string
	// Events says why the list does not move; empty if it does.
	Events string
}

// measureVitals reads the figures from what is kept.
func measureVitals(board *live.Board, kept []live.Vitals) vitals {
	var v vitals
	if err := board.Away(); err != nil {
		v.Events = err.Error()
	}
	rate := func(name, kind string, facts ...live.Fact) {
		n, series := board.Rate(facts...)
		v.Tiles = append(v.Tiles, tile{Name: name, Kind: kind, Value: figure(float64(n)), Note: "in the last minute", Chart: newChart(series, len(series))})
	}
	rate("Placed", "busy", live.Created)
	rate("Confirmed", "good", live.Confirmed)
	rate("Not sold", "undo", live.Failed, live.Cancelled)

	var newest live.Vitals
	if len(kept) > 0 {
		newest = kept[len(kept)-1]
	}
	for _, name := range operator.Names() {
		if newest.Services[name].Err != nil {
			v.Silent = append(v.Silent, name)
		}
	}
	add := func(t tile, of func(live.Vitals) float64) {
		values := make([]float64, len(kept))
		for i := range kept {
			values[i] = of(kept[i])
		}
		t.Value, t.Chart = "–", newChart(values, sampleRoom)
		if len(values) > 0 && !math.IsNaN(values[len(values)-1]) {
			t.Value = figure(values[len(values)-1])
			t.Alert = t.Alert && values[len(values)-1] > 0
		} else {
			t.Alert, t.Note = false, "not known"
		}
		v.Tiles = append(v.Tiles, t)
	}
	add(tile{Name: "In flight", Kind: "busy", Note: flightNote(newest)}, func(at live.Vitals) float64 {
		if at.Unfinished == nil {
			return math.NaN()
		}
		return float64(at.Unfinished.GetPending() + at.Unfinished.GetCompensating())
	})
	add(tile{Name: "Outbox", Kind: "plain", Note: oldestNote(newest)}, sum(func(e live.Examined) float64 { return float64(e.GetPendingMessages()) }))
	add(tile{Name: "Consumer lag", Kind: "plain", Note: lagNote(newest)}, sum(func(e live.Examined) float64 { return float64(e.Waiting()) }))
	add(tile{Name: "Need a person", Kind: "warn", Alert: true, Link: "/attention", Note: "attention desk"}, func(at live.Vitals) float64 {
		if at.Unfinished == nil {
			return math.NaN()
		}
		return float64(at.Unfinished.GetNeedsAttention())
	})
	add(tile{Name: "Dead letters", Kind: "bad", Alert: true, Link: "/dead-letters", Note: "open"}, sum(func(e live.Examined) float64 { return float64(e.GetOpenDeadLetters()) }))
	return v
}

// sampleRoom is how many samples a chart has room for: ten minutes, one every two seconds.
const sampleRoom = 300

// sum adds a figure over all services. It is not known while one of them does not answer.
func sum(of func(live.Examined) float64) func(live.Vitals) float64 {
	return func(at live.Vitals) float64 {
		total := 0.0
		for _, name := range operator.Names() {
			e, ok := at.Services[name]
			if !ok || e.Err != nil {
				return math.NaN()
			}
			total += of(e)
		}
		return total
	}
}

// openLetters are the open dead letters of all services; negative if that is not known.
func openLetters(at live.Vitals) int64 {
	n := sum(func(e live.Examined) float64 { return float64(e.GetOpenDeadLetters()) })(at)
	if math.IsNaN(n) {
		return -1
	}
	return int64(n)
}

func flightNote(at live.Vitals) string {
	u := at.Unfinished
	if u == nil || u.GetPending()+u.GetCompensating() == 0 {
		return "orders under way"
	}
	note := "oldest " + took(max(0, at.At.Sub(u.GetOldestAt().AsTime())))
	if n := u.GetCompensating(); n > 0 {
		note = fmt.Sprintf("%d being undone, %s", n, note)
	}
	return note
}

func oldestNote(at live.Vitals) string {
	var oldest time.Duration
	for _, e := range at.Services {
		oldest = max(oldest, e.GetOldestPending().AsDuration())
	}
	if oldest == 0 {
		return "messages to publish"
	}
	return "oldest " + took(oldest)
}

func lagNote(at live.Vitals) string {
	var waiting int64
	var lag time.Duration
	for _, e := range at.Services {
		waiting += e.Waiting()
		lag = max(lag, e.Lag())
	}
	if waiting == 0 || lag == 0 {
		return "messages to handle"
	}
	return "by " + took(lag)
}
