package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// told is a timeline as it is exported.
type told struct {
	OrderID   string `json:"order_id"`
	AskedKind string `json:"asked_kind"`
	ClientID  string `json:"client_id"`
	Status    string `json:"status"`
	Entries   []entry
	// AssembledAt is when it was told.
	AssembledAt time.Time `json:"assembled_at"`
	Gaps        []struct{ Service, Reason, Detail string }
}

type entry struct {
	ID             string    `json:"entry_id"`
	OrderID        string    `json:"order_id"`
	At             time.Time `json:"at"`
	Service        string    `json:"service"`
	Instance       string    `json:"instance"`
	Kind           string    `json:"kind"`
	Step           string    `json:"step"`
	Title          string    `json:"title"`
	Outcome        string    `json:"outcome"`
	Reason         string    `json:"reason"`
	Detail         string    `json:"detail"`
	Duration       string    `json:"duration"`
	MessageID      string    `json:"message_id"`
	Stream         string    `json:"stream"`
	StreamSequence int64     `json:"stream_sequence"`
	TraceID        string    `json:"trace_id"`
	CausedBy       string    `json:"caused_by"`
	Undo           bool      `json:"undo"`
	Actor          string    `json:"actor"`
	Attributes     map[string]string
}

// throughline runs the command line against a system, and gives what it printed and the code that it ended with.
func throughline(ctx context.Context, t *testing.T, s *system.System, args ...string) (out, complaint string, code int) {
	t.Helper()
	args = append(args, "--data", s.Data())
	for _, service := range []string{"order", "payment", "shipping"} {
		args = append(args, "--"+service, fmt.Sprintf("127.0.0.1:%d", s.Ports()[service+"-grpc"]))
	}
	return command(ctx, t, args...)
}

// command runs a command line as it is.
func command(ctx context.Context, t *testing.T, args ...string) (out, complaint string, code int) {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, system.Binary(t), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return stdout.String(), stderr.String(), exit.ExitCode()
	}
	if err != nil {
		t.Fatalf("throughline %v: %v", args, err)
	}
	return stdout.String(), stderr.String(), 0
}

func timeline(ctx context.Context, t *testing.T, s *system.System, want int, args ...string) told {
	t.Helper()
	out, complaint, code := throughline(ctx, t, s, append([]string{"trace", "--json"}, args...)...)
	var story told
	if code != want {
		t.Fatalf("throughline trace %v: got code %d, want %d: %s%s", args, code, want, out, complaint)
	}
	if code == 0 || code == 4 {
		if err := json.Unmarshal([]byte(out), &story); err != nil {
			t.Fatalf("reading the timeline: %v\n%s", err, out)
		}
	}
	return story
}

// of gives the entries of a kind about a step, in their order.
func (s *told) of(kind, step string) []entry {
	return slices.DeleteFunc(slices.Clone(s.Entries), func(e entry) bool { return e.Kind != kind || step != "" && e.Step != step })
}

func (s *told) outcomes(kind, step string) string {
	var all []string
	for _, e := range s.of(kind, step) {
		all = append(all, e.Outcome)
	}
	return strings.Join(all, " ")
}

