package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/keys"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/config"
	"github.com/throughline/throughline/services/internal/grpcx"
)

func TestCreateAndReplay(t *testing.T) {
	t.Parallel()
	e := start(t)
	first := e.create("k-1", r0)
	e.created(first, false)
	id := keys.OrderID("storefront", "k-1").String()
	if got, want := first.header.Get("Location"), "/v1/orders/"+id; got != want {
		t.Errorf("Location: got %q, want %q", got, want)
	}
	if got, want := first.body, e.stored[id].body; got != want {
		t.Errorf("body: got %s, want the stored %s", got, want)
	}
	again := e.create("k-1", " "+strings.ReplaceAll(r0, ":", " : ")+"\n", "Content-Type", "application/json; charset=utf-8")
	e.created(again, true)
	if again.body != first.body || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("replay: got %s at %s, want %s at %s", again.body, again.header.Get("Location"), first.body, first.header.Get("Location"))
	}
	e.refused(e.create("k-1", strings.Replace(r0, `"quantity":2`, `"quantity":3`, 1)), grpcx.KeyMismatch, "lines[0].quantity")
	if got := e.do("POST", "/v1/orders", r0, "Idempotency-Key", "k-1", "Authorization", "Bearer "+marketKey); got.header.Get("Location") == first.header.Get("Location") {
		t.Errorf("another client's order: got the same Location %s", first.header.Get("Location"))
	}
}

func TestGetListCancel(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.created(e.create("k-1", r0), false)
	id := keys.OrderID("storefront", "k-1").String()

	got := e.do("GET", "/v1/orders/"+id, "")
	if got.status != 200 || !strings.HasPrefix(got.body, `{"order_id":"`+id+`","status":"PENDING","currency":"EUR","total":2500,"lines":[`) {
		t.Errorf("GET: got %d %s", got.status, got.body)
	}
	if head := e.do("HEAD", "/v1/orders/"+id, ""); head.status != 200 || head.body != "" ||
		head.header.Get("Content-Length") != got.header.Get("Content-Length") {
		t.Errorf("HEAD: got %d %v, want the headers of GET", head.status, head.header)
	}
	e.refused(e.do("GET", "/v1/orders/"+keys.OrderID("storefront", "other").String(), ""), grpcx.OrderNotFound)
	before := len(e.seen())
	for _, bad := range []string{"1", "%FF", "%00", "a%20b", strings.ToUpper(id), "{" + id + "}", strings.Repeat("a", 4000)} {
		e.refused(e.do("GET", "/v1/orders/"+bad, ""), grpcx.OrderNotFound)
	}
	if n := len(e.seen()); n != before {
		t.Errorf("ids that nobody wrote: got %d calls, want none", n-before)
	}

	list := e.do("GET", "/v1/orders?page_size=5&page_token=a%2Bb", "")
	if list.status != 200 || list.body != `{"orders":[],"next_page_token":"next"}` {
		t.Errorf("list: got %d %s", list.status, list.body)
	}
	if got, want := e.last(t).req, (&orderv1.ListOrdersRequest{PageSize: 5, PageToken: "a+b"}); !proto.Equal(got, want) {
		t.Errorf("list: the order service got %v, want %v", got, want)
	}
	for query, path := range map[string]string{
		"page_size=x": "page_size", "page_size=1e1": "page_size", "page_size=99999999999": "page_size", "page_size=1&page_size=2": "page_size",
		"pageSize=1": "pageSize", "page_token=%FF": "page_token", "page_token=%00": "page_token", "%FF=1": "",
	} {
		e.refused(e.do("GET", "/v1/orders?"+query, ""), grpcx.RequestMalformed, path)
	}
	e.refused(e.do("GET", "/v1/orders?page_token=%zz", ""), grpcx.RequestMalformed)
	e.refused(e.do("GET", "/v1/orders?a;b", ""), grpcx.RequestMalformed)

	cancel := "/v1/orders/" + id + "/cancel"
	for _, body := range []string{`{"reason":"ordered twice"}`, `{}`} {
		if a := e.do("POST", cancel, body, "Idempotency-Key", "c-1"); a.status != 200 || !strings.Contains(a.body, `"status":"COMPENSATING"`) {
			t.Errorf("cancel with %s: got %d %s", body, a.status, a.body)
		}
	}
	if got, want := e.last(t).req, (&orderv1.CancelOrderRequest{OrderId: id}); !proto.Equal(got, want) {
		t.Errorf("cancel: the order service got %v, want %v", got, want)
	}
	bare := e.request("POST", cancel, http.NoBody, "Idempotency-Key", "c-1")
	bare.Header.Del("Content-Type")
	if a := e.send(bare); a.status != 200 {
		t.Errorf("cancel without a body: got %d %s, want 200", a.status, a.body)
	}
	e.refused(e.do("POST", cancel, `{}`), grpcx.KeyMissing)
	e.refused(e.do("POST", cancel, `{"order_id":"`+id+`"}`, "Idempotency-Key", "c-1"), grpcx.RequestMalformed, "order_id")
	e.refused(e.do("POST", "/v1/orders/7/cancel", `{}`, "Idempotency-Key", "c-1"), grpcx.OrderNotFound)
}

// Nothing that a caller sends becomes metadata but what the gateway makes of it.
func TestMetadataIsMadeFromScratch(t *testing.T) {
	t.Parallel()
	e := start(t, func(c *config.Config) { c.CallTimeout = 3 * time.Second })
	e.created(e.create(`" a, \"b\" "`, r0,
		"Client-Id", "marketplace", "Grpc-Metadata-Client-Id", "marketplace", "Grpc-Metadata-Idempotency-Key", "other",
		"X-Forwarded-For", "1.2.3.4", "Grpc-Timeout", "1n", "X-HTTP-Method-Override", "DELETE", "Cookie", "c=1",
		"Http-Body-Bin", "AAAA", "Idempotency-Replayed", "true", "Baggage", "a=b", "Accept", "text/html"), false)
	c := e.last(t)
	want := map[string]string{
		"client-id": "storefront", "idempotency-key": ` a, "b" `, "authorization": "Bearer " + credential,
	}
	for name, value := range want {
		if got := strings.Join(c.md.Get(name), "|"); got != value {
			t.Errorf("%s: got %q, want %q", name, got, value)
		}
	}
	for name := range c.md {
		switch name {
		case ":authority", "content-type", "user-agent", "traceparent", "grpc-accept-encoding":
		default:
			if _, ok := want[name]; !ok {
				t.Errorf("metadata: got an entry %q that nobody asked for", name)
			}
		}
	}
	if c.left <= 0 || c.left >= 3*time.Second {
		t.Errorf("deadline at the order service: got %v, want less than the gateway's own 3s", c.left)
	}
}
