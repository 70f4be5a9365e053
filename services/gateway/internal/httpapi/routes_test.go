package httpapi

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/proto/openapi"
	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
)

// Every route is in the document that is served, the stream of events too; and the document has no other.
func TestRoutesAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	_, paths, ok := strings.Cut(string(openapi.YAML), "\npaths:\n")
	if !ok {
		t.Fatal("the document has no paths")
	}
	paths, _, _ = strings.Cut(paths, "\nsecurity:\n")
	var documented, served []string
	path := ""
	for _, m := range regexp.MustCompile(`(?m)^  (/\S+):$|^    (get|head|post|put|patch|delete|options|trace):$`).FindAllStringSubmatch(paths, -1) {
		if m[1] != "" {
			path = m[1]
			continue
		}
		documented = append(documented, strings.ToUpper(m[2])+" "+path)
	}
	for _, r := range append(routes(), eventsRoute()) {
		served = append(served, r.method+" "+r.pattern)
	}
	slices.Sort(documented)
	slices.Sort(served)
	if !slices.Equal(documented, served) {
		t.Errorf("documented\n got %q\nwant %q", documented, served)
	}
	if want := "<code>GET " + eventsRoute().pattern + "</code>"; !strings.Contains(string(openapi.HTML), want) {
		t.Errorf("the page for people: it has no %s", want)
	}
}

// Our routes are those of http.yaml, from which grpc-gateway's are generated, and each has a rule about keys.
func TestRoutesAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../proto/throughline/order/v1/http.yaml")
	if err != nil {
		t.Fatalf("reading the rules: %v", err)
	}
	rule := regexp.MustCompile(`selector: (\S+)\.(\w+)\n\s+(get|post|put|patch|delete): (\S+)`)
	var want, got []string
	for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
		want = append(want, fmt.Sprintf("%s %s /%s/%s", strings.ToUpper(m[3]), m[4], m[1], m[2]))
	}
	for _, r := range routes() {
		got = append(got, fmt.Sprintf("%s %s %s", r.method, r.pattern, r.rpc))
		needs, known := grpcapi.NeedsKey(r.rpc)
		if !known || needs != (r.method == "POST") {
			t.Errorf("%s: got needs %v, known %v: a POST needs a key and a GET none", r.rpc, needs, known)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) != strings.Count(string(text), "selector:") {
		t.Errorf("routes\n got %q\nwant %q", got, want)
	}
	if got, want := len(routes()), orderv1.File_throughline_order_v1_order_service_proto.Services().Get(0).Methods().Len(); got != want {
		t.Errorf("got %d routes, want one for each of the %d methods", got, want)
	}
}
