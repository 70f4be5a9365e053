package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/throughline/throughline/scripts/e2e/system"
)

// lines reads what a command has printed with --json: one object a line.
func lines(t *testing.T, out string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for in := bufio.NewScanner(strings.NewReader(out)); in.Scan(); {
		var line map[string]any
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatalf("not an object on a line: %v\n%s", err, out)
		}
		found = append(found, line)
	}
	return found
}

// answersOf gives the answers in lines of JSON by service, which must be as many as said.
func answersOf(t *testing.T, out string, want int) (services []string, answers []map[string]any) {
	t.Helper()
	for _, line := range lines(t, out) {
		answer, ok := line["answer"].(map[string]any)
		if !ok {
			t.Fatalf("line: got %v, want it to have an answer", line)
		}
		services = append(services, fmt.Sprint(line["service"]))
		answers = append(answers, answer)
	}
	if len(answers) != want {
		t.Fatalf("lines: got %d, want %d:\n%s", len(answers), want, out)
	}
	return services, answers
}

// offered asks what a shell would offer after a command line.
func offered(ctx context.Context, t *testing.T, s *system.System, args ...string) []string {
	t.Helper()
	at := func(name string) string { return fmt.Sprintf("127.0.0.1:%d", s.Ports()[name]) }
	flags := []string{"--data", s.Data(), "--order", at("order-grpc")}
	switch args[0] {
	case "dead-letters":
		flags = append(flags, "--payment", at("payment-grpc"), "--shipping", at("shipping-grpc"))
	case "get", "cancel":
		flags = []string{"--url", s.URL}
	}
	out, complaint, code := command(ctx, t, slices.Concat([]string{"__completeNoDesc"}, args[:1], flags, args[1:])...)
	offers, _, ok := strings.Cut(out, ":4\n")
	if code != 0 || !ok {
		t.Fatalf("completing %v: got %d, %q and %q, want offers and no files", args, code, out, complaint)
	}
	return strings.Fields(offers)
}

// operatorCommands runs what operators have on a system that prints JSON: each prints an object a line, and ends with the code that its help says.
func operatorCommands(ctx context.Context, t *testing.T, s *system.System, orderID string) {
	t.Helper()
	orders := []string{"--data", s.Data(), "--order", fmt.Sprintf("127.0.0.1:%d", s.Ports()["order-grpc"])}
	want := func(code int, args ...string) string {
		t.Helper()
		var (
			out, complaint string
			got            int
		)
		if args[0] == "clients" || args[0] == "attention" {
			out, complaint, got = command(ctx, t, append(args, orders...)...)
		} else {
			out, complaint, got = throughline(ctx, t, s, args...)
		}
		if got != code {
			t.Fatalf("throughline %v ended with %d and said %q and %q; want %d", args, got, out, complaint, code)
		}
		return out
	}

	up := lines(t, onlyJSON(s.Output()))
	if len(up) != 2 || up[0]["event"] != "starting" || up[1]["event"] != "up" {
		t.Fatalf("up --json: got %v, want that it is starting, and then up", up)
	}
	gateway := up[1]["services"].(map[string]any)["gateway"].(map[string]any)["http"].([]any)
	if len(gateway) != 1 || gateway[0] != s.URL || up[1]["clients"].(map[string]any)["storefront"] != "tl_dev_storefront" || up[1]["data"] != s.Data() {
		t.Errorf("up --json: got %v, want the gateway at %s", up[1], s.URL)
	}

	added := lines(t, want(0, "clients", "add", "shop", "--json"))
	key, _ := added[0]["api_key"].(string)
	if len(added) != 1 || !strings.HasPrefix(key, "tl_") || added[0]["service"] != "order" {
		t.Fatalf("clients add: got %v, want a key", added)
	}
	shop := *s.Storefront()
	shop.Key = key
	wantStatus(t, "with the key", ask(ctx, t, &shop, 0, http.MethodGet, "/v1/orders", ""), http.StatusOK, "")
	_, clients := answersOf(t, want(0, "clients", "list", "--json"), 1)
	keys := clients[0]["keys"].([]any)
	prefix := keys[0].(map[string]any)["prefix"].(string)
	if clients[0]["client_id"] != "shop" || len(keys) != 1 || !strings.HasPrefix(key, prefix) {
		t.Errorf("clients list: got %v, want shop and its key", clients)
	}
	if got := offered(ctx, t, s, "clients", "revoke", ""); !slices.Equal(got, []string{"shop"}) {
		t.Errorf("clients to revoke keys of: got %v, want shop", got)
	}
	if got := offered(ctx, t, s, "clients", "revoke", "shop", ""); !slices.Equal(got, []string{prefix}) {
		t.Errorf("keys to revoke: got %v, want %s", got, prefix)
	}
	rotated := lines(t, want(0, "clients", "rotate", "shop", "--overlap", "0s", "--json"))
	if again, _ := rotated[0]["api_key"].(string); again == key || !strings.HasPrefix(again, "tl_") {
		t.Errorf("clients rotate: got %v, want another key", rotated)
	}
	_, revoked := answersOf(t, want(0, "clients", "revoke", "shop", "--json"), 1)
	if got := revoked[0]["keys"].([]any); len(got) != 2 || got[1].(map[string]any)["revoked_at"] == nil {
		t.Errorf("clients revoke: got %v, want two keys that have ended", revoked)
	}
	want(3, "clients", "revoke", "nobody")
	want(5, "clients", "add", "NOT A NAME")

	answersOf(t, want(0, "attention", "list", "--json"), 0)
	_, cases := answersOf(t, want(0, "attention", "show", orderID, "--json"), 1)
	if c := cases[0]["case"].(map[string]any); c["order_id"] != orderID || c["status"] != "CONFIRMED" || c["total"] != 600.0 {
		t.Errorf("attention show: got %v, want %s, CONFIRMED", c, orderID)
	}
	if got := offered(ctx, t, s, "attention", "retry", orderID, "--step", ""); !slices.Contains(got, "authorize_payment") {
		t.Errorf("steps: got %v, want those of the order", got)
	}
	want(3, "attention", "show", "00000000-0000-4000-8000-000000000000")
	want(5, "attention", "retry", orderID, "--reason", "a test")
	_, released := answersOf(t, want(0, "attention", "release", "--reason", "a test", "--json"), 1)
	if released[0]["due_work"] == nil || released[0]["replayed"] != false {
		t.Errorf("attention release: got %v, want what is due", released)
	}

	answersOf(t, want(0, "dead-letters", "list", "--json"), 0)
	services, examined := answersOf(t, want(0, "doctor", "--json"), 3)
	if !slices.Equal(services, []string{"order", "payment", "shipping"}) || examined[0]["open_dead_letters"] != 0.0 || examined[0]["tables"] == nil {
		t.Errorf("doctor: got %v of %v, want what each says", examined, services)
	}
	services, sent := answersOf(t, want(0, "outbox", "republish", "--order-id", orderID, "--service", "payment,shipping", "--json"), 8)
	if services[0] != "payment" || services[7] != "shipping" || sent[0]["order_id"] != orderID {
		t.Errorf("outbox republish: got %v of %v, want what both have sent for %s", sent, services, orderID)
	}
	if got := offered(ctx, t, s, "get", ""); !slices.Contains(got, orderID) {
		t.Errorf("orders: got %v, want %s among them", got, orderID)
	}
	silent := fmt.Sprintf("127.0.0.1:%d", s.Ports()["http"]) // where nobody speaks gRPC without HTTP/1.1
	out, complaint, code := command(ctx, t, append(slices.Clone(orders), "dead-letters", "list", "--payment", silent, "--shipping", silent)...)
	if code != 4 || !strings.Contains(complaint, "payment") {
		t.Errorf("with two services that do not answer: got %d, %q and %q, want 4", code, out, complaint)
	}
	// What a service does not tell is said beside the lines, so that they stay JSON.
	payment := fmt.Sprintf("127.0.0.1:%d", s.Ports()["payment-grpc"])
	out, complaint, code = command(ctx, t, append(slices.Clone(orders), "watch", orderID, "--json", "--payment", payment, "--shipping", silent)...)
	if told := lines(t, out); code != 4 || len(told) == 0 || !strings.Contains(complaint, "gap:") || !strings.Contains(complaint, "shipping") {
		t.Errorf("watch without shipping: got %d, %q and %q, want 4, entries, and what is missing beside them", code, out, complaint)
	}
}

