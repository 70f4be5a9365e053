package app_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/throughline/throughline/pkg/keys"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// A key is asked for in any form that a call may have it in, whatever it holds.
func TestKeyInThePath(t *testing.T) {
	t.Parallel()
	e := start(t)
	for sent, want := range map[string]string{
		"k-1": "k-1", "%22k-1%22": "k-1", "%22a,%20b%22;v=2": "a, b", "a%2Fb": "a/b", "a%2fb": "a/b", "a:b": "a:b", "a%3Acancel": "a:cancel",
		"a%2541": "a%41", "%20k%20": "k", "a?": "a", "k%3F%23": "k?#", url.PathEscape(strings.Repeat("/", 255)): strings.Repeat("/", 255),
	} {
		a := e.do("GET", "/v1/idempotency-keys/"+sent, "")
		if a.status != http.StatusOK || !strings.Contains(a.body, `"state":"UNKNOWN"`) {
			t.Errorf("%s: got %d %s, want an unknown key", sent, a.status, a.body)
		}
		if got := e.last(t).req.(*orderv1.GetIdempotencyKeyRequest).GetKey(); got != want {
			t.Errorf("%s: the order service was asked for %q, want %q", sent, got, want)
		}
	}
	before := len(e.seen())
	for sent, want := range map[string]grpcx.Reason{
		"%22%22": grpcx.KeyEmpty, "%22k": grpcx.KeyMalformed, "a,b": grpcx.KeyMalformed, "cl%C3%A9": grpcx.KeyNotPrintable, "%00": grpcx.KeyNotPrintable,
		strings.Repeat("x", 256): grpcx.KeyTooLong, "": grpcx.RouteNotFound, "a/b": grpcx.RouteNotFound,
	} {
		e.refused(e.do("GET", "/v1/idempotency-keys/"+sent, ""), want)
	}
	e.refused(e.do("POST", "/v1/idempotency-keys/k", "{}"), grpcx.MethodNotAllowed)
	e.refused(e.do("GET", "/v1/idempotency-keys/k", "", "Authorization", "Bearer nobody-has-this-key"), grpcx.Unauthenticated)
	if n := len(e.seen()); n != before {
		t.Errorf("keys that are none: got %d calls to the order service, want none", n-before)
	}
}

// An answer whose record has expired is 200 with the order as it is, over HTTP and over gRPC.
func TestExpiredKey(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.answerWith(func(ctx context.Context, _ string) error {
		return grpc.SetHeader(ctx, metadata.Pairs(grpcx.MetadataKeyExpired, "true"))
	})
	a := e.create("k-1", r0)
	if a.status != http.StatusOK || a.header.Get("Idempotency-Key-Expired") != "true" || a.header.Get("Idempotency-Replayed") != "" ||
		!strings.HasSuffix(a.header.Get("Location"), keys.OrderID("storefront", "k-1").String()) {
		t.Errorf("got %d %v, want 200 that says that the key has expired", a.status, a.header)
	}
	var header metadata.MD
	_, err := e.public().CreateOrder(with(t.Context(), "authorization", "Bearer "+storefrontKey, "idempotency-key", "k-2"), orderR0(t), grpc.Header(&header))
	if got := header.Get(grpcx.MetadataKeyExpired); err != nil || len(got) != 1 || got[0] != "true" {
		t.Errorf("gRPC: got %v, %v, want the entry %s", header, err, grpcx.MetadataKeyExpired)
	}
}

func TestPreferWait(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.created(e.create("k-1", r0), false)
	path := "/v1/orders/" + keys.OrderID("storefront", "k-1").String()
	for prefer, want := range map[string]struct {
		applied string
		seconds int32
	}{
		"": {"", 0}, "wait=0": {"", 0}, "wait=-5": {"", 0}, "respond-async": {"", 0},
		"wait=3": {"wait=3", 3}, "respond-async, Wait = 3 ;x=y": {"wait=3", 3}, "wait=3600": {"wait=20", 3600},
	} {
		a := e.do("GET", path, "", "Prefer", prefer)
		if got := a.header.Get("Preference-Applied"); a.status != http.StatusOK || got != want.applied {
			t.Errorf("Prefer %q: got %d, applied %q, want 200, %q", prefer, a.status, got, want.applied)
		}
		call := e.last(t)
		if got := call.req.(*orderv1.GetOrderRequest).GetWaitSeconds(); got != want.seconds {
			t.Errorf("Prefer %q: the order service was asked to wait %d s, want %d", prefer, got, want.seconds)
		}
		if want.seconds > 20 && call.left < 25*time.Second {
			t.Errorf("Prefer %q: got a deadline in %s, want the wait of 20 s and the time of a call", prefer, call.left)
		}
	}
	if a := e.do("GET", "/v1/orders", "", "Prefer", "wait=3"); a.status != http.StatusOK || a.header.Get("Preference-Applied") != "" {
		t.Errorf("list: got %d, applied %q, want 200 and nothing applied", a.status, a.header.Get("Preference-Applied"))
	}
	e.refused(e.do("GET", path+"?wait_seconds=3", ""), grpcx.RequestMalformed, "wait_seconds")
}

// A gateway that stops answers those who wait with the order as it is.
func TestStopEndsWaits(t *testing.T) {
	t.Parallel()
	e := start(t)
	e.created(e.create("k-1", r0), false)
	waiting := make(chan struct{})
	e.answerWith(func(ctx context.Context, method string) error {
		if req := e.last(t).req; method == "GetOrder" && req.(*orderv1.GetOrderRequest).GetWaitSeconds() > 0 {
			close(waiting)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	answers := make(chan answer, 1)
	go func() {
		answers <- e.do("GET", "/v1/orders/"+keys.OrderID("storefront", "k-1").String(), "", "Prefer", "wait=20")
	}()
	<-waiting
	e.stop()
	if a := <-answers; a.status != http.StatusOK || a.header.Get("Preference-Applied") != "" {
		t.Errorf("got %d, applied %q, want 200 and no preference applied", a.status, a.header.Get("Preference-Applied"))
	}
}