// TestTrail: given only the key of an order whose authorization's answer was lost, whose shipment was refused, and whose void failed twice, all
// of it is told, by every kind of id, and what cannot be told is said.
func TestTrail(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{Separate: true})
	ctx := system.Context(t, 5*time.Minute)
	shop := s.Storefront()
	const key = "what-became-of-it"
	id := keys.OrderID(shop.ID, key).String()
	for _, f := range []control.Fault{
		{Operation: "payment_intents.confirm", Action: control.DropAfter, Times: 1},
		{Operation: "payment_intents.retrieve", Action: control.FailBefore, Status: 503, Times: 1},
		{Operation: "payment_intents.cancel", Action: control.FailBefore, Status: 500, Times: 2},
	} {
		f.OrderID = id
		if _, err := s.Provider.AddFault(ctx, f); err != nil {
			t.Fatal(err)
		}
	}
	order := system.Order{PostalCode: "00000"}
	for range 2 { // the second is a replay
		if _, err := shop.Place(ctx, key, order); err != nil {
			t.Fatal(err)
		}
	}
	if a := ask(ctx, t, shop, 0, http.MethodPost, "/v1/orders", r0("1250", "1251"), "Idempotency-Key", key); a.Status != http.StatusUnprocessableEntity {
		t.Errorf("another order under the key: got %d, want 422", a.Status)
	}
	awaitStatus(ctx, t, shop, id, verify.Failed, verify.Confirmed, verify.Cancelled)
	var story told
	system.Eventually(ctx, t, "the counts of replays", func() bool {
		story = timeline(ctx, t, s, 0, key)
		e := story.of("EDGE", "")
		return len(e) == 1 && e[0].Attributes["replays"] == "1" && e[0].Attributes["mismatches"] == "1"
	})
	t.Run("everything is told", func(t *testing.T) { wholeStory(t, &story, id, shop.ID) })
	t.Run("the tree", func(t *testing.T) { tree(ctx, t, s, key) })
	t.Run("by every id", func(t *testing.T) { everyID(ctx, t, s, &story) })
	t.Run("personal data", func(t *testing.T) { reveal(ctx, t, s, key) })
	t.Run("the client's view", func(t *testing.T) { clientsView(ctx, t, s, id) })
	t.Run("as it happens", func(t *testing.T) { follow(ctx, t, s, key) })
	t.Run("gaps", func(t *testing.T) { gaps(ctx, t, s, key) })
}

func wholeStory(t *testing.T, story *told, id, client string) {
	if story.OrderID != id || story.AskedKind != "IDEMPOTENCY_KEY" || story.ClientID != client || story.Status != verify.Failed || len(story.Gaps) != 0 {
		t.Errorf("story: got order %s, asked by %s, client %s, status %s, gaps %v, want %s, IDEMPOTENCY_KEY, %s, FAILED, none",
			story.OrderID, story.AskedKind, story.ClientID, story.Status, story.Gaps, id, client)
	}
	for _, want := range []struct{ kind, step, outcomes string }{
		{"ORDER", "", "FAILED"}, {"EDGE", "", "kept"},
		{"ATTEMPT", "authorize_payment", "unknown done"},
		{"ATTEMPT", "create_shipment", "refused"},
		{"ATTEMPT", "void_payment", "unknown unknown done"},
		{"STEP", "void_payment", "done"},
		{"RECORD", "", "voided refused"},
		{"TOMBSTONE", "authorize_payment", ""},
	} {
		if got := story.outcomes(want.kind, want.step); got != want.outcomes && (want.kind != "RECORD" || got != "refused voided") {
			t.Errorf("%s %s: got outcomes %q, want %q", want.kind, want.step, got, want.outcomes)
		}
	}
	var asked []string
	keyed := map[string]bool{}
	for _, e := range story.of("CALL", "authorize_payment") {
		asked = append(asked, e.Attributes["operation"]+" "+e.Outcome+" "+e.Attributes["status"])
		keyed[e.Attributes["key"]] = true
	}
	first := []string{"create answered 200", "confirm no_answer ", "retrieve answered 503"}
	if len(asked) < 4 || !slices.Equal(asked[:3], first) || asked[3] != "create answered 200" && asked[3] != "retrieve answered 200" || len(keyed) < 3 {
		t.Errorf("calls of authorize_payment: got %q with keys %v, want %q and then that it was asked again", asked, keyed, first)
	}
	cancels := 0
	for _, e := range story.of("CALL", "void_payment") {
		if e.Attributes["operation"] == "cancel" && e.Attributes["status"] == "500" {
			cancels++
		}
	}
	if cancels != 2 {
		t.Errorf("failed voids at the provider: got %d, want 2", cancels)
	}
	place := map[string]int{}
	for i, e := range story.Entries {
		place[e.ID] = i
		if e.At.IsZero() || e.Service == "" {
			t.Errorf("entry %s: got %+v, want a time and a service", e.ID, e)
		}
		if e.Kind != "RECORD" && e.Kind != "EDGE" && e.Kind != "WEBHOOK" && e.TraceID == "" {
			// Spans go nowhere in this system, but the context that the client began is in every message all the same.
			t.Errorf("entry %s: got no trace id", e.ID)
		}
		if slices.Contains([]string{"ATTEMPT", "CALL", "RECEIVED", "TRANSITION", "SENT", "STEP", "EDGE"}, e.Kind) && !strings.HasPrefix(e.Instance, e.Service+"/") {
			t.Errorf("entry %s: got instance %q, want one of %s", e.ID, e.Instance, e.Service)
		}
		if e.Kind == "SENT" && (e.Outcome != "acknowledged" && e.Outcome != "pending" || e.Outcome == "acknowledged" && (e.Stream == "" || e.StreamSequence == 0)) {
			t.Errorf("entry %s: got %s in %s#%d, want its place in a stream", e.ID, e.Outcome, e.Stream, e.StreamSequence)
		}
	}
	received := 0
	for i, e := range story.Entries {
		if at, there := place[e.CausedBy]; e.CausedBy != "" && (!there || at >= i) {
			t.Errorf("entry %s is caused by %s: got place %d (there: %v), want one before %d", e.ID, e.CausedBy, at, there, i)
		}
		if e.Kind == "RECEIVED" {
			received++
		}
		if e.CausedBy == "" && !slices.Contains([]string{"ORDER", "RECORD", "WEBHOOK"}, e.Kind) {
			t.Errorf("entry %s: got no cause", e.ID)
		}
	}
	if received != 6 { // three commands and their replies
		t.Errorf("received messages: got %d, want 6", received)
	}
}