// onlyJSON leaves out what a system says on standard error.
func onlyJSON(out string) string {
	var kept strings.Builder
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "{") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// deadLetterCommands looks at payment's one dead letter, and settles nothing.
func deadLetterCommands(ctx context.Context, t *testing.T, w *world, orderID string) {
	t.Helper()
	services, letters := answersOf(t, must(ctx, t, w, 0, "dead-letters", "list", "--json"), 1)
	if services[0] != "payment" || letters[0]["order_id"] != orderID || letters[0]["id"] != 1.0 {
		t.Errorf("dead-letters list: got %v of %v, want payment's first", letters, services)
	}
	_, shown := answersOf(t, must(ctx, t, w, 0, "dead-letters", "show", "payment/1", "--json"), 1)
	if payload, _ := shown[0]["payload"].(string); payload == "" || shown[0]["dead_letter"].(map[string]any)["state"] != "dead" {
		t.Errorf("dead-letters show: got %v, want it whole", shown)
	}
	would := lines(t, must(ctx, t, w, 0, "dead-letters", "discard", "payment/1", "--json"))
	if len(would) != 1 || would[0]["dead_letter"] != 1.0 || would[0]["answer"].(map[string]any)["outcome"] != "would" {
		t.Errorf("dead-letters discard: got %v, want what it would do", would)
	}
	if got := offered(ctx, t, w.System, "dead-letters", "replay", ""); !slices.Equal(got, []string{"payment/1"}) {
		t.Errorf("dead letters to replay: got %v, want payment/1", got)
	}
	if got := offered(ctx, t, w.System, "dead-letters", "replay", "payment/1", ""); len(got) != 0 {
		t.Errorf("more dead letters to replay: got %v, want none", got)
	}
	must(ctx, t, w, 3, "dead-letters", "show", "payment/99")
	must(ctx, t, w, 3, "dead-letters", "replay", "payment/99", "--execute", "--reason", "a test")
	must(ctx, t, w, 6, "doctor", "--json")
}

// must runs a command of an operator that must end with a code.
func must(ctx context.Context, t *testing.T, w *world, want int, args ...string) string {
	t.Helper()
	out, complaint, code := throughline(ctx, t, w.System, args...)
	if code != want {
		t.Fatalf("throughline %v ended with %d and said %q and %q; want %d", args, code, out, complaint, want)
	}
	return out
}
