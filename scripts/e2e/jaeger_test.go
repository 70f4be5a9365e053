//go:build jaeger

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/scripts/internal/jaeger"
)

// decisionWait is how long the Jaegers wait for a trace. The longest story takes a few seconds.
const decisionWait = 10 * time.Second

// TestJaeger finds each story in a real Jaeger through its query API: in one that keeps everything, whole and with all services; and those that tell of
// an error, an undo or a dead letter also in one that keeps nothing else, by the sampling that is deployed.
func TestJaeger(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	all, some := startJaeger(t, c, 100), startJaeger(t, c, 0)
	w := newWorld(t, system.Options{Environ: tracedTo(c)})
	ctx := system.Context(t, patienceForTraces)
	stories := playStories(ctx, t, w)
	checkStories(ctx, t, stories, findIn(all))

	var kept []story
	for _, s := range stories {
		if s.kept {
			kept = append(kept, s)
		}
	}
	// What is found there is all that was decided about by then: these came last.
	for i := range kept {
		kept[i].traces = 1
		if kept[i].name == "dead-lettered" {
			kept[i].traces = 2
		}
	}
	checkStories(ctx, t, kept, findIn(some))
	for _, s := range stories {
		if s.name != "happy" {
			continue
		}
		traces, err := findIn(some)(ctx, keyAttribute, s.key)
		if err != nil || len(traces) != 0 {
			t.Errorf("%s, where nothing is kept that went right: got %d traces, %v, want none", s.name, len(traces), err)
		}
	}
}

// startJaeger starts a Jaeger that gets what the collector gets.
func startJaeger(t *testing.T, c *spanCollector, keptPercent int) *jaeger.Jaeger {
	t.Helper()
	j := launchJaeger(t, jaeger.Options{KeptPercent: keptPercent, DecisionWait: decisionWait})
	c.next = append(c.next, sendTo(t, j))
	return j
}

// launchJaeger starts a Jaeger by the configuration that is deployed.
func launchJaeger(t *testing.T, o jaeger.Options) *jaeger.Jaeger {
	t.Helper()
	o.Binary, o.Config, o.Output = os.Getenv("JAEGER"), "../../deploy/jaeger/config.yaml", os.Stderr
	if o.Binary == "" {
		t.Fatal("JAEGER does not say where the program is: run make test-jaeger")
	}
	j, err := jaeger.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Stop)
	return j
}

// sendTo is for sending spans to a Jaeger.
func sendTo(t *testing.T, j *jaeger.Jaeger) collector.TraceServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(j.OTLP, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return collector.NewTraceServiceClient(conn)
}

// findIn is a finder that asks a Jaeger, in the name of each service.
func findIn(j *jaeger.Jaeger) finder {
	return func(ctx context.Context, attribute, value string) ([][]seen, error) {
		var found [][]seen
		known := make(map[string]bool)
		// By the name of its beginning, too: the newest hundred of a service may all be of looking at the order.
		for _, in := range []struct{ service, name string }{{"gateway", "POST /v1/orders"}, {"gateway", ""}, {"order", ""}, {"payment", ""}, {"shipping", ""}} {
			traces, err := j.FindNamed(ctx, in.service, in.name, attribute, value)
			if err != nil {
				return nil, err
			}
			for _, trace := range traces {
				if !known[trace.TraceID] {
					known[trace.TraceID] = true
					found = append(found, seenIn(trace))
				}
			}
		}
		return found, nil
	}
}

func seenIn(trace jaeger.Trace) []seen {
	spans := make([]seen, len(trace.Spans))
	for i, sp := range trace.Spans {
		s := seen{
			service: trace.Processes[sp.ProcessID].ServiceName, name: sp.OperationName, trace: sp.TraceID, id: sp.SpanID,
			attributes: make(map[string]string),
		}
		for _, tag := range sp.Tags {
			s.attributes[tag.Key] = fmt.Sprint(tag.Value)
		}
		for _, ref := range sp.References {
			if ref.RefType == "CHILD_OF" && s.parent == "" && ref.TraceID == sp.TraceID {
				s.parent = ref.SpanID
			} else {
				s.links = append(s.links, spot{ref.TraceID, ref.SpanID})
			}
		}
		// A link to the parent, as a redelivery has, is one reference with the parent, and says FOLLOWS_FROM.
		if at := slices.IndexFunc(s.links, func(to spot) bool { return to.trace == sp.TraceID }); s.parent == "" && at >= 0 {
			s.parent = s.links[at].id
		}
		spans[i] = s
	}
	return slices.Clip(spans)
}
