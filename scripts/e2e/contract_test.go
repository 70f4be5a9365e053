package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
)

// contract is the document that a gateway serves, and a client that holds every request and every answer against it.
type contract struct {
	doc    *openapi3.T
	router routers.Router
	base   string
	http   *http.Client
	seen   map[string]bool // "POST /v1/orders 201"
}

func newContract(ctx context.Context, t *testing.T, base string) *contract {
	t.Helper()
	resp := get(ctx, t, base+"/openapi.yaml")
	doc, err := openapi3.NewLoader().LoadFromData(resp)
	if err != nil {
		t.Fatalf("reading the served document: %v", err)
	}
	doc.Servers = openapi3.Servers{{URL: base}}
	if err := doc.Validate(ctx); err != nil {
		t.Fatalf("the served document: %v", err)
	}
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &contract{doc: doc, router: router, base: base, http: &http.Client{}, seen: map[string]bool{}}
}

func get(ctx context.Context, t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: got %d, %v", url, resp.StatusCode, err)
	}
	return body
}

// call sends a request. The answer must be one that the document has, header by header and member by member; so must the request be, unless
// broken says that it breaks the document on purpose.
func (c *contract) call(ctx context.Context, t *testing.T, broken bool, method, path, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer tl_dev_storefront")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		t.Fatalf("%s %s is not in the document: %v", method, path, err)
	}
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true,
	}}
	if err := openapi3filter.ValidateRequest(ctx, in); (err != nil) != broken {
		t.Errorf("%s %s %s: the document says %v, want broken %v", method, path, body, err, broken)
	}
	req.Body = io.NopCloser(strings.NewReader(body)) // the validation has read it
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	options := *in.Options
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		c.checkEvents(t, got)
		options.ExcludeResponseBody = true // it knows no such bodies
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Options: &options}
	if err := openapi3filter.ValidateResponse(ctx, out.SetBodyBytes(got)); err != nil {
		t.Errorf("%s %s: got %d %s, which the document does not have: %v", method, path, resp.StatusCode, got, err)
	}
	documented := route.Operation.Responses.Status(resp.StatusCode)
	for _, name := range []string{"Location", "Idempotency-Replayed", "Idempotency-Key-Expired", "Preference-Applied", "Retry-After", "WWW-Authenticate"} {
		if resp.Header.Get(name) != "" && (documented == nil || documented.Value.Headers[name] == nil) {
			t.Errorf("%s %s: got %d with the header %s, which the document does not have", method, path, resp.StatusCode, name)
		}
	}
	c.seen[method+" "+route.Path+" "+http.StatusText(resp.StatusCode)] = true
	resp.Body = io.NopCloser(bytes.NewReader(got))
	return resp
}

// checkEvents holds what an order's events are made of against the document.
func (c *contract) checkEvents(t *testing.T, body []byte) {
	t.Helper()
	entry, events := c.doc.Components.Schemas["TimelineEntry"].Value, 0
	for line := range strings.Lines(string(body)) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		events++
		var v map[string]any
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Errorf("data of an event: %v in %s", err, data)
		} else if err := entry.VisitJSON(v); err != nil {
			t.Errorf("data of an event: %s, which the document does not have: %v", data, err)
		}
	}
	if events == 0 {
		t.Errorf("a stream of events: got %q, want events", body)
	}
}

