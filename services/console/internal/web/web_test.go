package web_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

func TestLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	if a := b.get("/orders/x?messages=1"); a.status != http.StatusSeeOther || a.header.Get("Location") != "/login?next=%2Forders%2Fx%3Fmessages%3D1" {
		t.Errorf("somebody unknown: got %d to %q, want the login that leads back", a.status, a.header.Get("Location"))
	}
	for _, path := range []string{"/live", "/logout"} {
		method := http.MethodGet
		if path == "/logout" {
			method = http.MethodPost
		}
		if a := b.do(method, path, nil); a.status != http.StatusUnauthorized {
			t.Errorf("%s of somebody unknown: got %d, want 401", path, a.status)
		}
	}
	for name, form := range map[string]url.Values{
		"wrong credential": {"name": {"Kim"}, "credential": {"what people guess"}},
		"no name":          {"name": {" "}, "credential": {credential}},
		"name in lines":    {"name": {"a\nb"}, "credential": {credential}},
	} {
		if a := b.post("/login", form); a.status != http.StatusUnauthorized || a.header.Get("Set-Cookie") != "" || !strings.Contains(a.body, `role="alert"`) {
			t.Errorf("%s: got %d and cookie %q, want 401 that says why", name, a.status, a.header.Get("Set-Cookie"))
		}
	}
	a := b.post("/login", url.Values{"name": {"Kim"}, "credential": {credential}, "next": {"/services"}})
	cookie := a.header.Get("Set-Cookie")
	if a.status != http.StatusSeeOther || a.header.Get("Location") != "/services" || !strings.Contains(cookie, "HttpOnly") || !strings.Contains(cookie, "SameSite=Strict") ||
		!strings.Contains(cookie, "Path=/") || strings.Contains(cookie, "Expires") {
		t.Errorf("login: got %d to %q with cookie %q, want a strict session cookie", a.status, a.header.Get("Location"), cookie)
	}
	if a := b.post("/login", url.Values{"name": {"Kim"}, "credential": {credential}, "next": {"//evil.example/"}}); a.header.Get("Location") != "/" {
		t.Errorf("login that leads away: got %q, want /", a.header.Get("Location"))
	}
	if a := b.get("/services"); a.status != http.StatusOK || !strings.Contains(a.body, "Kim") {
		t.Errorf("after the login: got %d, want the page", a.status)
	}
	stolen := b.client.Jar.Cookies(must(url.Parse(w.url)))
	if a := b.post("/logout", nil); a.status != http.StatusSeeOther {
		t.Errorf("logout: got %d, want 303", a.status)
	}
	b.client.Jar.SetCookies(must(url.Parse(w.url)), stolen)
	if a := b.get("/"); a.status != http.StatusSeeOther {
		t.Errorf("the cookie after the logout: got %d, want it worth nothing", a.status)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func basic(name, credential string) http.Header {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(name, credential)
	return r.Header
}

func TestBasicAuthentication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	b.header = basic("Kim", credential)
	if a := b.get("/services"); a.status != http.StatusOK || a.header.Get("Set-Cookie") != "" {
		t.Errorf("right: got %d and cookie %q, want the page and no session", a.status, a.header.Get("Set-Cookie"))
	}
	b.header = basic("", credential)
	if a := b.get("/services"); a.status != http.StatusUnauthorized {
		t.Errorf("without a name: got %d, want 401: actions could not be kept under it", a.status)
	}
	b.header = basic("Kim", credential+" ")
	if a := b.get("/services"); a.status != http.StatusUnauthorized || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("wrong: got %d with %q, want 401 and how to do it", a.status, a.header.Get("WWW-Authenticate"))
	}
}

// Guessing is slowed down, whichever way it is tried, and many at once get no more tries than one after another.
func TestGuessing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := make(map[int]int)
	for i := range 20 {
		wg.Go(func() {
			b := w.browser()
			var a answer
			if i%2 == 0 {
				a = b.post("/login", url.Values{"name": {"Kim"}, "credential": {"a guess"}})
			} else {
				b.header = basic("Kim", "a guess")
				a = b.get("/")
			}
			if a.status == http.StatusTooManyRequests && a.header.Get("Retry-After") != "10" {
				t.Errorf("too many tries: got Retry-After %q, want 10", a.header.Get("Retry-After"))
			}
			mu.Lock()
			defer mu.Unlock()
			got[a.status]++
		})
	}
	wg.Wait()
	// The bucket may have filled by one while a slow machine tried.
	if got[http.StatusUnauthorized] < 5 || got[http.StatusUnauthorized] > 7 || got[http.StatusUnauthorized]+got[http.StatusTooManyRequests] != 20 {
		t.Errorf("20 guesses: got %v, want 5 compared and the others told to wait", got)
	}
	if a := w.browser().post("/login", url.Values{"name": {"Kim"}, "credential": {credential}}); a.status != http.StatusTooManyRequests {
		t.Errorf("the right credential among the guesses: got %d, want 429, too: nobody learns that it is right", a.status)
	}
}