func tree(ctx context.Context, t *testing.T, s *system.System, key string) {
	out, complaint, code := throughline(ctx, t, s, "trace", key)
	if code != 0 {
		t.Fatalf("throughline trace: got code %d: %s", code, complaint)
	}
	for _, want := range []string{
		"FAILED (address_refused)", "attempt 1 at authorize_payment: unknown", "confirm", "→ no answer", "attempt 2 at authorize_payment: done",
		"attempt 1 at create_shipment: refused", "void_payment (undo)", "attempt 2 at void_payment: unknown", "attempt 3 at void_payment: done",
		"1 replay, 1 mismatch", "(masked)", "→ 200 requires_capture", "undo decided: saga running → compensating",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("tree: got no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("tree in a pipe: got colours\n%s", out)
	}
	t.Logf("the story:\n%s", out)
}

func everyID(ctx context.Context, t *testing.T, s *system.System, story *told) {
	ids := map[string]string{"ORDER_ID": story.OrderID, "IDEMPOTENCY_KEY": `"what-became-of-it"`}
	for _, e := range story.Entries {
		switch {
		case e.Kind == "STEP" && e.Step == "create_shipment":
			ids["STEP_KEY"] = e.Attributes["step_key"]
		case e.Kind == "SENT" && e.Service == "payment":
			ids["MESSAGE_ID"] = e.MessageID
		case e.Kind == "CALL" && e.Attributes["operation"] == "confirm":
			ids["PROVIDER_KEY"] = e.Attributes["key"]
		case e.Kind == "RECORD" && e.Service == "payment":
			ids["PROVIDER_ID"] = e.Attributes["reference"]
		}
	}
	for kind, id := range ids {
		if got := timeline(ctx, t, s, 0, id); got.OrderID != story.OrderID || got.AskedKind != kind || len(got.Entries) < len(story.Entries) {
			t.Errorf("asked by %s %q: got order %s by %s with %d entries, want %s by %s with %d", kind, id, got.OrderID, got.AskedKind, len(got.Entries),
				story.OrderID, kind, len(story.Entries))
		}
	}
	timeline(ctx, t, s, 3, "nobody-knows-this")
	timeline(ctx, t, s, 3, "what-became-of-it", "--client", "marketplace")
	shop := s.Storefront()
	const sold = "one-that-is-sold"
	if _, err := shop.Place(ctx, sold, system.Order{}); err != nil {
		t.Fatal(err)
	}
	awaitStatus(ctx, t, shop, keys.OrderID(shop.ID, sold).String(), verify.Confirmed, verify.Failed)
	other := timeline(ctx, t, s, 0, sold, "--client", shop.ID)
	for _, e := range other.of("RECORD", "") {
		if e.Service == "shipping" {
			if got := timeline(ctx, t, s, 0, e.Attributes["reference"]); got.OrderID != other.OrderID || got.AskedKind != "CARRIER_ID" {
				t.Errorf("asked by the carrier's id: got %s by %s, want %s by CARRIER_ID", got.OrderID, got.AskedKind, other.OrderID)
			}
		}
	}
}

func reveal(ctx context.Context, t *testing.T, s *system.System, key string) {
	masked := timeline(ctx, t, s, 0, key)
	raw, err := json.Marshal(masked)
	if err != nil {
		t.Fatal(err)
	}
	const city = "Berlin"
	if strings.Contains(string(raw), city) || masked.of("ORDER", "")[0].Attributes["ship_to"] != "(masked)" {
		t.Errorf("without asking: got %s, want the address masked", raw)
	}
	timeline(ctx, t, s, 1, key, "--reveal")
	shown := timeline(ctx, t, s, 0, key, "--reveal", "--reason", "the customer asks for it", "--actor", "kim")
	if to := shown.of("ORDER", "")[0].Attributes["ship_to"]; to == "(masked)" || to == "" {
		t.Errorf("asked for with a reason: got %q, want the address", to)
	}
	noted := 0
	for _, e := range shown.of("OPERATOR", "") {
		if e.Attributes["action"] == "reveal" && e.Actor == "kim" && e.Reason == "the customer asks for it" {
			noted++
		}
	}
	if noted != 3 {
		t.Errorf("on record: got %d reveals by kim, want one at each of three services", noted)
	}
}

func follow(ctx context.Context, t *testing.T, s *system.System, key string) {
	out, complaint, code := throughline(ctx, t, s, "watch", key, "--json", "--interval", "50ms")
	if code != 0 || !strings.Contains(out, `"step":"void_payment"`) {
		t.Errorf("watching an order that has ended: got code %d, %s%s, want its story and 0", code, out, complaint)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("reading %q: %v", line, err)
		}
		if name := e.ID + e.Outcome; seen[name] {
			t.Errorf("entry %s was printed twice", name)
		} else {
			seen[name] = true
		}
	}
}

