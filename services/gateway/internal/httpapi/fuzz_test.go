package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/gateway/internal/grpcapi"
)

// yes is an order service that accepts everything, so that every refusal is the edge's own.
type yes struct{}

func (yes) CreateOrder(_ context.Context, r *orderv1.CreateOrderRequest, _ ...grpc.CallOption) (*orderv1.CreateOrderResponse, error) {
	return &orderv1.CreateOrderResponse{Order: &orderv1.Order{Currency: r.GetCurrency(), Lines: r.GetLines(), Metadata: r.GetMetadata()}}, nil
}

func (yes) GetOrder(_ context.Context, r *orderv1.GetOrderRequest, _ ...grpc.CallOption) (*orderv1.GetOrderResponse, error) {
	return &orderv1.GetOrderResponse{Order: &orderv1.Order{OrderId: r.GetOrderId()}}, nil
}

func (yes) ListOrders(_ context.Context, r *orderv1.ListOrdersRequest, _ ...grpc.CallOption) (*orderv1.ListOrdersResponse, error) {
	return &orderv1.ListOrdersResponse{NextPageToken: r.GetPageToken()}, nil
}

func (yes) CancelOrder(_ context.Context, r *orderv1.CancelOrderRequest, _ ...grpc.CallOption) (*orderv1.CancelOrderResponse, error) {
	return &orderv1.CancelOrderResponse{Order: &orderv1.Order{OrderId: r.GetOrderId(), Note: r.GetReason()}}, nil
}

func (yes) GetIdempotencyKey(_ context.Context, r *orderv1.GetIdempotencyKeyRequest, _ ...grpc.CallOption) (*orderv1.GetIdempotencyKeyResponse, error) {
	return &orderv1.GetIdempotencyKeyResponse{IdempotencyKey: &orderv1.IdempotencyKey{Key: r.GetKey(), State: orderv1.KeyState_KEY_STATE_UNKNOWN}}, nil
}

func (yes) GetTimeline(_ context.Context, r *orderv1.GetTimelineRequest, _ ...grpc.CallOption) (*orderv1.GetTimelineResponse, error) {
	return &orderv1.GetTimelineResponse{OrderId: r.GetOrderId(), Status: orderv1.OrderStatus_ORDER_STATUS_CONFIRMED}, nil
}

// FuzzHandler checks that no input gives 5xx, that every refusal is a problem document, and that every answer is JSON.
func FuzzHandler(f *testing.F) {
	const key = "key-of-the-storefront"
	clients, err := grpcapi.ParseKeyList("storefront=" + key)
	if err != nil {
		f.Fatalf("ParseKeyList: %v", err)
	}
	h, err := NewHandler(f.Context(), grpcapi.New(grpcapi.Config{Orders: yes{}, Clients: clients, Rate: -1}), nil, nil)
	if err != nil {
		f.Fatalf("NewHandler: %v", err)
	}
	const id = "/v1/orders/bc765b28-bc4d-58fd-a83e-d135647f37a8"
	f.Add("POST", "/v1/orders", "", "k", "application/json", []byte(`{"currency":"EUR","lines":[{"quantity":1}]}`))
	f.Add("POST", id+"/cancel", "", `"k"`, "application/json; charset=utf-8", []byte(`{"reason":"x"}`))
	f.Add("GET", id, "", "", "", []byte(nil))
	f.Add("GET", id+"/timeline", "after=-1", "", "", []byte(nil))
	f.Add("GET", id+"/events", "", "", "", []byte(nil))
	f.Add("GET", "/v1/idempotency-keys/a%2Fb:c%25", "", "", "", []byte(nil))
	f.Add("GET", "/v1/idempotency-keys/%22a%22", "", "", "", []byte(nil))
	f.Add("HEAD", "/v1/orders", "page_size=1&page_token=%2B", "", "", []byte(nil))
	f.Add("GET", "/v1/orders/%2F:cancel", "page_size=x", "\xff", "text/plain", []byte("{"))
	f.Fuzz(func(t *testing.T, method, path, query, idempotencyKey, contentType string, body []byte) {
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return // net/http refuses it before the handler
		}
		u.RawQuery = query
		r := &http.Request{Method: method, URL: u, Header: http.Header{
			"Authorization": {"Bearer " + key}, "Idempotency-Key": {idempotencyKey}, "Content-Type": {contentType},
		}, Body: http.NoBody, ContentLength: int64(len(body))}
		if len(body) > 0 {
			r.Body = newBody(body, nil)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(t.Context()))
		if w.Code >= 500 {
			t.Fatalf("%s %q?%q with key %q and %q: got %d %s", method, path, query, idempotencyKey, body, w.Code, w.Body)
		}
		if strings.HasSuffix(u.Path, "/events") && w.Code < 400 {
			return // a stream, or nothing
		}
		want := "application/json"
		if w.Code >= 400 {
			want = problemType
		}
		if got := w.Header().Get("Content-Type"); got != want {
			t.Errorf("status %d: got Content-Type %q, want %q", w.Code, got, want)
		}
		if !json.Valid(bytes.TrimSpace(w.Body.Bytes())) {
			t.Errorf("status %d: got %q, want JSON", w.Code, w.Body)
		}
	})
}
