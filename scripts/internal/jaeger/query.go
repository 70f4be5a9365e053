package jaeger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// errQuery says that the query API refused.
var errQuery = errors.New("jaeger refused the query")

// Trace is a trace as the query API gives it.
type Trace struct {
	TraceID   string             `json:"traceID"`
	Spans     []Span             `json:"spans"`
	Processes map[string]Process `json:"processes"`
}

// Span is one of its spans.
type Span struct {
	TraceID       string      `json:"traceID"`
	SpanID        string      `json:"spanID"`
	OperationName string      `json:"operationName"`
	ProcessID     string      `json:"processID"`
	References    []Reference `json:"references"`
	// StartTime and Duration are in microseconds, the first since 1970.
	StartTime int64    `json:"startTime"`
	Duration  int64    `json:"duration"`
	Tags      []Tag    `json:"tags"`
	Warnings  []string `json:"warnings"`
}

// Reference leads to a parent (CHILD_OF) or along a link (FOLLOWS_FROM).
type Reference struct {
	RefType string `json:"refType"`
	TraceID string `json:"traceID"`
	SpanID  string `json:"spanID"`
}

// Tag is an attribute. The value is what JSON makes of it.
type Tag struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
}

// Process is who made a span.
type Process struct {
	ServiceName string `json:"serviceName"`
}

// Began is when it began, cut to a microsecond.
func (s *Span) Began() time.Time { return time.UnixMicro(s.StartTime) }

// Took is how long it took, cut to a microsecond.
func (s *Span) Took() time.Duration { return time.Duration(s.Duration) * time.Microsecond }

// Ended is when it had surely ended.
func (s *Span) Ended() time.Time { return s.Began().Add(s.Took() + 2*time.Microsecond) }

// Tag gives the text of an attribute; empty if there is none.
func (s *Span) Tag(key string) string {
	for _, t := range s.Tags {
		if t.Key == key {
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}

// Find gives the traces of a service that have a span of it with a tag, the newest hundred at most, as the search does.
func (j *Jaeger) Find(ctx context.Context, service, tag, value string) ([]Trace, error) {
	return j.FindNamed(ctx, service, "", tag, value)
}

// FindNamed is Find for spans of one name: a client may have looked at an order a thousand times, and has placed it once.
func (j *Jaeger) FindNamed(ctx context.Context, service, name, tag, value string) ([]Trace, error) {
	tags, err := json.Marshal(map[string]string{tag: value})
	if err != nil {
		return nil, err
	}
	query := url.Values{"service": {service}, "tags": {string(tags)}, "limit": {"100"}, "lookback": {"2h"}}
	if name != "" {
		query.Set("operation", name)
	}
	return j.ask(ctx, "/api/traces?"+query.Encode())
}

// Get gives one trace.
func (j *Jaeger) Get(ctx context.Context, id string) (Trace, error) {
	found, err := j.ask(ctx, "/api/traces/"+url.PathEscape(id))
	if err != nil {
		return Trace{}, err
	}
	if len(found) == 0 {
		return Trace{}, fmt.Errorf("%w: no trace %s", errQuery, id)
	}
	return found[0], nil
}

func (j *Jaeger) ask(ctx context.Context, path string) ([]Trace, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.Query+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking jaeger: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s", errQuery, resp.Status)
	}
	var answer struct {
		Data []Trace `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading jaeger's answer: %w", err)
	}
	return answer.Data, nil
}