func gaps(ctx context.Context, t *testing.T, s *system.System, key string) {
	s.Signal("shipping", 0, syscall.SIGSTOP)
	defer s.Signal("shipping", 0, syscall.SIGCONT)
	story := timeline(ctx, t, s, 4, key)
	if len(story.Gaps) != 1 || story.Gaps[0].Service != "shipping" || story.Gaps[0].Detail != "no answer from shipping: unreachable" {
		t.Errorf("with shipping frozen: got gaps %v, want that shipping is unreachable", story.Gaps)
	}
	if got := story.outcomes("ATTEMPT", "void_payment"); got != "unknown unknown done" {
		t.Errorf("with shipping frozen: got void_payment %q, want what payment knows", got)
	}
}

// look sends a GET of a client, and gives the status, the kind of answer, and its text.
func look(ctx context.Context, t *testing.T, c *system.Client, path string, header ...string) (status int, kind, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URLs[0]+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(text)
}

// clientsView: the client sees what concerns it, of its own orders, and nothing of how it is done; and can follow it from any place on.
func clientsView(ctx context.Context, t *testing.T, s *system.System, id string) {
	shop := s.Storefront()
	path := "/v1/orders/" + id
	status, _, body := look(ctx, t, shop, path+"/timeline")
	var view struct {
		Status              string `json:"status"`
		Replays, Mismatches int
		Entries             []struct {
			Position      int64 `json:"position"`
			Event, Reason string
		}
	}
	if err := json.Unmarshal([]byte(body), &view); err != nil || status != http.StatusOK {
		t.Fatalf("timeline: got %d, %v: %s", status, err, body)
	}
	var events []string
	for _, e := range view.Entries {
		events = append(events, strings.TrimSpace(e.Event+" "+e.Reason))
	}
	want := []string{"order_placed", "payment_authorized", "shipment_refused address_refused", "order_compensating address_refused", "payment_voided",
		"order_failed address_refused"}
	if !slices.Equal(events, want) || view.Status != verify.Failed || view.Replays != 1 || view.Mismatches != 1 {
		t.Errorf("timeline: got %q, %s, %d replays, %d mismatches, want %q, FAILED, 1, 1", events, view.Status, view.Replays, view.Mismatches, want)
	}
	for _, internal := range []string{"instance", "stream", "attempt", "payment-commands", "pi_", "trace", "void_payment", "key"} {
		if strings.Contains(body, internal) {
			t.Errorf("timeline: got %q in %s, want nothing of how it is done", internal, body)
		}
	}
	for _, what := range []string{"/timeline", "/events"} {
		if status, kind, body := look(ctx, t, s.Marketplace(), path+what); status != http.StatusNotFound || kind != "application/problem+json" {
			t.Errorf("%s of another client's order: got %d %s %s, want 404", what, status, kind, body)
		}
	}
	status, kind, stream := look(ctx, t, shop, path+"/events")
	if n := strings.Count(stream, "\nevent: "); status != http.StatusOK || kind != "text/event-stream" || n != len(want) || !strings.Contains(stream, "event: order_failed\ndata: {") {
		t.Errorf("events: got %d %s with %d events, want 200 text/event-stream with %d: %s", status, kind, n, len(want), stream)
	}
	last := view.Entries[len(view.Entries)-1].Position
	for after, left := range map[int64]int{view.Entries[3].Position: 2, last: 0} {
		status, _, stream := look(ctx, t, shop, path+"/events", "Last-Event-ID", fmt.Sprint(after))
		if n := strings.Count(stream, "\nevent: "); n != left || left == 0 && status != http.StatusNoContent {
			t.Errorf("events behind %d: got %d with %d, want %d: %s", after, status, n, left, stream)
		}
	}
	if status, _, body := look(ctx, t, shop, path+"/events", "Last-Event-ID", "x"); status != http.StatusBadRequest {
		t.Errorf("events behind x: got %d %s, want 400", status, body)
	}
	// One that has not ended is followed until it has.
	const key = "followed"
	followed := keys.OrderID(shop.ID, key).String()
	rule, err := s.Provider.AddFault(ctx, control.Fault{OrderID: followed, Operation: "payment_intents.capture", Action: control.Hold, Times: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Place(ctx, key, system.Order{}); err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	go func() {
		defer close(held)
		system.Eventually(ctx, t, "the capture to be held", func() bool { return calls(ctx, t, s, followed)["payment_intents.capture"] > 0 })
		_ = s.Provider.RemoveFault(ctx, rule) // then the stream never ends, which the test sees
	}()
	_, _, stream = look(ctx, t, shop, "/v1/orders/"+followed+"/events")
	<-held
	if n := strings.Count(stream, "\nevent: "); n != 6 || !strings.HasSuffix(stream, "\n\n") || !strings.Contains(stream, "event: order_confirmed") {
		t.Errorf("events of an order that is under way: got %d, want 6 with order_confirmed: %s", n, stream)
	}
}