// A request that another site caused does nothing, whatever the browser sends with it.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.loggedIn()
	key, _ := b.confirm("/dead-letters/payment/7/replay")
	form := url.Values{"key": {key}, "reason": {"because"}}
	for name, header := range map[string]http.Header{
		"fetch metadata": {"Sec-Fetch-Site": {"cross-site"}},
		"same site only": {"Sec-Fetch-Site": {"same-site"}},
		"origin":         {"Origin": {"https://evil.example"}},
		"origin null":    {"Origin": {"null"}},
	} {
		b.header = header
		for _, path := range []string{"/dead-letters/payment/7/replay", "/attention/" + orderID + "/retry", "/logout", "/login"} {
			if a := b.post(path, form); a.status != http.StatusForbidden {
				t.Errorf("%s, %s: got %d, want 403", name, path, a.status)
			}
		}
	}
	if len(w.replayed) != 0 || len(w.resolved) != 0 {
		t.Errorf("done: got %v and %v, want nothing", w.replayed, w.resolved)
	}
	b.header = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}}
	if a := b.get("/services"); a.status != http.StatusOK {
		t.Errorf("a link from another site: got %d, want the page", a.status)
	}
	b.client.Jar = nil // as browsers do for a strict cookie
	if a := b.get("/services"); a.status != http.StatusOK || !strings.Contains(a.body, `http-equiv="refresh"`) {
		t.Errorf("a link from another site, without the cookie: got %d, want a step that shows it", a.status)
	}
	b.header = http.Header{"Sec-Fetch-Site": {"same-origin"}}
	if a := b.get("/services"); a.status != http.StatusSeeOther {
		t.Errorf("after the step: got %d, want the login", a.status)
	}
}

func entries() []*trailv1.Entry {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(at.Add(d)) }
	return []*trailv1.Entry{
		{EntryId: "order", At: after(0), Service: "order", Kind: trailv1.EntryKind_ENTRY_KIND_ORDER, Title: "placed", Outcome: "FAILED", TraceId: "0af7651916cd43dd8448eb211c80319c",
			Attributes: map[string]string{"client_id": "storefront", "idempotency_key": typed, "currency": "EUR", "total": "1250", "ship_to": "masked " + typed}},
		{EntryId: "sent", At: after(1e6), Service: "order", Kind: trailv1.EntryKind_ENTRY_KIND_SENT, Title: "sent authorize_payment", Outcome: "acknowledged", CausedBy: "order", Stream: "CMD", StreamSequence: 4},
		{EntryId: "stuck", At: after(2e6), Service: "order", Kind: trailv1.EntryKind_ENTRY_KIND_SENT, Title: "sent an event", Outcome: "pending", CausedBy: "order"},
		{EntryId: "attempt", At: after(1500e6), Service: "payment", Kind: trailv1.EntryKind_ENTRY_KIND_ATTEMPT, Title: "first attempt", Outcome: "unknown", Detail: typed, CausedBy: "sent"},
		{EntryId: "undo", At: after(2500e6), Service: "payment", Kind: trailv1.EntryKind_ENTRY_KIND_ATTEMPT, Title: "attempt at the undo", Outcome: "done", Undo: true, CausedBy: "attempt"},
		{EntryId: "letter", At: after(3e9), Service: "shipping", Kind: trailv1.EntryKind_ENTRY_KIND_DEAD_LETTER, Title: "dead letter", Outcome: "dead", Attributes: map[string]string{"dead_letter_id": "9"}},
	}
}

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	inline = regexp.MustCompile(`(?i)<[^>]*\s(style|on[a-z]+)\s*=`)
	script = regexp.MustCompile(`(?i)<script`)
)

