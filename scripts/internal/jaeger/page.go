package jaeger

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Parse(pageSource))

// What the spans of an order carry, and what of it is worth a line beside each.
const (
	tagKey    = "throughline.idempotency_key"
	tagOrder  = "throughline.order_id"
	tagAnswer = "throughline.edge_answer"
	ours      = "throughline."
)

// hidden are attributes of ours that are the same on all spans of an order, or say what the span's name says.
var hidden = []string{
	tagKey, tagOrder, "throughline.client_id", "throughline.step", "throughline.step_key", "throughline.operation", "throughline.provider", "throughline.saga",
	"throughline.outbox_wait_ms",
}

// Page is a plain page over the query API, for people: the program is built from its Go module, which has no pages in it. "/?q=" finds an order
// by its key or its id, "/trace/" shows a trace, and "/api/" is the API itself.
func (j *Jaeger) Page() (http.Handler, error) {
	api, err := url.Parse(j.Query)
	if err != nil {
		return nil, fmt.Errorf("reading jaeger's address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", j.search)
	mux.HandleFunc("GET /trace/{id}", j.trace)
	mux.Handle("/api/", httputil.NewSingleHostReverseProxy(api))
	return mux, nil
}

// view is what the page shows.
type view struct {
	Query, Error string
	Traces       []tree
}

// tree is a trace with its spans in the order of what led to what.
type tree struct {
	ID, Title, At, Took string
	Rows                []row
}

type row struct {
	Service, Name, At, Took string
	Depth                   int
	Failed, Undo, Minor     bool
	// Left and Width are where its bar is, in percent of the trace.
	Left, Width float64
	Facts       []string
}

// searched are the spans that are searched for: those of clients that placed the order, or asked for that again; what persons and deadlines have
// done about it; and what the provider and the carrier have said.
var searched = []struct{ service, name string }{{"gateway", "POST /v1/orders"}, {"order", ""}, {"payment", ""}, {"shipping", ""}}

// isRead tells whether a trace is only of somebody who looked.
func isRead(t *Trace) bool {
	return slices.ContainsFunc(t.Spans, func(s Span) bool { return len(s.References) == 0 && strings.HasPrefix(s.OperationName, "GET ") })
}

func (j *Jaeger) search(w http.ResponseWriter, r *http.Request) {
	v := view{Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	if v.Query != "" {
		found := make(map[string]bool)
		for _, tag := range []string{tagKey, tagOrder} {
			for _, in := range searched {
				traces, err := j.FindNamed(r.Context(), in.service, in.name, tag, v.Query)
				if err != nil {
					v.Error = err.Error()
				}
				for i := range traces {
					if t := &traces[i]; !found[t.TraceID] && !isRead(t) {
						found[t.TraceID] = true
						v.Traces = append(v.Traces, treeOf(t))
					}
				}
			}
		}
		slices.SortFunc(v.Traces, func(a, b tree) int { return cmp.Compare(a.At, b.At) })
		if len(v.Traces) == 0 && v.Error == "" {
			v.Error = "There is no trace of it. One is there some seconds after it has ended, and as long as this Jaeger runs."
		}
	}
	show(w, &v)
}

func (j *Jaeger) trace(w http.ResponseWriter, r *http.Request) {
	var v view
	t, err := j.Get(r.Context(), r.PathValue("id"))
	switch {
	case errors.Is(err, errQuery):
		v.Error = "There is no such trace. One is there some seconds after it has ended, and as long as this Jaeger runs."
	case err != nil:
		v.Error = err.Error()
	default:
		v.Traces = []tree{treeOf(&t)}
	}
	show(w, &v)
}

func show(w http.ResponseWriter, v *view) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	_ = page.Execute(w, v) // an error is a browser that went away
}

// treeOf lays a trace out.
func treeOf(t *Trace) tree {
	spans := slices.Clone(t.Spans)
	slices.SortStableFunc(spans, func(a, b Span) int { return cmp.Compare(a.StartTime, b.StartTime) })
	known := make(map[string]bool, len(spans))
	for i := range spans {
		known[spans[i].SpanID] = true
	}
	var roots []*Span
	under := make(map[string][]*Span)
	var first, last time.Time
	for i := range spans {
		s := &spans[i]
		if end := s.Began().Add(s.Took()); end.After(last) {
			last = end
		}
		if at := slices.IndexFunc(s.References, func(r Reference) bool { return known[r.SpanID] }); at >= 0 {
			under[s.References[at].SpanID] = append(under[s.References[at].SpanID], s)
		} else {
			roots = append(roots, s)
		}
	}
	if len(spans) == 0 {
		return tree{ID: t.TraceID}
	}
	first = spans[0].Began()
	length := max(last.Sub(first), time.Microsecond)
	out := tree{
		ID: t.TraceID, Title: spans[0].OperationName, At: first.UTC().Format("2006-01-02 15:04:05.000000 MST"), Took: length.String(),
	}
	if answer := spans[0].Tag(tagAnswer); answer != "" {
		out.Title += ", answered as " + answer
	}
	var add func(s *Span, depth int)
	add = func(s *Span, depth int) {
		service := t.Processes[s.ProcessID].ServiceName
		out.Rows = append(out.Rows, row{
			Service: service, Name: s.OperationName, At: "+" + s.Began().Sub(first).String(), Took: s.Took().String(), Depth: depth,
			Failed: s.Tag("otel.status_code") == "ERROR", Undo: s.Tag("throughline.undo") == "true", Minor: s.Tag("db.namespace") != "",
			Left: 100 * float64(s.Began().Sub(first)) / float64(length), Width: 100 * float64(s.Took()) / float64(length), Facts: factsOf(s),
		})
		for _, c := range under[s.SpanID] {
			add(c, depth+1)
		}
	}
	for _, s := range roots {
		add(s, 0)
	}
	return out
}

// factsOf are the attributes of a span that tell something about the order.
func factsOf(s *Span) (facts []string) {
	for _, t := range s.Tags {
		value := fmt.Sprint(t.Value)
		switch {
		case t.Key == "http.response.status_code", t.Key == "otel.status_description":
			facts = append(facts, value)
		case strings.HasPrefix(t.Key, ours) && !slices.Contains(hidden, t.Key) && value != "" && value != "false":
			facts = append(facts, strings.ReplaceAll(strings.TrimPrefix(t.Key, ours), "_", " ")+" "+value)
		}
	}
	return facts
}