// TestOpenAPI sends every example of the served document, and requests that break it, to the system that it describes.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{})
	ctx := system.Context(t, patience)
	c := newContract(ctx, t, s.URL)
	if page := get(ctx, t, s.URL+"/docs"); !bytes.Contains(page, []byte("/openapi.yaml")) || bytes.Contains(page, []byte("<script")) {
		t.Errorf("/docs: got %d bytes, want a page without scripts that leads to the document", len(page))
	}

	create := c.doc.Paths.Value("/v1/orders").Post
	key := create.Parameters.GetByInAndName("header", "Idempotency-Key").Example.(string)
	text := func(example any) string {
		b, err := json.Marshal(example)
		if err != nil || example == nil {
			t.Fatalf("the document has no example: %v", err)
		}
		return string(b)
	}
	body := text(create.RequestBody.Value.Content.Get("application/json").Example)
	id := keys.OrderID("storefront", key).String()
	order := "/v1/orders/" + id
	want := func(resp *http.Response, status int) {
		t.Helper()
		if resp.StatusCode != status {
			b, _ := io.ReadAll(resp.Body)
			t.Errorf("%s %s: got %d %s, want %d", resp.Request.Method, resp.Request.URL.Path, resp.StatusCode, b, status)
		}
	}
	withKey := []string{"Idempotency-Key", key}

	want(c.call(ctx, t, false, "POST", "/v1/orders", body, withKey...), 201)
	want(c.call(ctx, t, false, "POST", "/v1/orders", body, withKey...), 201)
	want(c.call(ctx, t, false, "POST", "/v1/orders", strings.Replace(body, `"quantity":2`, `"quantity":3`, 1), withKey...), 422)
	prefer := c.doc.Paths.Value("/v1/orders/{order_id}").Get.Parameters.GetByInAndName("header", "Prefer").Example.(string)
	want(c.call(ctx, t, false, "GET", order, "", "Prefer", prefer), 200)
	want(c.call(ctx, t, false, "GET", order, ""), 200)
	want(c.call(ctx, t, false, "GET", "/v1/orders/"+keys.OrderID("x", "y").String(), ""), 404)
	want(c.call(ctx, t, false, "GET", order+"/timeline", ""), 200)
	stream := c.call(ctx, t, false, "GET", order+"/events", "") // until the order has ended
	want(stream, 200)
	told, err := io.ReadAll(stream.Body)
	if err != nil {
		t.Fatal(err)
	}
	ids := regexp.MustCompile(`(?m)^id: (\d+)$`).FindAllSubmatch(told, -1)
	want(c.call(ctx, t, false, "GET", order+"/events", "", "Last-Event-ID", string(ids[0][1])), 200)
	want(c.call(ctx, t, false, "GET", order+"/events", "", "Last-Event-ID", string(ids[len(ids)-1][1])), 204)
	want(c.call(ctx, t, true, "GET", order+"/events", "", "Last-Event-ID", "-1"), 400)
	want(c.call(ctx, t, true, "GET", order+"/events", "", "Last-Event-ID", "the last"), 400)
	want(c.call(ctx, t, false, "GET", order+"/events", "", "Authorization", "Bearer tl_nobody"), 401)
	want(c.call(ctx, t, false, "GET", "/v1/orders/"+keys.OrderID("x", "y").String()+"/events", ""), 404)
	want(c.call(ctx, t, false, "GET", "/v1/orders?page_size=1", ""), 200)
	want(c.call(ctx, t, true, "GET", "/v1/orders?page_size=101", ""), 400)
	want(c.call(ctx, t, false, "GET", "/v1/idempotency-keys/"+url.PathEscape(key), ""), 200)
	want(c.call(ctx, t, false, "GET", "/v1/idempotency-keys/unknown", ""), 200)
	cancel := text(c.doc.Paths.Value("/v1/orders/{order_id}/cancel").Post.RequestBody.Value.Content.Get("application/json").Example)
	want(c.call(ctx, t, false, "POST", order+"/cancel", cancel, "Idempotency-Key", key+"-cancel"), 409) // it has ended

	// The examples of the problems are what comes.
	for status, name := range map[string]string{"401": "Problem401", "422": "Problem422"} {
		example := c.doc.Components.Responses[name].Value.Content.Get("application/problem+json").Example.(map[string]any)
		var got map[string]any
		resp := c.call(ctx, t, false, "POST", "/v1/orders", strings.Replace(body, `"quantity":2`, `"quantity":3`, 1), "Idempotency-Key", key,
			"Authorization", map[string]string{"401": "Bearer nobody-has-this-key", "422": "Bearer tl_dev_storefront"}[status])
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if text(got) != text(example) {
			t.Errorf("the problem %s: got %s, want the example %s", status, text(got), text(example))
		}
	}

	// What the document forbids is refused, and what it has room for is taken: the limits are the same.
	line, lines := `{"quantity":2,"sku":"BOOK-1","unit_price":1250}`, `"lines":[{"quantity":2,"sku":"BOOK-1","unit_price":1250}]`
	if !strings.Contains(body, lines) {
		t.Fatalf("the example has changed: %s", body)
	}
	many := func(n int) string {
		return strings.Replace(body, lines, `"lines":[`+strings.TrimSuffix(strings.Repeat(line+",", n), ",")+`]`, 1)
	}
	long := func(member string, n int) string {
		return strings.Replace(body, member, member+strings.Repeat("é", n), 1)
	}
	for name, tc := range map[string]struct{ least, most string }{
		"lines":        {many(200), many(201)},
		"note":         {long(`"note":"`, 2000), long(`"note":"`, 2001)},
		"postal code":  {long(`"postal_code":"10115`, 15), long(`"postal_code":"10115`, 16)},
		"city":         {long(`"city":"Berlin`, 194), long(`"city":"Berlin`, 195)},
		"sku":          {long(`"sku":"BOOK-1`, 58), long(`"sku":"BOOK-1`, 59)},
		"payment":      {body, long(`"payment_method":"pm_card_visa`, 244)},
		"metadata":     {strings.Replace(body, `"metadata":{}`, `"metadata":{"`+strings.Repeat("k", 40)+`":"`+strings.Repeat("v", 500)+`"}`, 1), strings.Replace(body, `"metadata":{}`, `"metadata":{"k":"`+strings.Repeat("v", 501)+`"}`, 1)},
		"metadata key": {body, strings.Replace(body, `"metadata":{}`, `"metadata":{"`+strings.Repeat("k", 41)+`":"v"}`, 1)},
		"quantity":     {strings.Replace(body, `"quantity":2`, `"quantity":1000000`, 1), strings.Replace(body, `"quantity":2`, `"quantity":1000001`, 1)},
		"currency":     {body, strings.Replace(body, "EUR", "eur", 1)},
		"missing":      {body, strings.Replace(body, `"payment_method":"pm_card_visa",`, "", 1)},
		"unknown":      {body, strings.Replace(body, "{", `{"discount":1,`, 1)},
	} {
		if tc.least == tc.most || (tc.most == body) {
			t.Fatalf("%s: nothing was changed in %s", name, body)
		}
		want(c.call(ctx, t, false, "POST", "/v1/orders", tc.least, "Idempotency-Key", "least "+name), 201)
		want(c.call(ctx, t, true, "POST", "/v1/orders", tc.most, "Idempotency-Key", "most "+name), 400)
	}
	want(c.call(ctx, t, true, "POST", "/v1/orders", body, "Idempotency-Key", ""), 400)
	if t.Failed() {
		t.Logf("seen: %v", c.seen)
	}
}