// What customers and operators typed is text on every page, and no page has anything that the policy refuses.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.entries = entries()
	w.matches = []*trailv1.Match{{OrderId: orderID, ClientId: typed}, {OrderId: otherID}}
	w.board.Note("created", orderID, time.Now())
	w.sample()
	b := w.loggedIn()
	pages := []string{
		"/", "/login", "/services", "/attention", "/attention/" + orderID, "/attention/" + orderID + "/retry", "/dead-letters", "/dead-letters?all=1&order=" + orderID,
		"/dead-letters/payment/7", "/dead-letters/payment/7/replay", "/orders/" + orderID, "/orders/" + orderID + "?messages=1&for=" + url.QueryEscape(typed),
		"/orders/" + orderID + "/reveal", "/find?q=" + url.QueryEscape(typed), "/nowhere", "/orders/" + otherID, "/orders/nonsense", "/attention/" + otherID,
	}
	for _, path := range pages {
		a := b.get(path)
		if a.status >= http.StatusInternalServerError || len(script.FindAllString(a.body, -1)) != 1 || inline.MatchString(quoted.ReplaceAllString(a.body, `""`)) || strings.Contains(a.body, "<img src=x") {
			t.Errorf("%s: got %d with a script or a style of its own, or with what was typed as more than text:\n%s", path, a.status, a.body)
		}
		if got := a.header.Get("Content-Security-Policy"); strings.Contains(got, "unsafe") || !strings.HasPrefix(got, "default-src 'none'; ") || !strings.Contains(got, "frame-ancestors 'none'") {
			t.Errorf("%s: got policy %q, want a strict one", path, got)
		}
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin", "Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := a.header.Get(header); got != want {
				t.Errorf("%s: got %s %q, want %q", path, header, got, want)
			}
		}
		for _, want := range []string{`<html lang="en">`, `name="viewport"`, `<main id="main"`, "<h1"} {
			if !strings.Contains(a.body, want) {
				t.Errorf("%s: lacks %s", path, want)
			}
		}
	}
	for _, path := range []string{"/", "/attention", "/dead-letters/payment/7"} {
		if a := b.get(path); !strings.Contains(a.body, "&lt;script&gt;alert(") {
			t.Errorf("%s: does not show what was typed", path)
		}
	}
	if a := b.get("/dead-letters/payment/7"); strings.Contains(a.body, "SECRET") || !strings.Contains(a.body, "https://jaeger.example/ui/trace/0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("dead letter: got %s, want the trace linked and no payload", a.body)
	}
	if a := b.get("/dead-letters/payment/" + strconv.Itoa(noLetter)); a.status != http.StatusNotFound || !strings.Contains(a.body, "no such dead letter") {
		t.Errorf("a dead letter that there is not: got %d %s, want 404", a.status, a.body)
	}
	static := regexp.MustCompile(`/static/[a-z]+-[0-9a-f]+\.(css|js|svg)`).FindAllString(b.get("/").body, -1)
	if len(static) < 3 {
		t.Fatalf("static files: got %v, want a style, a script and an icon", static)
	}
	for _, path := range static {
		if a := w.browser().get(path); a.status != http.StatusOK || !strings.Contains(a.header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: got %d, %q, want it kept for ever", path, a.status, a.header.Get("Cache-Control"))
		}
	}
}

