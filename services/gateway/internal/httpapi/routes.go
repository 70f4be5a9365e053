package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
)

// route is what this package has to know of a route beside what http.yaml says of it. A test compares the two.
type route struct {
	method  string
	pattern string // as in http.yaml
	rpc     string // full gRPC method name
	status  int    // of success
	query   []string
	// emptyBody says that no body means {}.
	emptyBody bool
	// keyInPath says that the last part of the path is an idempotency key, which may hold anything.
	keyInPath bool
}

func routes() []route {
	return []route{
		{method: http.MethodPost, pattern: "/v1/orders", rpc: orderv1.OrderService_CreateOrder_FullMethodName,
			status: http.StatusCreated},
		{method: http.MethodGet, pattern: "/v1/orders", rpc: orderv1.OrderService_ListOrders_FullMethodName,
			status: http.StatusOK, query: []string{"page_size", "page_token"}},
		{method: http.MethodGet, pattern: "/v1/orders/{order_id}", rpc: orderv1.OrderService_GetOrder_FullMethodName,
			status: http.StatusOK},
		{method: http.MethodPost, pattern: "/v1/orders/{order_id}/cancel",
			rpc: orderv1.OrderService_CancelOrder_FullMethodName, status: http.StatusOK, emptyBody: true},
		{method: http.MethodGet, pattern: "/v1/orders/{order_id}/timeline",
			rpc: orderv1.OrderService_GetTimeline_FullMethodName, status: http.StatusOK, query: []string{"after"}},
		{method: http.MethodGet, pattern: "/v1/idempotency-keys/{key}",
			rpc: orderv1.OrderService_GetIdempotencyKey_FullMethodName, status: http.StatusOK, keyInPath: true},
	}
}

// match finds the route of a request by the parts of its path. Without one it answers the methods that the path has: none for an
// unknown path.
func match(all []route, method string, path []string) (found *route, allow []string) {
	for i := range all {
		if !matches(all[i].pattern, path) {
			continue
		}
		if all[i].method == method {
			return &all[i], nil
		}
		allow = append(allow, all[i].method)
		if all[i].method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	return nil, allow
}

// parts splits a path as it was sent, and then decodes its parts: an escaped slash is no separator. None is a path that cannot be
// decoded.
func parts(escaped string) []string {
	all := strings.Split(escaped, "/")
	for i, part := range all {
		decoded, err := url.PathUnescape(part)
		if err != nil {
			return nil
		}
		all[i] = decoded
	}
	return all
}

func matches(pattern string, got []string) bool {
	want := strings.Split(pattern, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if isVariable(want[i]) {
			if got[i] == "" {
				return false
			}
		} else if want[i] != got[i] {
			return false
		}
	}
	return true
}

// pathVariables answers the names of the fields that a path fills in.
func pathVariables(pattern string) []string {
	var names []string
	for part := range strings.SplitSeq(pattern, "/") {
		if isVariable(part) {
			names = append(names, strings.Trim(part, "{}"))
		}
	}
	return names
}

func isVariable(part string) bool { return strings.HasPrefix(part, "{") }