// clientsRun runs "throughline clients" for a system, and gives what it printed.
func clientsRun(ctx context.Context, t *testing.T, s *system.System, args ...string) string {
	t.Helper()
	args = append([]string{"clients", "--data", s.Data(), "--order", "127.0.0.1:" + strconv.Itoa(s.Ports()["order-grpc"])}, args...)
	out, err := exec.CommandContext(ctx, system.Binary(t), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("throughline %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestClients gives a client keys from the command line, and takes them away again.
func TestClients(t *testing.T) {
	t.Parallel()
	s := system.Start(t, system.Options{})
	ctx := system.Context(t, patience)
	run := func(args ...string) string {
		t.Helper()
		return clientsRun(ctx, t, s, args...)
	}
	c := s.Storefront()
	status := func(key, method, path, body string) int {
		t.Helper()
		shop := *c
		shop.Key = key
		return ask(ctx, t, &shop, 0, method, path, body, "Idempotency-Key", "k").Status
	}
	first := run("add", "shop")
	reader := run("add", "shop", "--scopes", "orders:read")
	if got := status(first, "POST", "/v1/orders", r0()); got != http.StatusCreated {
		t.Errorf("placing with a new key: got %d, want 201", got)
	}
	if got := status(reader, "GET", "/v1/orders", ""); got != http.StatusOK {
		t.Errorf("reading with a key for reading: got %d, want 200", got)
	}
	if got := status(reader, "POST", "/v1/orders", r0()); got != http.StatusForbidden {
		t.Errorf("placing with a key for reading: got %d, want 403", got)
	}
	second := run("rotate", "shop", "--overlap", "0s")
	if got := status(second, "POST", "/v1/orders", r0()); got != http.StatusCreated {
		t.Errorf("the same order with the next key: got %d, want 201", got)
	}
	system.Eventually(ctx, t, "the key before to end", func() bool { return status(first, "GET", "/v1/orders", "") == http.StatusUnauthorized })
	list := run("list")
	if strings.Contains(list, first) || strings.Contains(list, second) || strings.Count(list, "shop") != 3 {
		t.Errorf("the list: got\n%s\nwant three keys of shop, and none in full", list)
	}
	run("revoke", "shop", second)
	system.Eventually(ctx, t, "the revoked key to end", func() bool { return status(second, "GET", "/v1/orders", "") == http.StatusUnauthorized })
}