func TestStory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "shipping")
	w.entries = entries()
	b := w.loggedIn()
	a := b.get("/orders/" + orderID)
	for _, want := range []string{
		`class="moment payment undo"`, `<span class="undo-mark">undo</span>`, "first attempt", "&#43;1.500s", "12.50 EUR", "Show 1 message<",
		"no answer from shipping: unreachable", `href="/dead-letters/shipping/9"`, "sent an event", "order: sent authorize_payment",
	} {
		if !strings.Contains(a.body, want) {
			t.Errorf("story: lacks %q:\n%s", want, a.body)
		}
	}
	if strings.Contains(a.body, "moment order minor") {
		t.Error("story: shows messages that went well, want them left out at first")
	}
	if a := b.get("/orders/" + orderID + "?messages=1"); !strings.Contains(a.body, "moment order minor") || !strings.Contains(a.body, "CMD #4") {
		t.Errorf("story with messages: got %s, want them", a.body)
	}
	a = b.get("/orders/" + orderID + "/story.json")
	var told struct {
		Entries []struct{ Title string }
		Gaps    []struct{ Service string }
	}
	if err := json.Unmarshal([]byte(a.body), &told); err != nil || len(told.Entries) != len(w.entries) || len(told.Gaps) == 0 || told.Gaps[0].Service != "shipping" {
		t.Errorf("export: got %+v, %v, want all entries and the gap", told, err)
	}
	key, _ := b.confirm("/orders/" + orderID + "/reveal")
	if a := b.post("/orders/"+orderID+"/reveal", url.Values{"key": {key}}); a.status != http.StatusUnprocessableEntity || len(w.revealed) != 0 {
		t.Errorf("personal data without a reason: got %d and %v, want 422 and nothing asked for", a.status, w.revealed)
	}
	if a := b.post("/orders/"+orderID+"/reveal", url.Values{"key": {key}, "reason": {"the customer asks"}}); a.status != http.StatusOK || len(w.revealed) == 0 ||
		w.revealed[0].GetActor() != "Kim@console" || w.revealed[0].GetReason() != "the customer asks" {
		t.Errorf("personal data: got %d and %v, want it asked for in Kim's name", a.status, w.revealed)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.loggedIn()
	if a := b.get("/find?q=nothing"); a.status != http.StatusNotFound || !strings.Contains(a.body, "known to no service") {
		t.Errorf("nothing: got %d %s, want 404", a.status, a.body)
	}
	if a := b.get("/find?q=" + strings.Repeat("x", 301)); a.status != http.StatusBadRequest {
		t.Errorf("too long: got %d, want 400", a.status)
	}
	w.matches = []*trailv1.Match{{OrderId: orderID, Kind: trailv1.IdKind_ID_KIND_STEP_KEY}}
	if a := b.get("/find?q=%20a+step%20"); a.status != http.StatusSeeOther || a.header.Get("Location") != "/orders/"+orderID+"?for=a+step" {
		t.Errorf("one: got %d to %q, want its story", a.status, a.header.Get("Location"))
	}
	w.matches = append(w.matches, &trailv1.Match{OrderId: otherID, ClientId: "marketplace"})
	if a := b.get("/find?q=k"); a.status != http.StatusOK || !strings.Contains(a.body, orderID) || !strings.Contains(a.body, "marketplace") {
		t.Errorf("several: got %d %s, want all of them", a.status, a.body)
	}
}

func TestReplayDeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.loggedIn()
	const path = "/dead-letters/payment/7/replay"
	key, page := b.confirm(path)
	if !strings.Contains(page.body, "would run the handler") || !strings.Contains(page.body, "2 later events") || len(w.replayed) != 0 {
		t.Errorf("confirmation: got %s and %v, want what a dry run says, and nothing done", page.body, w.replayed)
	}
	for name, form := range map[string]url.Values{
		"no reason": {"key": {key}, "reason": {"  "}}, "too long": {"key": {key}, "reason": {strings.Repeat("x", 1001)}}, "no key": {"reason": {"because"}},
	} {
		if a := b.post(path, form); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, `role="alert"`) {
			t.Errorf("%s: got %d, want 422 with the form", name, a.status)
		}
	}
	if a := b.post(path, url.Values{"key": {key}, "reason": {strings.Repeat("x", 9000)}}); a.status != http.StatusBadRequest {
		t.Errorf("a body without end: got %d, want 400", a.status)
	}
	if len(w.replayed) != 0 {
		t.Fatalf("replays: got %v, want none without a confirmation", w.replayed)
	}
	// A double click, and a page that is sent again, do it once.
	w.replaying = make(chan struct{})
	var clicks sync.WaitGroup
	for range 3 {
		clicks.Go(func() {
			a := b.post(path, url.Values{"key": {key}, "reason": {" the fix is out "}})
			if want := "/dead-letters/payment/7?did=" + key; a.status != http.StatusSeeOther || a.header.Get("Location") != want {
				t.Errorf("replay: got %d to %q, want %q", a.status, a.header.Get("Location"), want)
			}
		})
	}
	w.replaying <- struct{}{}
	clicks.Wait()
	close(w.replaying)
	b.post(path, url.Values{"key": {key}, "reason": {"the fix is out"}})
	if len(w.replayed) != 1 || w.replayed[0].GetActor() != "Kim@console" || w.replayed[0].GetReason() != "the fix is out" || w.replayed[0].GetId() != 7 {
		t.Errorf("replays: got %v, want one in Kim's name", w.replayed)
	}
	if a := b.get("/dead-letters/payment/7?did=" + key); !strings.Contains(a.body, "Replay: done") {
		t.Errorf("after the replay: got %s, want what came of it", a.body)
	}
	other := w.browser()
	other.header = basic("Alex", credential)
	if a := other.get("/dead-letters/payment/7?did=" + key); strings.Contains(a.body, "Replay: done") {
		t.Error("another operator is told what came of Kim's action, want it told to Kim")
	}
	// What has failed may be tried again, under the same key.
	key, _ = b.confirm(path)
	w.failWith = errAway
	if a := b.post(path, url.Values{"key": {key}, "reason": {"because"}}); a.status != http.StatusBadGateway {
		t.Errorf("service away: got %d, want 502", a.status)
	}
	w.failWith = nil
	if a := b.post(path, url.Values{"key": {key}, "reason": {"because"}}); a.status != http.StatusSeeOther || len(w.replayed) != 2 {
		t.Errorf("again: got %d and %d replays, want it done", a.status, len(w.replayed))
	}
	for _, path := range []string{"/dead-letters/payment/7/burn", "/dead-letters/gateway/7/replay", "/dead-letters/payment/x/replay"} {
		if a := b.post(path, url.Values{"key": {key}, "reason": {"because"}}); a.status != http.StatusNotFound {
			t.Errorf("%s: got %d, want 404", path, a.status)
		}
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.loggedIn()
	page := b.get("/attention/" + orderID)
	for _, want := range []string{"/retry", "/undo", "/mark-done"} {
		if !strings.Contains(page.body, `href="/attention/`+orderID+want+`"`) {
			t.Errorf("case: does not offer %s", want)
		}
	}
	path := "/attention/" + orderID + "/mark-done"
	key, _ := b.confirm(path)
	if a := b.post(path, url.Values{"key": {key}}); a.status != http.StatusUnprocessableEntity || len(w.resolved) != 0 {
		t.Errorf("without a reason: got %d and %v, want 422 and nothing decided", a.status, w.resolved)
	}
	form := url.Values{"key": {key}, "step": {"void_payment"}, "reason": {"refunded by hand"}}
	for range 2 {
		if a := b.post(path, form); a.status != http.StatusSeeOther || a.header.Get("Location") != "/attention/"+orderID+"?did="+key {
			t.Errorf("decision: got %d to %q, want the case", a.status, a.header.Get("Location"))
		}
	}
	if len(w.resolved) != 1 {
		t.Fatalf("decisions: got %v, want one", w.resolved)
	}
	if r := w.resolved[0]; r.GetRequestKey() != key || r.GetActor() != "Kim@console" || r.GetReason() != "refunded by hand" || r.GetStep() != "void_payment" ||
		r.GetOrderId() != orderID || r.GetResolution() != attentionv1.Resolution_RESOLUTION_MARK_DONE {
		t.Errorf("decision: got %v, want Kim's", r)
	}
	if a := b.get("/attention/" + orderID + "?did=" + key); !strings.Contains(a.body, "void_payment: mark as done. The order is failed now.") {
		t.Errorf("after the decision: got %s, want what came of it", a.body)
	}
	if a := b.get("/attention/" + orderID + "/forget"); a.status != http.StatusNotFound {
		t.Errorf("a decision that there is not: got %d, want 404", a.status)
	}
}

// The first page follows by itself, and its stream ends with the session.
func TestStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sample()
	b := w.loggedIn()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/live", nil))
	resp, err := b.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("stream: got %d %q, want events", resp.StatusCode, got)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	next := func(event, holds string) {
		t.Helper()
		in := ""
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				in = name
			} else if lines.Text() == "" {
				in = ""
			}
			if in == event && strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), holds) {
				return
			}
		}
		t.Fatalf("stream: ended (%v), want %s with %q", lines.Err(), event, holds)
	}
	next("vitals", "Need a person")
	w.board.Note("created", orderID, time.Now())
	next("orders", `id="o-`+orderID+`"`)
	if a := b.post("/logout", nil); a.status != http.StatusSeeOther {
		t.Fatalf("logout: got %d, want 303", a.status)
	}
	w.board.Note("created", otherID, time.Now())
	for lines.Scan() {
		if strings.Contains(lines.Text(), otherID) {
			t.Fatal("stream: went on after the logout, want its end")
		}
	}
}

// A console that stops lets its streams go, and one whose services are away says so on its pages.
func TestAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "order", "payment")
	w.sample()
	b := w.loggedIn()
	for path, want := range map[string]string{
		"/": "No answer", "/services": "payment cannot be reached", "/dead-letters": "payment cannot be reached", "/attention": "order cannot be reached",
	} {
		if a := b.get(path); !strings.Contains(a.body, want) {
			t.Errorf("%s: got %d %s, want %q", path, a.status, a.body, want)
		}
	}
	resp, err := b.client.Do(must(http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/live", nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.server.Drain()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		continue // to its end
	}
	if err := lines.Err(); err != nil {
		t.Errorf("stream of a console that stops: got %v, want its ordinary end", err)
	}
}
